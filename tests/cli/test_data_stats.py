import json

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from ntrm.cli.data import stats
from ntrm.core.labels import SKIN, LabelSchema, Tissue
from ntrm.data.image_files import write_rgb_mask

runner = CliRunner()
app = typer.Typer()
app.command()(stats)


@pytest.fixture
def folder(tmp_path):
    mask = np.full((12, 12), SKIN.index("BKG"), dtype=np.uint8)
    mask[:9] = SKIN.index("RET")
    for level in ("5x", "10x"):
        write_rgb_mask(tmp_path / "in" / level / "Masks" / "BCC_1.png", mask, SKIN)
    return tmp_path / "in"


def test_json_is_the_whole_output(folder):
    result = runner.invoke(app, [str(folder), "--resolution", "10x", "--jobs", "1", "--json"])
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert {"classes", "pixel_share", "boundary_share", "tissues_per_tile", "sections"} <= document.keys()
    assert document["pixel_share"]["RET"] == 0.75
    assert document["level"] == "10x"


def test_people_get_a_table_and_a_picture(folder, tmp_path):
    figure = tmp_path / "stats.png"
    result = runner.invoke(app, [str(folder), "--resolution", "5x", "--jobs", "1", "--figure", str(figure)])
    assert result.exit_code == 0
    assert "reticular dermis" in result.stdout
    assert "BKG 100%" in result.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert str(figure) in result.stderr.replace("\n", "")


def test_a_title_that_is_the_name_is_not_shown_twice(tmp_path):
    classes = (Tissue(0, "glass", "glass", (0, 0, 0)), Tissue(1, "Tu", "tumour", (9, 9, 9)))
    LabelSchema(classes).write_csv(tmp_path / "classes.csv")
    (tmp_path / "cases.csv").write_text("name,group,split,mpp\na,p,train,1\n")
    for folder, pixels in (("Images", np.full((8, 8, 3), 200)), ("Masks", np.eye(8))):
        (tmp_path / folder).mkdir()
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / folder / "a.png")
    result = runner.invoke(app, [str(tmp_path), "--jobs", "1"], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("│ glass")]
    assert line.count("glass") == 1
    assert "tumour" in result.stdout


def test_several_resolutions_are_refused_and_wrong_pictures_are_wrong_usage(folder):
    refused = runner.invoke(app, [str(folder)])
    assert refused.exit_code == 3
    assert "--resolution" in refused.stderr
    assert runner.invoke(app, [str(folder), "--resolution", "5x", "--figure", "stats.gif"]).exit_code == 2
