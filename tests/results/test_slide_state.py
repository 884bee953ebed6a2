import json

import pytest

from ntrm.core.errors import DataError
from ntrm.results.paths import DONE, FAILED, HIDDEN
from ntrm.results.slide_state import Plan, SlideState, finished, remember, remember_failure, remembered

TABLES = {"slides": ({"slide_id": "a", "status": "done"},), "regions": ({"tissue": "EPI"},)}
STATE = SlideState(Plan("a", "f00", (0.5, 0.5), None), {"age": "54"}, TABLES)


@pytest.fixture
def folder(tmp_path):
    remember(tmp_path / "a", STATE)
    return tmp_path / "a"


def test_results_and_failures_are_remembered(folder, tmp_path):
    assert finished(folder) == remembered(folder) == STATE
    assert STATE.row is TABLES["slides"][0]
    assert finished(tmp_path) is remembered(tmp_path) is None
    remember_failure(folder, "a", "the disk was full", {"age": "55"})
    row = {"slide_id": "a", "status": "failed", "reason": "the disk was full"}
    assert remembered(folder) == SlideState(None, {"age": "55"}, {"slides": (row,)})
    assert finished(folder) == STATE
    remember(folder, STATE)
    assert remembered(folder) == STATE


WRONG = ({}, {"plan": 3}, {"covariates": []}, {"tables": {}}, {"tables": {"slides": []}}, {"tables": {"slides": [3]}})


@pytest.mark.parametrize("wrong", WRONG, ids=json.dumps)
def test_what_is_no_record_is_said_with_what_to_do(folder, wrong):
    sound = json.loads((folder / HIDDEN / DONE).read_text())
    (folder / HIDDEN / DONE).write_text(json.dumps({**sound, **wrong} if wrong else wrong))
    with pytest.raises(DataError, match="cannot read") as caught:
        finished(folder)
    assert f"delete {folder.name}/.ntrm/done.json," in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "null"], ids=range(5))
@pytest.mark.parametrize("name", [DONE, FAILED])
def test_damaged_files_are_our_errors(folder, name, text):
    (folder / HIDDEN / name).write_text(text)
    with pytest.raises(DataError):
        remembered(folder)
