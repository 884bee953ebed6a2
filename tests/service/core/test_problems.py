import errno
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.service.small import error_of, serving, settings_of, upload

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import write_text
from ntrm.service.core.problems import document_of, is_full, missing, without_paths

pytestmark = pytest.mark.usefixtures("quick_readers")

TEXTS = [
    ("cannot read /srv/a b/c/done.json", "cannot read …"),
    ("/srv/out holds results of another run", "… holds results of another run"),
    ("[Errno 2] No such file: '/srv/Jane Doe.svs'", "[Errno 2] No such file: …"),
    ("0.5 µm/px, 1/4, application/json, TIFF/EP", "0.5 µm/px, 1/4, application/json, TIFF/EP"),
    ("ask /v1/slides; see https://example.org/a/b", "ask /v1/slides; see https://example.org/a/b"),
    ("in:/srv/x, then", "in:…, then"),
]


@pytest.mark.parametrize(("text", "shown"), TEXTS, ids=range(len(TEXTS)))
def test_paths_of_the_server_are_left_out_and_nothing_else_is(text, shown):
    assert without_paths(text) == shown


def test_no_field_of_an_error_tells_a_path():
    cause = PermissionError(13, "Permission denied", "/srv/x")
    error = RefusedError("cannot use /srv/x", got=cause, expected=Path("/srv/y"), hint="chmod 600 /srv/x")
    assert "/srv" not in str(document_of(error))
    assert document_of(DataError("a", got=cause))["error"]["got"] == "Permission denied"
    assert document_of(missing("a", "b"))["error"]["hint"] == "b"


def full_database():
    """The error that SQLite raises on a full disk."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("CREATE TABLE a (b)")
    return caught.value


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/srv/results/a")


def free(monkeypatch, count):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=count))


def test_a_full_disk_is_told_from_other_errors(tmp_path, monkeypatch):
    full = full_database()
    assert is_full(full)
    assert is_full(OSError(errno.EDQUOT, "quota"))
    for other in (OSError(errno.EACCES, "no"), sqlite3.OperationalError("locked"), missing("x"), ValueError(), None):
        assert not is_full(other)
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(DataError) as caught:
        write_text(tmp_path / "a.txt", "x")
    assert is_full(caught.value)


def test_health_tells_the_disk(tmp_path, model, monkeypatch):
    with serving(settings_of(tmp_path / "out", model, limits={"reserve_bytes": 2**30}), authorised=False) as client:
        for count, status, reason in (
            (2**31, "ok", "ok"),
            (2**29, "degraded", "disk_low"),
            (2**20, "degraded", "disk_full"),
        ):
            free(monkeypatch, count)
            health = client.get("/healthz").json()
            assert (health["status"], health["reason"]) == (status, reason)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: (_ for _ in ()).throw(FileNotFoundError()))
        assert client.get("/healthz").json()["reason"] == "disk_missing"


def test_a_write_that_fails_on_a_full_disk_is_answered_as_such_and_without_a_path(client, url, monkeypatch):
    drawn = {"action": "draw", "version": 0, "kind": "area", "points": [[5, 5], [30, 5], [30, 30]], "tissue": "SCC"}
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_space)
        answers = [upload(client, b"x"), client.post(url, json=drawn)]
    assert client.get(url).json()["version"] == 0
    assert client.post(url, json=drawn).status_code == 201
    monkeypatch.setattr(client.app_state.store, "waiting", lambda: (_ for _ in ()).throw(full_database()))
    answers.append(client.get("/v1/slides"))
    assert [error_of(answer) for answer in answers] == [(507, "disk_full")] * 3
    assert not any("/srv" in answer.text for answer in answers)
