import gzip
import json
import os
import shutil
import signal
import sys

import numpy as np
import pytest
import tifffile
from PIL import Image
from tests.evaluation.small import COLOURS, MPP, NAMES, ByColour
from tests.helpers import Terminal, wait_for
from tests.segment.small import BKG, document, fingerprints, paint, rows_of, run, write_slide

import ntrm
from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.results.documents import read_summary
from ntrm.segment.options import Options

pytestmark = pytest.mark.usefixtures("quick_readers")

EVERY = {"mask.ome.tif", "regions.geojson", "graph.json", "summary.json", "report.html"}
EVERY |= {"overlay.png", "slide.jpg", "thumbnail.jpg", ".ntrm/done.json", ".ntrm/pieces.npz"}


@pytest.fixture
def mask(random):
    return paint(random)


@pytest.fixture
def slide(tmp_path, mask):
    return write_slide(tmp_path / "in" / "a.tif", mask)


def test_a_slide_becomes_files_and_tables(tmp_path, slide, mask, monkeypatch):
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    found = run(slide, tmp_path / "out")
    assert "slides" in shown.getvalue(), "a terminal sees how far it is"
    assert found.exit_code == 0
    assert set(fingerprints(tmp_path / "out" / "a")) == EVERY
    stored = tifffile.imread(tmp_path / "out" / "a" / "mask.ome.tif", series=0)
    known = stored > 0
    np.testing.assert_array_equal(stored[known] - 1, mask[known])
    assert (mask[~known] == BKG).all()
    results = ntrm.read_results(tmp_path / "out")
    (row,) = results.slides
    pixel_mm2 = (MPP / 1000) ** 2
    for index, name in enumerate(NAMES):
        if name != "BKG":
            assert row[f"area_{name}_mm2"] == pytest.approx((mask == index).sum() * pixel_mm2)
    assert row["tissue_area_mm2"] == pytest.approx((mask != BKG).sum() * pixel_mm2)
    assert row["cancer_SCC"] is True
    assert len(results.pieces) == row["pieces"] == 1
    assert row["model_sha256"] == found.identity["model"]["sha256"]
    summary = document(tmp_path / "out" / "a")
    assert summary["model"] == found.identity["model"]
    assert summary["program"]["version"] == ntrm.__version__
    assert summary["grid"]["mpp"] == pytest.approx([MPP, MPP], rel=1e-3)


def test_what_fails_is_told_and_the_others_go_on(tmp_path, slide, random):
    table = tmp_path / "list.csv"
    (tmp_path / "broken.tif").write_bytes(slide.read_bytes()[:200])
    write_slide(tmp_path / "Jane Doe.tif", paint(random))
    table.write_text(
        "slide,slide_id,age\nbroken.tif,b,1\nin/a.tif,a,2\nnot there.tif,n,3\nJane Doe.tif,p7,04\n", encoding="utf-8"
    )
    found = run(table, tmp_path / "out")
    assert found.exit_code == 1
    rows = {row["slide_id"]: row for row in rows_of(tmp_path / "out")}
    assert {key: (row["status"], row["age"]) for key, row in rows.items()} == {
        "a": ("done", "2"), "b": ("failed", "1"), "n": ("failed", "3"), "p7": ("done", "04"),
    }  # fmt: skip
    assert rows["b"]["reason"]
    assert "No such file" in rows["n"]["reason"]
    assert {row["age"] for row in rows_of(tmp_path / "out", "pieces")} == {"2", "04"}
    # Fixed and run again, the failure is forgotten; the others are kept.
    (tmp_path / "broken.tif").write_bytes(slide.read_bytes())
    again = run(table, tmp_path / "out")
    assert [each.status for each in again.slides] == ["done", "kept", "failed", "kept"]
    assert rows_of(tmp_path / "out")[1]["status"] == "done"


def test_the_file_name_reaches_no_output(tmp_path, random):
    slide = write_slide(tmp_path / "in" / "Jane Doe.tif", paint(random))
    bad = tmp_path / "in" / "Jane Roe.tif"
    bad.write_bytes(b"II*\x00 Jane Roe")
    found = run([slide, bad], tmp_path / "out", pseudonymise=tmp_path / "key.csv")
    assert [each.status for each in found.slides] == ["done", "failed"]
    assert "Jane" not in json.dumps(found.as_dict())
    for path in (tmp_path / "out").rglob("*"):
        assert "Jane" not in path.name
        assert not path.is_file() or b"Jane" not in path.read_bytes(), path
    assert "Jane Doe" in (tmp_path / "key.csv").read_text()


def test_damage_is_mended_as_the_hint_says_and_corrections_stay(tmp_path, slide, random):
    run(slide, tmp_path / "out")
    before, folder = fingerprints(tmp_path / "out"), tmp_path / "out" / "a"
    (folder / "corrections.jsonl").write_text("a person's\n")
    (folder / "summary.json").write_text("{")
    with pytest.raises(DataError) as damaged:
        read_summary(folder)
    assert "delete .ntrm/done.json" in damaged.value.hint
    (folder / ".ntrm" / "done.json").unlink()
    assert run(slide, tmp_path / "out").slides[0].status == "done"
    assert (folder / "corrections.jsonl").read_text() == "a person's\n"
    assert fingerprints(tmp_path / "out").items() >= before.items()
    write_slide(slide, paint(random, width=140))
    assert (
        run(slide, tmp_path / "out")
        .slides[0]
        .reason.endswith("or delete a: with it goes what a person corrected (corrections.jsonl)")
    )


