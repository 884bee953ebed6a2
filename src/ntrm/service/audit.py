"""What was done to slides, by when: lines that are only ever added. No names of files, no tokens, no addresses."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path


class Audit:
    """An append-only file of JSON lines; safe for several threads and processes."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = path

    def note(self, action: str, slide: str = "", outcome: str = "ok") -> None:
        """Add a line, on disk before this returns."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "action": action, "slide": slide, "outcome": outcome}) + "\n"
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # One call: lines of several processes never mix.
            os.write(descriptor, line.encode())
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
