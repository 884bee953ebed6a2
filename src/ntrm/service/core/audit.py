"""Log of what was done to slides, and when. No names of files, no tokens, no addresses."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from ntrm.core.io import APPEND


class Audit(RotatingFileHandler):
    """JSON lines for nobody else; a full file becomes ``audit.jsonl.1`` and so on, the oldest of ten is dropped."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=8 * 2**20, backupCount=9, delay=True)
        self.refusals = 0
        """Sign-ins refused since the last line about them: anybody can cause one, and must not fill the disk so."""

    def _open(self) -> TextIOWrapper:
        return os.fdopen(os.open(self.baseFilename, APPEND, 0o600), "a", encoding="utf-8")

    def note(self, action: str, slide: str = "", outcome: str = "ok") -> None:
        """Add a line; one that cannot be written is reported on stderr."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "action": action, "slide": slide, "outcome": outcome})
        self.handle(logging.makeLogRecord({"msg": line}))

    def note_refusals(self) -> None:
        """Write one line for all sign-ins refused since the last such line."""
        count, self.refusals = self.refusals, 0
        if count:
            self.note("open", outcome="refused" if count == 1 else f"refused {count} times")
