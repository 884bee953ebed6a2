import csv
import json

import pytest

from ntrm.errors import DataError, UsageError
from ntrm.slide.tables import COLUMNS, FOOT, RUN, read_results, write_tables

DONE = {"slide_id": "a", "status": "done", "pieces": 2, "tissue_area_mm2": 1 / 3, "area_BCC_mm2": 0.25, "age": "007"}
FAILED = {"slide_id": "1e5", "status": "failed", "reason": 'it said "no", twice\nand left', "age": "8"}
PIECES = [{"slide_id": "a", "piece": k, "touches_edge": k == 1, "orientation_reason": None} for k in (1, 2)]


@pytest.fixture
def out(tmp_path):
    documents = [{"slides": [FAILED]}, {"slides": [DONE], "pieces": PIECES}]
    write_tables(tmp_path, documents, ["age", "weight"])
    (tmp_path / RUN).write_text(json.dumps({"covariates": ["age", "weight"], "model": {"name": "m"}}))
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


def test_data_frames_where_pandas_is_there(out):
    pandas = pytest.importorskip("pandas", reason="pandas is not part of the package")
    frame = read_results(out).slides.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["area_BCC_mm2"].sum() == 0.25


def test_what_is_no_folder_of_results_is_said(tmp_path):
    with pytest.raises(DataError, match="no results"):
        read_results(tmp_path)


@pytest.mark.parametrize("text", ["[]", "{", "3", '{"covariates": 3}', "[" * 100_000], ids=range(5))
def test_a_damaged_record_of_the_run_is_said(out, text):
    (out / RUN).write_text(text)
    with pytest.raises(DataError, match="no results"):
        read_results(out)
