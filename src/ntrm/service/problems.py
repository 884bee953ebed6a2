"""Errors as HTTP answers: a status and one JSON document that says what, got, expected and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ntrm.errors import NtrmError, RefusedError, UsageError

UNPROCESSABLE = 422


class ProblemError(NtrmError):
    """An error with its HTTP status and a fixed word (``code``) for programs."""

    def __init__(
        self,
        status: int,
        code: str,
        what: str,
        *,
        got: object = None,
        expected: object = None,
        mend: str = "",
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(what, got=got, expected=expected, mend=mend)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})
        self.more = dict(more or {})
        """Further fields of the document."""


def missing(what: str, mend: str = "") -> ProblemError:
    """404."""
    return ProblemError(404, "not_found", what, mend=mend)


def conflict(what: str, *, got: object = None, expected: object = None, mend: str = "") -> ProblemError:
    """409: not in this state."""
    return ProblemError(409, "conflict", what, got=got, expected=expected, mend=mend)


def busy(what: str, mend: str = "try again in a moment") -> ProblemError:
    """503, with the advice to come back."""
    return ProblemError(503, "busy", what, mend=mend, headers={"Retry-After": "2"})


def document_of(error: NtrmError, code: str | None = None) -> dict[str, Any]:
    """The JSON document of any of our errors."""
    fields = {"what": error.what, "got": error.got, "expected": error.expected, "mend": error.mend or None}
    body = {key: None if value is None else str(value) for key, value in fields.items()}
    named = code or (error.code if isinstance(error, ProblemError) else _kind(error))
    more = error.more if isinstance(error, ProblemError) else {}
    return {"error": {**body, "code": named, **more}}


def status_of(error: NtrmError) -> int:
    """The HTTP status of any of our errors."""
    if isinstance(error, ProblemError):
        return error.status
    return 400 if isinstance(error, UsageError) else UNPROCESSABLE


def _kind(error: NtrmError) -> str:
    if isinstance(error, UsageError):
        return "usage"
    return "refused" if isinstance(error, RefusedError) else "unreadable"
