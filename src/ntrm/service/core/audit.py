"""Log of what was done to slides, and when. No names of files, no tokens, no addresses."""

from __future__ import annotations

import json
import logging
import os
import threading
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from ntrm.core.io import APPEND

_log = logging.getLogger(__name__)


class _File(RotatingFileHandler):
    """A file for nobody else, reached through no link."""

    def _open(self) -> TextIOWrapper:
        return os.fdopen(os.open(self.baseFilename, APPEND, 0o600), "a", encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        _log.warning("a line of the audit log could not be written", exc_info=True)


class Audit:
    """A file of JSON lines; a full one becomes ``audit.jsonl.1``, and so on, and the oldest of ten is dropped."""

    def __init__(self, path: Path) -> None:
        self._file = _File(path, maxBytes=8 * 2**20, backupCount=9, delay=True)
        self._refusals = 0
        self._lock = threading.Lock()

    def note(self, action: str, slide: str = "", outcome: str = "ok") -> None:
        """Add a line; what does not fit on a full disk follows with the next one."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "action": action, "slide": slide, "outcome": outcome})
        self._file.handle(logging.makeLogRecord({"msg": line}))

    def count_refusal(self) -> None:
        """Count a refused sign-in: anybody can cause one, and must not fill the disk that way."""
        with self._lock:
            self._refusals += 1

    def note_refusals(self) -> None:
        """Write one line for all sign-ins refused since the last such line."""
        with self._lock:
            count, self._refusals = self._refusals, 0
        if count:
            self.note("open", outcome="refused" if count == 1 else f"refused {count} times")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
