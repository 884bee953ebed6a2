import csv
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.errors import UsageError
from ntrm.results.documents import read_summary
from ntrm.results.manifest import Manifest
from ntrm.results.paths import RUN
from ntrm.results.tables import COLUMNS, FOOT, read_results, slide_row, write_tables

DONE = {"slide_id": "a", "status": "done", "pieces": 2, "tissue_area_mm2": 1 / 3, "area_BCC_mm2": 0.25, "age": "007"}
FAILED = {"slide_id": "1e5", "status": "failed", "reason": 'it said "no", twice\nand left', "age": "8"}
PIECES = [{"slide_id": "a", "piece": k, "touches_edge": k == 1, "orientation_reason": None} for k in (1, 2)]


def write_run(out, *covariates):
    run = Manifest(model={"name": "m"}, options={}, classes=("BCC",), covariates=covariates)
    (out / RUN).write_text(json.dumps(run.as_dict()))


@pytest.fixture
def out(tmp_path):
    documents = [{"slides": [FAILED]}, {"slides": [DONE], "pieces": PIECES}]
    write_tables(tmp_path, documents, ["age", "weight"])
    write_run(tmp_path, "age", "weight")
    return tmp_path


def test_files_have_fixed_columns_first_then_classes_covariates_and_the_model(out):
    for name, columns in COLUMNS.items():
        with (out / f"{name}.csv").open(newline="") as stream:
            head, *rows = csv.reader(stream)
        assert tuple(head) == (*columns, *(["area_BCC_mm2"] * (name == "slides")), "age", "weight", *FOOT)
        assert len(rows) == {"slides": 2, "pieces": 2}.get(name, 0)


def test_what_was_written_is_read(out):
    results = read_results(out)
    assert results.run["model"]["name"] == "m"
    assert [results.slides.column("slide_id"), results.slides.column("age")] == [["1e5", "a"], ["8", "007"]]
    done = results.slides.rows[1]
    assert done["tissue_area_mm2"] == pytest.approx(1 / 3, rel=1e-8)
    assert done["area_BCC_mm2"] == 0.25
    assert done["pieces"] == 2
    assert results.slides.rows[0]["pieces"] is None
    assert results.slides.rows[0]["reason"] == FAILED["reason"]
    assert results.pieces.column("touches_edge") == [True, False]
    assert len(results.regions) == 0
    with pytest.raises(UsageError, match="no such column"):
        results.pieces.column("nonsense")


@given(st.text(st.sampled_from("=+-@'\t\r\n\",0_.e ") | st.characters(codec="utf-8"), min_size=1))
def test_any_text_comes_back_and_no_cell_begins_another_row(tmp_path_factory, text):
    out = tmp_path_factory.mktemp("results")
    row = {"slide_id": "a", "status": text, "reason": text, "model_name": text, "note": f"x{text}"}
    write_tables(out, [{"slides": [row, {"slide_id": "b", "note": "y"}]}], ["note"])
    write_run(out, "note")
    first, second = read_results(out).slides
    assert {key: first[key] for key in row} == row
    assert (second["slide_id"], second["note"]) == ("b", "y")


@pytest.mark.parametrize("codes", [["007", "8"], ["1_2", "1_3"], ["٣"], ["true", "yes"], ["+5"], ["1.", "2"]])
def test_codes_of_the_user_stay_texts(tmp_path, codes):
    write_tables(tmp_path, [{"slides": [{"slide_id": str(k), "code": code}]} for k, code in enumerate(codes)], ["code"])
    write_run(tmp_path, "code")
    assert read_results(tmp_path).slides.column("code") == codes


def test_a_cancer_that_was_not_assessed_leaves_its_column_readable(tmp_path):
    cells = [(True, 0.9), ("not assessed", "not assessed"), (False, 0.1)]
    keys = ("slide_id", "cancer_BCC", "cancer_BCC_confidence", "site")
    slides = [dict(zip(keys, (str(k), *pair, "not assessed"), strict=True)) for k, pair in enumerate(cells)]
    write_tables(tmp_path, [{"slides": slides}], ["site"])
    write_run(tmp_path, "site")
    read = read_results(tmp_path).slides
    assert read.column("cancer_BCC") == [True, None, False]
    assert read.column("cancer_BCC_confidence") == [0.9, None, 0.1]
    assert read.column("site") == ["not assessed"] * 3


def test_the_row_of_a_slide_has_the_pixels_of_its_mask(results):
    """They are the slide's own where these are the model's but for the rounding of a tag."""
    summary = read_summary(results / "one")
    summary = replace(summary, grid=replace(summary.grid, mpp=(6.75, 6.75)))
    assert summary.model["mpp"] != 6.75
    assert slide_row(summary)["mask_mpp_um"] == pytest.approx(6.75, rel=1e-12)
