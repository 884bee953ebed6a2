"""Files written whole or not at all, and CSV text that no spreadsheet computes."""

import csv
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.core import io as module
from ntrm.core.errors import DataError
from ntrm.core.io import (
    PARTIAL,
    by_column,
    check_writable,
    guarded,
    original,
    read_arrays,
    read_rows,
    remove_partials,
    rows_text,
    sha256_of,
    whole_file,
    write_arrays,
    write_columns,
    write_json,
    write_text,
)


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def write_half():
        with whole_file(path) as partial:
            partial.write_text("half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_the_old_file_and_a_recognisable_rest(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    code = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from ntrm.core.io import whole_file
        with whole_file(Path(sys.argv[1])) as partial:
            partial.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(list(tmp_path.glob(f"{PARTIAL}*"))) == 1
    assert remove_partials(tmp_path) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_what_another_process_is_writing_is_no_rest(tmp_path):
    with whole_file(tmp_path / "a.txt") as partial:
        partial.write_text("new")
        assert remove_partials(tmp_path) == 0
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_a_full_disk_is_a_clear_error(tmp_path, monkeypatch):
    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(DataError, match="No space left") as caught:
        write_text(tmp_path / "a.txt", "x")
    assert "free space" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_files_get_the_mode_of_the_users_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@settings(deadline=None)
@given(document=JSON, rows=st.lists(st.dictionaries(st.text(), st.text() | st.floats(0, 1)), min_size=1))
def test_json_is_indented_as_the_library_does_it(tmp_path_factory, document, rows):
    path = tmp_path_factory.getbasetemp() / "indented.json"
    for each in (document, rows, {"rows": tuple(rows), "all": [document, rows]}):
        write_json(path, each)
        assert path.read_text(encoding="utf-8") == json.dumps(each, indent=2, ensure_ascii=False) + "\n"


def test_many_rows_are_indented_as_the_library_does_it(tmp_path, monkeypatch):
    rows = [{"name": f"}},\n  {{{number}", "µm": number / 7, "last": None} for number in range(25)]
    for together in (1, 7, 25, 1000):
        monkeypatch.setattr(module, "_ROWS", together)
        write_json(tmp_path / "a.json", {"rows": rows})
        assert json.loads((tmp_path / "a.json").read_text()) == {"rows": rows}
        wanted = json.dumps({"rows": rows}, indent=2, ensure_ascii=False) + "\n"
        assert (tmp_path / "a.json").read_text() == wanted


def test_json_refuses_nan_and_keeps_order(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "µm"})
    assert list(json.loads((tmp_path / "a.json").read_text())) == ["b", "a"]
    assert "µm" in (tmp_path / "a.json").read_text()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text())["b"] == 1


def test_numbers_of_numpy_are_written_as_numbers(tmp_path):
    document = {"seed": np.int64(3), "nested": [{"width": np.float32(0.125)}, [np.uint8(7)]]}
    write_json(tmp_path / "a.json", document)
    assert json.loads((tmp_path / "a.json").read_text()) == {"seed": 3, "nested": [{"width": 0.125}, [7]]}
    for unknown in (tmp_path, {1}):
        with pytest.raises(TypeError, match="cannot be written as JSON"):
            write_json(tmp_path / "b.json", {"value": unknown})


def test_sha256_is_the_known_one(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_folder_is_no_name_of_a_file(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(DataError, match="the name of a file"):
        write_text(tmp_path / "there", "text")
    assert [*tmp_path.rglob("*")] == [tmp_path / "there"]


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
    check_writable(tmp_path)
    check_writable(tmp_path / "new" / "below")
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="is no folder"):
        check_writable(tmp_path / "file" / "below")
    asked = []
    # Whoever runs the tests may be allowed everything.
    monkeypatch.setattr(os, "access", lambda path, mode: bool(asked.append((path, mode))))
    with pytest.raises(DataError, match="no permission"):
        check_writable(tmp_path / "new" / "below")
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]


