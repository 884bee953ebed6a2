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
    with pytest.raises(DataError, match="no record of a slide") as caught:
        finished(folder)
    assert f"delete {folder.name}/.ntrm/done.json," in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "[]", "null"], ids=range(5))
@pytest.mark.parametrize("name", [DONE, FAILED])
def test_damaged_files_are_our_errors(folder, name, text):
    (folder / HIDDEN / name).write_text(text)
    with pytest.raises(DataError):
        remembered(folder)


def test_every_row_stands_on_a_line_of_its_own_whatever_its_texts_are(folder):
    texts = ["", '}, {"slide_id": "b"}', '"}, {"', "}, {", "a\nb", "\\", '\\"}, {"', "µ"]
    rows = tuple({"slide_id": text, "area_mm2": number / 3, "": None} for number, text in enumerate(texts))
    tables = {"slides": rows[:1], "pieces": (), "regions": rows, "interfaces": rows[:4]}
    remember(folder, SlideState(None, {}, tables))
    lines = (folder / HIDDEN / DONE).read_text(encoding="utf-8").splitlines()
    told = [json.dumps(row, ensure_ascii=False) for each in tables.values() for row in each]
    found = [line.rstrip(",") for line in lines if line.startswith('{"slide_id"')]
    assert [line.removesuffix("]").removesuffix("]}}") for line in found] == told
    assert finished(folder).tables == tables