def test_other_options_another_model_or_another_file_do_not_mix(tmp_path, slide, random):
    run(slide, tmp_path / "out")
    before = fingerprints(tmp_path / "out")
    for other in ({"batch": 3}, {"overlap": 8}, {"min_area_um2": 100}, {"model": ByColour(classes=3)}):
        with pytest.raises(RefusedError, match="another run"):
            run(slide, tmp_path / "out", **other)
    assert run(slide, tmp_path / "out").slides[0].status == "kept"
    assert fingerprints(tmp_path / "out") == before
    write_slide(slide, paint(random, width=140))
    refused = run(slide, tmp_path / "out")
    assert refused.exit_code == 3
    assert "another file" in refused.slides[0].reason
    assert "a person" not in refused.slides[0].reason
    assert fingerprints(tmp_path / "out") == before, "what is finished stays in the tables"
    slide.unlink()  # a finished slide stays finished when its file has gone to the archive
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "mine.txt").touch()
    with pytest.raises(RefusedError, match="holds no results"):
        run(write_slide(slide, paint(random)), tmp_path / "strange")
    assert [path.name for path in (tmp_path / "strange").iterdir()] == ["mine.txt"]  # and nothing was left there


def test_um_per_pixel_are_never_guessed_and_given_for_some_take_nothing_from_slides_that_are_finished(
    tmp_path, slide, mask
):
    Image.fromarray(np.array(COLOURS, dtype=np.uint8)[mask]).save(slide.with_name("b.png"))
    first = run(slide.parent, tmp_path / "out")
    assert [each.status for each in first.slides] == ["done", "failed"]
    assert "--mpp" in first.slides[1].reason
    again = run(slide.parent, tmp_path / "out", mpp=MPP)
    assert [each.status for each in again.slides] == ["failed", "done"]
    assert again.exit_code == 1
    assert "a column mpp of a CSV" in again.slides[0].reason
    assert {row["slide_id"]: row["status"] for row in rows_of(tmp_path / "out")} == {"a": "done", "b": "done"}
    assert {row["slide_id"] for row in rows_of(tmp_path / "out", "pieces")} == {"a", "b"}
    (tmp_path / "list.csv").write_text(f"slide,mpp\nin/a.tif,\nin/b.png,{MPP}\n")
    assert [each.status for each in run(tmp_path / "list.csv", tmp_path / "out").slides] == ["kept", "kept"]


HOLDING = """
import sys, time
from pathlib import Path
from ntrm.results.slide_state import alone
with alone(Path(sys.argv[1])):
    Path(sys.argv[1], "held").touch()
    time.sleep(600)
"""


def test_a_slide_in_other_hands_is_left_alone(tmp_path, slide, forks):
    run(slide, tmp_path / "first")
    pid, held = forks.start(HOLDING, tmp_path / "out" / "a"), tmp_path / "out" / "a" / "held"
    wait_for("the lock", held.exists)
    held.unlink()
    shutil.copy(tmp_path / "first" / "run.json", tmp_path / "out")
    busy = run(slide, tmp_path / "out")
    os.kill(pid, signal.SIGKILL)
    assert forks.wait().status == -signal.SIGKILL
    assert [each.status for each in busy.slides] == ["busy"]
    assert busy.exit_code == 1
    assert run(slide, tmp_path / "out").slides[0].status == "done"
    assert fingerprints(tmp_path / "out") == fingerprints(tmp_path / "first")


def test_a_slide_whose_own_resolution_is_overruled_says_so(tmp_path, slide):
    done = run(slide, tmp_path / "out", mpp=MPP / 1.5)
    assert done.exit_code == 0
    said = f"the file says {MPP:g} µm/px, but {MPP / 1.5:g} µm/px was given and used"
    assert said in document(tmp_path / "out" / "a")["warnings"]
    assert said in done.as_dict()["slides"][0]["warnings"]
    assert said in rows_of(tmp_path / "out")[0]["warnings"]
    assert said in (tmp_path / "out" / "a" / "report.html").read_text()


def test_files_on_request(tmp_path, slide, mask):
    zarr = pytest.importorskip("zarr")
    found = run(slide, tmp_path / "out", zarr=True, gzip=True, simplify_um=5.0)
    assert found.exit_code == 0
    folder = tmp_path / "out" / "a"
    stored = zarr.open_group(folder / "labels.zarr", mode="r")["labels/tissue/0"][:]
    np.testing.assert_array_equal(stored, tifffile.imread(folder / "mask.ome.tif", series=0))
    document = json.loads(gzip.decompress((folder / "regions.geojson.gz").read_bytes()))
    rows = rows_of(tmp_path / "out", "regions")
    assert len(document["features"]) == len(rows)
    assert [int(row["region"]) for row in rows] == [*range(1, len(rows) + 1)]
    assert document["ntrm"]["model"]["sha256"] == found.identity["model"]["sha256"]


IMPOSSIBLE = [("tissue_mask", "no"), ("gzip", 1), ("report", None)]
IMPOSSIBLE += [("min_area_um2", value) for value in (-1, float("nan"), 20_001, "64", True)]


@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE)
def test_impossible_options_are_refused_before_anything_is_done(name, value):
    with pytest.raises(UsageError, match=f"{name} is a switch|least area in µm²") as refused:
        Options(**{name: value})
    assert str(value) in refused.value.got
