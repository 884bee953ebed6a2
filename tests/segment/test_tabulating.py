"""Tables of a folder in which not every slide's folder is as it was written."""

import json
import shutil

import pytest
from tests.segment.small import paint, rows_of, run, write_slide

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture
def slides(tmp_path, random):
    """Two slides that are finished, and the table that named them."""
    for name in ("a", "b"):
        write_slide(tmp_path / "in" / f"{name}.tif", paint(random))
    table = tmp_path / "list.csv"
    table.write_text("slide,age,site\nin/a.tif,54,face\nin/b.tif,71,back\n")
    run(table, tmp_path / "out")
    return table


def cells(out, *columns):
    return [tuple(row[column] for column in columns) for row in rows_of(out)]


def test_covariates_stay_where_the_input_says_nothing_of_them(tmp_path, slides):
    out = tmp_path / "out"
    run(tmp_path / "in", out)
    assert cells(out, "slide_id", "age", "site") == [("a", "54", "face"), ("b", "71", "back")]
    slides.write_text("slide,age,grade\nin/a.tif,55,2\nin/b.tif,,1\n")
    run(slides, out)
    expected = [("a", "55", "face", "2"), ("b", "", "back", "1")]
    assert cells(out, "slide_id", "age", "site", "grade") == expected


def test_a_damaged_record_is_one_slides_failure(tmp_path, slides):
    out = tmp_path / "out"
    record = out / "b" / ".ntrm" / "done.json"
    sound = record.read_bytes()
    record.write_bytes(sound[:100])
    assert run(tmp_path / "in" / "a.tif", out).exit_code == 0
    (a, status), (b, failed) = cells(out, "slide_id", "status")
    assert (a, status, b, failed) == ("a", "done", "b", "failed")
    told = "b: cannot read .ntrm/done.json; delete b/.ntrm/done.json, and run the same ntrm segment again"
    assert cells(out, "reason") == [("",), (told,)]
    record.unlink()
    run(tmp_path / "in", out)
    assert json.loads(record.read_bytes())["plan"] == json.loads(sound)["plan"]
    assert cells(out, "status") == [("done",), ("done",)]


def test_a_copy_counts_once_and_a_damaged_corrected_version_leaves_what_the_network_said(tmp_path, slides):
    out = tmp_path / "out"
    before = (out / "slides.csv").read_bytes()
    shutil.copytree(out / "b", out / "b_before_correction")
    (out / "a" / "corrected").mkdir()
    (out / "a" / "corrected" / "summary.json").write_text("{")
    found = run(tmp_path / "in", out)
    assert found.notes[-2:] == (
        "left out of the tables: the corrected version of a; a/corrected: cannot read summary.json; "
        "make it anew with `ntrm correct OUT --undo a`, then `ntrm correct OUT --redo a`",
        "left out of the tables: b_before_correction, a copy of the results of b",
    )
    assert (out / "slides.csv").read_bytes() == before
