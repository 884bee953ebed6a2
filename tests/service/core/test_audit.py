import errno
import json
import os
import re
import threading

import pytest
from tests.service.small import serving, settings_of

from ntrm.service.core.audit import Audit
from ntrm.service.core.settings import AUDIT

pytestmark = pytest.mark.usefixtures("quick_readers")


def lines_of(*paths):
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_openings_that_are_refused_are_counted_and_not_written_one_by_one(tmp_path, model):
    settings = settings_of(tmp_path / "out", model)
    with serving(settings, authorised=False) as client:
        for _ in range(50):
            assert client.get("/open/x").status_code == 303
    outcomes = [line["outcome"] for line in lines_of(settings.hidden / AUDIT) if line["action"] == "open"]
    # One a minute, and one at the end.
    assert len(outcomes) < 10
    assert sum(int((re.findall("[0-9]+", text) or ["1"])[0]) for text in outcomes) == 50


def test_the_log_is_moved_on_when_it_is_full_whoever_writes(tmp_path):
    path = tmp_path / AUDIT
    audits = [Audit(path, most_bytes=2000, kept=30) for _ in range(4)]

    def write(audit):
        for number in range(25):
            audit.note("cancel", f"slide-{number}")

    threads = [threading.Thread(target=write, args=(audit,)) for audit in audits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = list(tmp_path.glob("audit*.jsonl"))
    assert len(files) > 4
    assert all(file.stat().st_size <= 2000 for file in files)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert sorted(line["slide"] for line in lines_of(*files)) == sorted(4 * [f"slide-{n}" for n in range(25)])


def test_the_oldest_lines_go(tmp_path):
    audit = Audit(tmp_path / AUDIT, most_bytes=200, kept=2)
    for number in range(20):
        audit.note("link", str(number))
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["audit.1.jsonl", "audit.2.jsonl", AUDIT]
    newest = [line["slide"] for line in lines_of(*(tmp_path / f"audit{n}.jsonl" for n in (".2", ".1", "")))]
    assert newest == [str(number) for number in range(20 - len(newest), 20)]


def test_a_full_disk_gets_its_lines_later_and_none_by_halves(tmp_path, monkeypatch):
    audit, write = Audit(tmp_path / AUDIT), os.write

    def half(descriptor, content):
        if len(content) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[: len(content) // 2])

    audit.note("start")
    monkeypatch.setattr(os, "write", half)
    audit.note("delete", "a")
    audit.note("delete", "b")
    assert len(lines_of(tmp_path / AUDIT)) == 1
    monkeypatch.undo()
    audit.note("stop")
    assert [line["action"] for line in lines_of(tmp_path / AUDIT)] == ["start", "delete", "delete", "stop"]
