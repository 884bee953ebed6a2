"""Files told apart by their content, as results remember them."""

from __future__ import annotations

from pathlib import Path


def fingerprint_of(path: Path) -> str | None:
    """As ``done.json`` has it; imported late, since all that segments comes with it."""
    from ntrm.segmentation.identity import source_fingerprint

    return source_fingerprint(path)
