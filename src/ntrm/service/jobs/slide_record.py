"""A slide of the service and the state of its job, and how both stand in a row of the database."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ntrm.results.folder import is_safe_name
from ntrm.service.core.settings import UPLOADS, upload_path

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
STATUSES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)
UPLOAD, PATH, FOUND = "upload", "path", "found"
"""Where a slide comes from: uploaded, named by a path, or results that were there before."""
LONGEST_TEXT, LARGEST, MOST_TRIES, LATEST = 2**20, 2**31, 100, 253_402_300_799.0
"""In a row that a service wrote: bytes of a text, pixels of a side, starts of a job, and the end of the year 9999."""
MPP_MISSING = "mpp_missing"
_PLAIN = (
    "id", "slide_id", "name", "origin", "fingerprint", "status", "progress", "stage", "attempts", "deaths",
    "created", "queued", "started", "finished", "worker", "cancel",
)  # fmt: skip
"""Columns that hold a field of ``Slide`` as it is."""
UNUSABLE = (ValueError, TypeError, AttributeError, KeyError, ArithmeticError, RecursionError)
"""What values of a wrong type or size raise where they are used."""


@dataclass(frozen=True)
class Slide:
    """A slide and the state of its job."""

    id: str
    """Random: whoever does not know it cannot ask for it."""
    slide_id: str
    """Name of its folder of results."""
    name: str
    origin: str
    source: Path | None
    mpp: tuple[float, float] | None
    """As the user stated it."""
    status: str
    created: float
    fingerprint: str | None = None
    progress: float = 0.0
    stage: str = ""
    error: dict[str, Any] | None = None
    attempts: int = 0
    deaths: int = 0
    queued: float | None = None
    started: float | None = None
    finished: float | None = None
    worker: str | None = None
    cancel: float | None = None
    """When somebody asked for the end of a running job."""
    info: dict[str, Any] = field(default_factory=dict, repr=False)
    """What the file says of itself: numbers and fixed words."""
    facts: dict[str, Any] = field(default_factory=dict, repr=False)
    """The short version of the results."""

    @property
    def alone(self) -> bool:
        """Whether no other file may be read with it: an upload could name any file of the server."""
        return self.origin == UPLOAD

    @property
    def has_image(self) -> bool:
        """Whether the original is there."""
        # Whatever is wrong with it: no error.
        return self.source is not None and os.path.isfile(self.source)  # noqa: PTH113

    @property
    def known_mpp(self) -> tuple[float | None, float | None]:
        """µm/px along x and y: of the results, as stated, or of the file; None where unknown."""
        x, y = self.facts.get("mpp") or self.mpp or self.info.get("mpp") or (None, None)
        return x, y


def new_id() -> str:
    """96 random bits."""
    return secrets.token_hex(12)


def as_json(document: Any) -> str | None:
    """A cell of JSON; NULL for nothing."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False) if document else None


def check_row(row: sqlite3.Row) -> None:
    """Raise ``ValueError`` where a row is none that a service writes: the database may come from somebody else."""
    cells = dict(row)
    texts = [cell for cell in cells.values() if isinstance(cell, str)]
    times = [cells[name] for name in ("created", "queued", "started", "finished", "cancel")]
    documents = [json.loads(cells[name] or "{}") for name in ("info", "facts", "error")]
    info = documents[0]
    sizes = [info.get("width", 1), info.get("height", 1), *(info.get("bounds") or ())]
    good = {
        "text": all(len(text.encode()) <= LONGEST_TEXT for text in texts),
        "id": re.fullmatch("[0-9a-f]{24}", cells["id"]),
        "slide_id": is_safe_name(cells["slide_id"]),
        "origin": cells["origin"] in (UPLOAD, PATH, FOUND),
        "status": cells["status"] in STATUSES,
        # A part of a file's name.
        "worker": re.fullmatch("[0-9a-z]+", cells["worker"] or "none"),
        "progress": 0 <= cells["progress"] <= 1,
        "attempts": all(0 <= cells[name] <= MOST_TRIES for name in ("attempts", "deaths")),
        "mpp": all(0 < (cells[name] or 1) < math.inf for name in ("mpp_x", "mpp_y")),
        "times": all(0 <= (time or 0) <= LATEST for time in times),
        "json": all(isinstance(each, dict) and (as_json(each) or "{}").encode() for each in documents),
        "size": all(isinstance(size, int) and 0 <= size <= LARGEST for size in sizes),
    }
    bad = [name for name, is_good in good.items() if not is_good]
    if bad:
        raise ValueError(f"{', '.join(bad)} of a row")


def from_row(row: sqlite3.Row, folder: Path) -> Slide:
    """A slide as it was stored; ``folder`` is the service's own, wherever that lies now."""
    x, y = row["mpp_x"], row["mpp_y"]
    source = None if row["source"] is None else Path(os.fsdecode(row["source"]))
    if source is not None and _is_upload(row["origin"], row["id"], source):
        # Uploads are known by their id, wherever they lay when they came: absolute paths were stored once.
        source = upload_path(folder, row["id"])
    return Slide(
        **{key: row[key] for key in _PLAIN},
        source=source,
        # What an UPDATE returns of a real column may be a whole number.
        mpp=None if x is None else (float(x), float(y)),
        error=json.loads(row["error"] or "null"),
        info=json.loads(row["info"] or "{}"),
        facts=json.loads(row["facts"] or "{}"),
    )


def to_row(slide: Slide) -> dict[str, Any]:
    """Cells of a new slide."""
    x, y = slide.mpp or (None, None)
    source = slide.source
    if source is not None:
        source = Path(UPLOADS, slide.id) if _is_upload(slide.origin, slide.id, source) else source.absolute()
    cells = {key: getattr(slide, key) for key in _PLAIN}
    cells |= {key: as_json(getattr(slide, key)) for key in ("error", "info", "facts")}
    return cells | {"source": None if source is None else os.fsencode(source), "mpp_x": x, "mpp_y": y}


def _is_upload(origin: str, key: str, source: Path) -> bool:
    # The upload of a finished slide may be lost, and an original with the same content found below a root.
    return origin == UPLOAD and source.name == key
