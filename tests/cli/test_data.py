"""``ntrm phantom`` and ``ntrm data``."""

import json

import numpy as np
import pytest
from PIL import Image
from tests.data.broken import broken_plain, sound_queensland
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.core.labels import SKIN
from ntrm.core.mpp import level_resolution
from ntrm.data.image_files import write_image, write_rgb_mask
from ntrm.data.split import read_split

runner = CliRunner()
SMALL = "27"  # Seed of a phantom whose first two sections are small


def test_phantom_check_stats_in_a_row(tmp_path):
    out = str(tmp_path / "p")
    drawn = runner.invoke(app, ["phantom", out, "--sections", "2", "--seed", SMALL, "--jobs", "1", "--json"])
    assert drawn.exit_code == 0, drawn.stderr
    assert json.loads(drawn.stdout)["drawn"] == 2
    assert runner.invoke(app, ["data", "check", out, "--jobs", "1"]).exit_code == 0
    stats = json.loads(runner.invoke(app, ["data", "stats", out, "--jobs", "1", "--json"]).stdout)
    assert stats["sections"] == 2
    assert sum(stats["pixel_share"].values()) == pytest.approx(1)
    assert {"classes", "boundary_share", "tissues_per_tile"} <= stats.keys()
    again = runner.invoke(app, ["phantom", out, "--sections", "3", "--seed", SMALL, "--jobs", "1"])
    assert again.exit_code == 3
    assert "other options" in again.stderr


def check(*arguments):
    return runner.invoke(app, ["data", "check", *map(str, arguments), "--jobs", "1"], env={"COLUMNS": "200"})


def test_what_is_checked_is_told(tmp_path):
    clean = check(sound_queensland(tmp_path / "sound"))
    assert clean.exit_code == 0, clean.output
    assert "clean" in clean.stdout
    assert "10x: 2 sections at 6.7 µm/px" in clean.stdout
    (tmp_path / "sound/data/10x/Images/[bold]x[green].txt").write_text("")
    assert "[bold]x[green].txt" in check(tmp_path / "sound").stdout
    (tmp_path / "broken").mkdir()
    expected = broken_plain(tmp_path / "broken")
    result = check(tmp_path / "broken", "--json")
    document = json.loads(result.stdout)
    assert (result.exit_code, document["clean"]) == (1, False)
    assert {(fault["code"], fault["file"]) for fault in document["faults"]} == expected


def feature(geometry, **facts):
    return {"type": "Feature", "geometry": geometry, "properties": facts}


SQUARE = {"type": "Polygon", "coordinates": [[[10, 10], [50, 10], [50, 50], [10, 50], [10, 10]]]}


