"""A slide of the service and the state of its job, and how both stand in a row of the database."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ntrm.service.core.settings import UPLOADS, upload_path

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
STATUSES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)
UPLOAD, PATH, FOUND = "upload", "path", "found"
"""Where a slide comes from: uploaded, named by a path, or results that were there before."""
MPP_MISSING = "mpp_missing"
_PLAIN = (
    "id", "slide_id", "name", "origin", "fingerprint", "status", "progress", "stage", "attempts", "deaths",
    "created", "queued", "started", "finished", "worker", "cancel",
)  # fmt: skip
"""Columns that hold a field of ``Slide`` as it is."""


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
        return self.source is not None and self.source.is_file()

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
