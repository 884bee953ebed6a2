"""A slide in the database: its fields, its states, and how they are stored."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ntrm.service.shared import UPLOADS, upload_path

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
STATUSES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)
UPLOAD, PATH, FOUND = "upload", "path", "found"
"""Where a slide comes from: sent, named by a path, or results that were there."""
MPP_MISSING = "mpp_missing"

SCHEMA = """
CREATE TABLE IF NOT EXISTS slides (
  id TEXT PRIMARY KEY,
  slide_id TEXT NOT NULL UNIQUE COLLATE NOCASE,
  name TEXT NOT NULL,
  origin TEXT NOT NULL,
  source BLOB,
  fingerprint TEXT,
  mpp_x REAL, mpp_y REAL,
  status TEXT NOT NULL,
  progress REAL NOT NULL DEFAULT 0,
  stage TEXT NOT NULL DEFAULT '',
  error TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  deaths INTEGER NOT NULL DEFAULT 0,
  created REAL NOT NULL, queued REAL, started REAL, finished REAL,
  worker TEXT, heartbeat REAL,
  cancel REAL,
  deleted INTEGER NOT NULL DEFAULT 0,
  info TEXT, facts TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS by_status ON slides (status, queued);
CREATE TABLE IF NOT EXISTS sessions (digest TEXT PRIMARY KEY, token TEXT NOT NULL, expires REAL NOT NULL) STRICT;
"""


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
    """Stated by the user."""
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
    info: dict[str, Any] | None = field(default=None, repr=False)
    """What the file says of itself: numbers and fixed words."""
    facts: dict[str, Any] = field(default_factory=dict, repr=False)
    """The short version of the results."""

    @property
    def alone(self) -> bool:
        """Whether no other file may be read with it: whoever sent it could name any file of the server in it."""
        return self.origin == UPLOAD


def new_id() -> str:
    """96 random bits."""
    return secrets.token_hex(12)


def as_json(document: Any) -> str | None:
    """Text for a cell."""
    return None if document is None else json.dumps(document, ensure_ascii=False, allow_nan=False)


def from_row(row: sqlite3.Row, folder: Path) -> Slide:
    """A slide as it was stored; ``folder`` is the service's own, wherever that lies now."""
    x, y = row["mpp_x"], row["mpp_y"]
    plain: Sequence[str] = (
        "id", "slide_id", "name", "origin", "fingerprint", "status", "progress", "stage", "attempts", "deaths",
        "created", "queued", "started", "finished", "worker", "cancel",
    )  # fmt: skip
    return Slide(
        **{key: row[key] for key in plain},
        source=_source(row, folder),
        # What an UPDATE returns of a real column may be a whole number.
        mpp=None if x is None else (float(x), float(y)),
        error=None if row["error"] is None else json.loads(row["error"]),
        info=None if row["info"] is None else json.loads(row["info"]),
        facts={} if row["facts"] is None else json.loads(row["facts"]),
    )


def _source(row: sqlite3.Row, folder: Path) -> Path | None:
    if row["source"] is None:
        return None
    path = Path(os.fsdecode(row["source"]))
    # Uploads are known by their id, wherever they lay when they came: absolute paths were stored once.
    return upload_path(folder, row["id"]) if _is_upload(row["origin"], row["id"], path) else path


def _is_upload(origin: str, id: str, source: Path) -> bool:  # noqa: A002
    # The upload of a finished slide may be lost, and an original like it found below a root.
    return origin == UPLOAD and source.name == id


def _source_cell(slide: Slide) -> bytes | None:
    if slide.source is None:
        return None
    return os.fsencode(
        Path(UPLOADS, slide.id) if _is_upload(slide.origin, slide.id, slide.source) else slide.source.absolute()
    )


def to_row(slide: Slide) -> dict[str, Any]:
    """Cells of a new slide."""
    x, y = slide.mpp or (None, None)
    return {
        "id": slide.id, "slide_id": slide.slide_id, "name": slide.name, "origin": slide.origin,
        "source": _source_cell(slide), "fingerprint": slide.fingerprint,
        "mpp_x": x, "mpp_y": y, "status": slide.status, "progress": slide.progress, "error": as_json(slide.error),
        "created": slide.created, "queued": slide.queued, "finished": slide.finished, "info": as_json(slide.info),
        "facts": as_json(slide.facts or None),
    }  # fmt: skip
