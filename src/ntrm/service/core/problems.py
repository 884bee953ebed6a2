"""Errors as HTTP answers: a status and one JSON document that says what, got, expected and how to fix it."""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from ntrm.core.errors import NtrmError, RefusedError, UsageError

_QUOTED_PATH = re.compile(r"""(['"])/.*?\1""")
_PATH = re.compile(r"""(?<![\w.…/])/(?!/|v1/)(?:[^\n'";]*/)?[^\s'":;,]+""")
"""Up to the last slash, since folders have names with spaces; not the addresses of a service."""
_DATABASE_FULL = (
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_CANTOPEN,
)  # fmt: skip
"""SQLite reports a full disk, or that its log or its shared memory could not be written."""


class ProblemError(NtrmError):
    """An error with its HTTP status and a fixed word (``code``) for programs."""

    def __init__(
        self, status: int, code: str, what: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(what, **more)
        self.status, self.code, self.headers = status, code, dict(headers or {})
        self.more: dict[str, Any] = {}  # Further fields of the document


def missing(what: str, hint: str = "") -> ProblemError:
    """404."""
    return ProblemError(404, "not_found", what, hint=hint)


def conflict(what: str, **more: Any) -> ProblemError:
    """409: not in this state."""
    return ProblemError(409, "conflict", what, **more)


def busy(what: str, hint: str = "try again in a moment") -> ProblemError:
    """503, with the advice to come back."""
    return ProblemError(503, "busy", what, hint=hint, headers={"Retry-After": "2"})


def is_full(error: BaseException | None) -> bool:
    """Whether an error means that the disk is full; our own errors are judged by their cause."""
    if isinstance(error, NtrmError):
        return is_full(error.__cause__)
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) in _DATABASE_FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_full() -> ProblemError:
    """507."""
    hint = "delete slides, or ask whoever runs the service"
    return ProblemError(507, "disk_full", "the disk has no room for it", hint=hint)


def document_of(error: NtrmError) -> dict[str, Any]:
    """The JSON document of any of our errors."""
    kinds = {ProblemError: getattr(error, "code", ""), UsageError: "usage", RefusedError: "refused"}
    code = next((code for kind, code in kinds.items() if isinstance(error, kind)), "unreadable")
    fields = {"what": error.what, "got": error.got, "expected": error.expected, "hint": error.hint or None}
    body = {key: None if value is None else without_paths(value) for key, value in fields.items()}
    return {"error": {**body, "code": code, **getattr(error, "more", {})}}


def without_paths(value: object) -> str:
    """Text for others, with … for paths: these say how the server is built, and whose slides lie there.

    >>> without_paths("cannot write /home/Jane Doe/out/a.jpg; ask /v1/slides"), without_paths(PurePath("/srv/x"))
    ('cannot write …; ask /v1/slides', '…')
    >>> without_paths(OSError(28, "No space left on device", "/srv/x"))
    'No space left on device'
    """
    if isinstance(value, PurePath):
        return "…"
    text = str((isinstance(value, OSError) and value.strerror) or value)
    return _PATH.sub("…", _QUOTED_PATH.sub("…", text))
