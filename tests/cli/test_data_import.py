import json

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from ntrm.cli.data import data_import

app = typer.Typer()
app.command("import")(data_import)


@app.callback()
def _root() -> None:
    """Keep the command's name."""


@pytest.fixture
def files(tmp_path):
    Image.fromarray(np.full((60, 90, 3), 180, dtype=np.uint8)).save(tmp_path / "a.png")
    square = [[10, 10], [50, 10], [50, 50], [10, 50], [10, 10]]
    document = {
        "type": "Feature",
        "geometry": {"type": "Polygon", "coordinates": [square]},
        "properties": {"classification": "Tumour"},
    }
    (tmp_path / "a.geojson").write_text(json.dumps(document))
    (tmp_path / "map.csv").write_text("from,to\nTumour,BCC\n")
    (tmp_path / "cases.csv").write_text("slide,patient,split,mpp\na.png,P1,test,0.67\n")
    return tmp_path


def run(folder, *options):
    paths = [str(folder / "a.png"), str(folder / "a.geojson"), "--out", str(folder / "out")]
    return CliRunner().invoke(app, ["import", *paths, *map(str, options)])


def test_json_is_one_document(files):
    result = run(files, "--map", files / "map.csv", "--cases", files / "cases.csv", "--resolution", "2x", "--json")
    assert result.exit_code == 0, result.output
    (case,) = json.loads(result.stdout)["imported"]
    assert case["pixels"]["BCC"] == 400
    assert case["mpp"] == 1.34
    assert (case["group"], case["split"]) == ("P1", "test")


def test_a_table_for_people(files):
    result = run(files, "--map", files / "map.csv", "--mpp", 1)
    assert result.exit_code == 0, result.output
    assert "BCC" in result.stdout
    again = run(files, "--map", files / "map.csv", "--mpp", 1)
    assert "there already" in again.stdout


def test_failures_leave_stdout_one_document(files):
    result = run(files, "--mpp", 1, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["failures"][0]["got"] == "Tumour"
    assert "--map" in result.stderr


def test_exit_codes(files):
    assert run(files, "--map", files / "map.csv").exit_code == 3  # no µm/px
    assert run(files, "--mpp", 1, "--target-mpp", 2, "--resolution", "2x").exit_code == 2
    assert run(files, "--mpp", 1, "--resolution", "0x").exit_code == 2


def test_another_schema(files):
    (files / "classes.csv").write_text("index,name,r,g,b\n0,stroma,1,1,1\n1,tumour,2,2,2\n")
    result = run(files, "--classes", files / "classes.csv", "--mpp", 1, "--json")
    assert json.loads(result.stdout)["imported"][0]["pixels"] == {"stroma": 0, "tumour": 1600, "ignore": 3800}
