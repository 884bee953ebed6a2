import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ntrm.core.errors import DataError
from ntrm.core.io import PARTIAL, check_writable, remove_partials, sha256_of, whole_file, write_json, write_text


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


def test_json_refuses_nan_and_keeps_order(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": "µm"})
    assert list(json.loads((tmp_path / "a.json").read_text())) == ["b", "a"]
    assert "µm" in (tmp_path / "a.json").read_text()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"a": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text())["b"] == 1


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
