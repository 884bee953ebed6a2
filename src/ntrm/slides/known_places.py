"""Where slides lay when they were segmented: kept in the user's own state folder, for `ntrm correct`, never in results.

A place is found by the fingerprint of the file, and believed only where that file still lies there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ntrm.core.errors import NtrmError
from ntrm.core.io import read_object, write_text
from ntrm.core.locks import holding
from ntrm.slides.inputs import source_fingerprint

PLACES, LOCK = "slides.json", ".slides.lock"
MOST = 10_000  # Slides that are remembered; those segmented longest ago are forgotten first


def state_folder() -> Path:
    """``NTRM_STATE``, or ``ntrm`` in the user's folder for the state of programs."""
    if chosen := os.environ.get("NTRM_STATE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ntrm"


def remember_places(places: Mapping[str, Path]) -> None:
    """Keep the paths of slides by their fingerprints; where that is not possible now, nothing is kept."""
    # A home that is full or read-only, or another command that writes just now, must not spoil finished work.
    with suppress(OSError, RuntimeError, NtrmError):
        folder = state_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with holding(folder / LOCK):
            new = {source: str(path.absolute()) for source, path in places.items()}
            known = {source: path for source, path in read_object(folder / PLACES).items() if source not in new}
            write_text(folder / PLACES, json.dumps(dict([*known.items(), *new.items()][-MOST:])), private=True)


def place_of(source: str) -> Path | None:
    """Where the slide of this fingerprint lies; None where that is not known, or another file lies there now."""
    with suppress(OSError, RuntimeError, ValueError):
        path = Path(str(read_object(state_folder() / PLACES).get(source, "")))
        if path.is_file() and source_fingerprint(path) == source:
            return path
    return None
