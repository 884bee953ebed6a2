"""Slide files told apart by their content; needs nothing that segments, so that a web server can use it, too."""

from __future__ import annotations

import hashlib
from pathlib import Path

ENDS = 1 << 20
"""Bytes at either end of a file that tell it from others."""


def source_fingerprint(path: Path) -> str | None:
    """Tells one slide file from another without its name: size, first and last bytes; None where there is no file."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            digest = hashlib.sha256(str(size).encode())
            for start in (0, max(size - ENDS, 0)):
                stream.seek(start)
                digest.update(stream.read(ENDS))
    except OSError:
        return None
    return digest.hexdigest()
