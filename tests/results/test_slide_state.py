import json

import pytest

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.results.manifest import Manifest, check_out, check_results_folder, read_run
from ntrm.results.paths import DONE, FAILED, HIDDEN, RUN
from ntrm.results.slide_state import Plan, SlideState, finished, remember, remember_failure, remembered
from ntrm.version import __version__

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


MODEL = {"name": None, "arch": "unet", "version": "1", "sha256": "f00", "mpp": 6.7}
MINE = Manifest(model=MODEL, options={"gzip": False, "batch": 2}, classes=("EPI", "BKG"))


def test_a_new_folder_is_claimed_and_found_again_with_all_covariates(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert check_out(out) is None
    assert check_results_folder(out, MINE, ["age"]) == ("age",)
    assert check_results_folder(out, MINE, ["weight", "age"]) == ("age", "weight")
    written = (out / RUN).read_bytes()
    assert check_results_folder(out, MINE, []) == ("age", "weight")
    assert (out / RUN).read_bytes() == written
    assert read_run(out) == check_out(out)
    assert read_run(out).identity() == MINE.identity()
    assert [*json.loads(written)] == ["format", "program", "model", "options", "classes", "purpose", "covariates"]


def test_tables_name_the_model_or_its_architecture():
    assert [*MINE.cells().values()] == ["unet", "1", "f00", __version__]


def test_another_run_is_refused_with_what_differs(tmp_path):
    check_results_folder(tmp_path, MINE, [])
    model = {**MODEL, "sha256": "ba5", "stains": {"density": [0.1, 0.5, 0.2]}}
    other = Manifest(model=model, options={"gzip": True, "batch": 2}, classes=("EPI",))
    with pytest.raises(RefusedError, match="another run") as caught:
        check_results_folder(tmp_path, other, [])
    assert caught.value.got == (
        "classes ['EPI', 'BKG'], not ['EPI']; model sha256 'f00', not 'ba5'; other model stains; "
        "options gzip False, not True"
    )


def test_other_folders_and_files_are_refused(tmp_path):
    (tmp_path / "mine.txt").touch()
    for read in (check_out, read_run):
        with pytest.raises((RefusedError, UsageError), match="holds no results"):
            read(tmp_path)
    with pytest.raises(UsageError, match="not a folder"):
        check_out(tmp_path / "mine.txt")


def test_a_model_whose_name_is_no_plain_text_reaches_no_table(tmp_path):
    check_results_folder(tmp_path, MINE, [])
    document = json.loads((tmp_path / RUN).read_text())
    document["model"]["name"] = "a\x1b]0;b\x07"
    (tmp_path / RUN).write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"(?s)cannot read.*control characters"):
        check_out(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", "[" * 100_000, '{"covariates": 3}'], ids=range(7))
def test_a_damaged_record_of_a_run_is_our_error(tmp_path, text):
    (tmp_path / RUN).write_text(text)
    with pytest.raises(DataError, match="cannot read"):
        check_out(tmp_path)
    with pytest.raises(DataError, match="holds no results"):
        read_run(tmp_path)