def test_a_private_file_is_at_no_moment_readable_for_others(tmp_path, monkeypatch):
    modes = []
    replace = Path.replace

    def watched(self, target):
        modes.append(stat.S_IMODE(self.stat().st_mode))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_text(tmp_path / "key.csv", "a", private=True)
    write_text(tmp_path / "table.csv", "a")
    assert modes[0] == stat.S_IMODE((tmp_path / "key.csv").stat().st_mode) == 0o600
    assert modes[1] & 0o400


# --- CSV ---

STARTS = "=+-@\t\r\n＝＋－＠"
FORMULAS = ["=1+1", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "=", "-A", "+49 7", "-inf", "－1+1"]
TEXTS = st.text(st.sampled_from(STARTS + "'\", \r\nä019.eE") | st.characters(codec="utf-8"), max_size=12)


def read_by_others(text):
    """What any other program reads."""
    return [*csv.reader(io.StringIO(text, newline=""))]


@pytest.mark.parametrize("text", FORMULAS)
def test_what_a_spreadsheet_would_compute_gets_an_apostrophe(text):
    assert read_by_others(rows_text([[text, "x"]])) == [[f"'{text}", "x"]]


@pytest.mark.parametrize(
    "text", ["-1", "-1.5", "+2", "-1e-05", "-1,5", "-", "++", "+++", "BCC", "'tis", "", "a=b", "1-2"]
)
def test_numbers_grades_and_other_texts_stay_as_they_are(text):
    assert guarded(text) == original(text) == text


def test_numbers_that_are_no_texts_stay_as_they_are():
    assert rows_text([[-1, -0.5, -1e-300, float("-inf"), None, True]]) == "-1,-0.5,-1e-300,-inf,,True\n"


@settings(max_examples=50)
@given(st.lists(st.lists(TEXTS, min_size=1, max_size=3), max_size=3))
def test_every_text_comes_back_and_none_begins_like_a_formula(rows):
    text = rows_text(rows)
    assert [*read_rows(io.StringIO(text, newline=""))] == rows
    cells = [cell for row in read_by_others(text) for cell in row]
    assert len(cells) == sum(map(len, rows))
    for cell in cells:
        assert cell[:1] not in STARTS or re.fullmatch(r"[+-]*[0-9.,]*([eE][+-]?[0-9]+)?", cell)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=4))
def test_columns_are_written_as_their_rows(rows):
    stream = io.StringIO()
    write_columns(stream, [[row[0] for row in rows], [row[1] for row in rows]])
    assert stream.getvalue() == rows_text(rows)


@given(TEXTS)
def test_guarding_twice_is_undone_twice(text):
    assert original(original(guarded(guarded(text)))) == text


def test_blanks_go_before_the_apostrophe_is_looked_for():
    assert [*read_rows([" '=a , b,c\n", "\n", " 'tis\n"], strip=True)] == [["=a", "b", "c"], ["'tis"]]


def test_a_short_row_has_empty_cells_and_a_long_one_loses_what_has_no_column():
    assert by_column("ab", ["1"]) == {"a": "1", "b": ""}
    assert by_column("ab", ["1", "2", "3"]) == {"a": "1", "b": "2"}


def test_arrays_are_written_the_same_every_time_and_read_however_they_were_compressed(tmp_path, random):
    arrays = {
        "labels": np.repeat(random.integers(0, 9, (40, 30), dtype=np.uint16), 7, axis=1),
        "one": np.array(2.5),
        "none": np.zeros((0, 4)),
        "texts": np.array(["a", "µm"]),
    }
    paths = [tmp_path / f"{name}.npz" for name in ("ours", "again", "numpy", "stored")]
    for path in paths[:2]:
        write_arrays(path, arrays)
    np.savez_compressed(paths[2], **arrays)
    np.savez(paths[3], **arrays)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    for path in paths:
        found = read_arrays(path, hint="")
        assert [*found] == [*arrays]
        assert all(np.array_equal(found[name], array) for name, array in arrays.items())
        assert all(found[name].dtype == array.dtype for name, array in arrays.items())