@pytest.fixture
def files(tmp_path):
    Image.fromarray(np.full((60, 90, 3), 180, dtype=np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "a.geojson").write_text(json.dumps(feature(SQUARE, classification="Tumour")))
    (tmp_path / "map.csv").write_text("from,to\nTumour,BCC\n")
    (tmp_path / "cases.csv").write_text("slide,patient,split,mpp\na.png,P1,test,0.67\n")
    return tmp_path


@pytest.fixture
def import_from(files):
    """The command on these files."""
    paths = ["data", "import", str(files / "a.png"), str(files / "a.geojson"), "--out", str(files / "out")]
    return lambda *options: runner.invoke(app, [*paths, *map(str, options)])


def test_an_import_is_one_document_or_a_table(files, import_from):
    words = "--map", files / "map.csv"
    told = import_from(*words, "--cases", files / "cases.csv", "--target-mpp", 1.34, "--json")
    assert told.exit_code == 0, told.output
    (case,) = json.loads(told.stdout)["imported"]
    assert (case["pixels"]["BCC"], case["mpp"], case["group"], case["split"]) == (400, 1.34, "P1", "test")
    again = import_from(*words, "--cases", files / "cases.csv", "--target-mpp", 1.34)
    assert all(text in again.stdout for text in ("BCC", "there already"))
    assert (again.exit_code, "annotations" in again.stderr) == (0, False)
    assert import_from(*words).exit_code == 3  # no µm/px


def test_annotations_that_are_not_as_drawn_and_failures_are_told(files, import_from):
    wide = {"type": "Polygon", "coordinates": [[[50, 10], [99, 10], [99, 30], [50, 10]]]}
    speck = {"type": "Polygon", "coordinates": [[[5.1, 5.1], [5.3, 5.1], [5.3, 5.3], [5.1, 5.1]]]}
    drawn = SQUARE, {"type": "Point", "coordinates": [1, 1]}, wide, speck
    features = [feature(SQUARE), *(feature(each, classification="Tumour") for each in drawn)]
    (files / "a.geojson").write_text(json.dumps(features))
    failed = import_from("--mpp", 1, "--json")
    assert (failed.exit_code, "--map" in failed.stderr) == (1, True)
    assert json.loads(failed.stdout)["failures"][0]["got"] == "Tumour"
    words = "--map", files / "map.csv", "--mpp", 1
    told = "a: annotations left out or changed: 1 without a class, 1 on no pixel of the mask, 1 as point or line"
    assert told in " ".join(import_from(*words).stderr.split())
    assert "left out" not in import_from(*words, "--quiet").output


def test_levels_are_written_once(tmp_path):
    root = tmp_path / "in" / "2x"
    write_image(root / "Images" / "BCC_1.tif", np.full((50, 40, 3), 200, dtype=np.uint8), level_resolution("2x"))
    write_rgb_mask(root / "Masks" / "BCC_1.png", np.zeros((50, 40), dtype=np.uint8), SKIN)
    words = ["data", "resample", str(root.parent), "--to", "5x,10x", "--out", str(tmp_path / "out"), "--jobs", "1"]
    first = json.loads(runner.invoke(app, [*words, "--json"]).stdout)
    assert (first["written"], first["skipped"], first["levels"]) == (4, 0, ["10x", "5x"])
    assert "0 files written (4 were there already)" in runner.invoke(app, words).stdout.replace("\n", " ")


def test_the_split_is_told_and_kept(tmp_path):
    for number in range(20):
        path = tmp_path / "in" / "10x" / "Masks" / f"{'BCC' if number % 2 else 'IEC'}_{60 + number}.png"
        write_rgb_mask(path, np.zeros((3, 3), dtype=np.uint8), SKIN)
    out, words = tmp_path / "split.csv", ["data", "split", str(tmp_path / "in"), "--fractions", "60,20,20", "--out"]
    document = json.loads(runner.invoke(app, [*words, str(out), "--seed", "5", "--json"]).stdout)
    assert document["sections"] == {"train": 12, "val": 4, "test": 4}
    assert document["cancers"]["train"] == {"BCC": 6, "IEC": 6}
    again = runner.invoke(app, [*words, str(out), "--seed", "9"])
    assert (again.exit_code, "IEC" in again.stdout) == (0, True)
    assert "20 of 20 sections kept" in again.stderr
    assert read_split(out).by_name == document["split"]
    assert runner.invoke(app, [*words, str(out), "--seed", "9", "--anew"]).exit_code == 3


def test_statistics_are_a_table_and_a_picture(tmp_path):
    mask = np.full((12, 12), SKIN.index("BKG"), dtype=np.uint8)
    mask[:9] = SKIN.index("RET")
    for level in ("5x", "10x"):
        write_rgb_mask(tmp_path / "in" / level / "Masks" / "BCC_1.png", mask, SKIN)
    words, figure = ["data", "stats", str(tmp_path / "in"), "--jobs", "1"], tmp_path / "stats.png"
    result = runner.invoke(app, [*words, "--resolution", "5x", "--figure", str(figure)])
    assert result.exit_code == 0
    assert all(text in result.stdout for text in ("reticular dermis", "BKG 100%"))
    assert figure.read_bytes().startswith(b"\x89PNG")
    refused = runner.invoke(app, words)
    assert (refused.exit_code, "--resolution" in refused.stderr) == (3, True)
    for wrong, code in (("stats.gif", 2), (tmp_path / "in" / "stats.png", 3)):
        assert runner.invoke(app, [*words, "--resolution", "5x", "--figure", str(wrong)]).exit_code == code
