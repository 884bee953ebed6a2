"""A slide of the service and a job of it, as rows of the database; their types say what a service writes."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter

from ntrm.results.folder import is_safe_name
from ntrm.service.core.settings import upload_path

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
STATUSES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)
UPLOAD, PATH, FOUND = "upload", "path", "found"
"""Where a slide comes from: uploaded, named by a path, or results that were there before."""
SEGMENT, PREPARE, CORRECT, TABLES = "segment", "prepare", "correct", "tables"
"""What a job does: results of a slide; the region graph, for which somebody waits who corrects it; the files of its
corrected mask; the tables and the overview of all slides, whose job is of the slide ``""``."""
NETWORK, LIGHT = (SEGMENT, PREPARE), (CORRECT, TABLES)
"""Jobs for workers that hold the network, and for the one that does not."""
MPP_MISSING = "mpp_missing"


def _check_name(name: str) -> str:
    if not is_safe_name(name):
        raise ValueError("no name of a slide's folder")
    return name


def _check_sizes(info: dict[str, Any]) -> dict[str, Any]:
    sizes = [info.get("width", 1), info.get("height", 1), *(info.get("bounds") or ())]
    if not all(isinstance(size, int) and 0 <= size <= 2**31 for size in sizes):
        raise ValueError("impossible sizes")
    return info


Text = Annotated[str, Field(max_length=2**20)]
Time = Annotated[float, Field(ge=0, le=253_402_300_799)]
"""Until the end of the year 9999."""
Share = Annotated[float, Field(ge=0, le=1)]
Tries = Annotated[int, Field(ge=0, le=100)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Status = Annotated[str, Field(pattern=f"^({'|'.join(STATUSES)})$")]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{24}$")]


@dataclass(frozen=True)
class Slide:
    """A slide and the state of its segmentation."""

    id: Key
    """Random: whoever does not know it cannot ask for it."""
    slide_id: Annotated[str, AfterValidator(_check_name)]
    """Name of its folder of results."""
    name: Text
    origin: Annotated[str, Field(pattern="^(upload|path|found)$")]
    source: Path | None
    mpp: tuple[Positive, Positive] | None
    """As the user stated it."""
    status: Status
    created: Time
    fingerprint: Text | None = None
    progress: Share = 0.0
    stage: Text = ""
    error: dict[str, Any] | None = None
    attempts: Tries = 0
    deaths: Tries = 0
    queued: Time | None = None
    started: Time | None = None
    finished: Time | None = None
    """Of a slide that is done: when its results were written."""
    info: Annotated[dict[str, Any], AfterValidator(_check_sizes)] = field(default_factory=dict, repr=False)
    """What the file says of itself: numbers and fixed words."""

    @property
    def alone(self) -> bool:
        """Whether no other file may be read with it: an upload could name any file of the server."""
        return self.origin == UPLOAD

    @property
    def has_image(self) -> bool:
        """Whether the original is there."""
        # Whatever is wrong with it: no error.
        return self.source is not None and os.path.isfile(self.source)  # noqa: PTH113


@dataclass(frozen=True)
class Job:
    """Something to be done for a slide."""

    slide: str
    """Its id."""
    kind: Annotated[str, Field(pattern="^(segment|prepare|correct|tables)$")]
    status: Status
    due: Time
    progress: Share
    stage: Text
    error: dict[str, Any] | None
    attempts: Tries
    deaths: Tries
    started: Time | None
    finished: Time | None
    worker: Annotated[str, Field(pattern="^[0-9a-z]+$")] | None
    """A part of a file's name."""
    cancel: Time | None
    """When somebody asked for the end of a running job."""


SLIDE: TypeAdapter[Slide] = TypeAdapter(Slide)
JOB: TypeAdapter[Job] = TypeAdapter(Job)
JOB_COLUMNS = tuple(Job.__dataclass_fields__)
_PLAIN = (
    "id", "slide_id", "name", "origin", "fingerprint", "status", "progress", "stage", "attempts", "deaths", "created",
    "queued", "started", "finished",
)  # fmt: skip
"""Columns that hold a field of ``Slide`` as it is."""


def new_id() -> str:
    """96 random bits."""
    return secrets.token_hex(12)


def as_json(document: Any) -> str | None:
    """A cell of JSON; NULL for nothing."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False) if document else None


def slide_cells(row: Any, folder: Path) -> dict[str, Any]:
    """Fields of a slide; ``folder`` is the service's own, wherever that lies now."""
    x, y, source = row["mpp_x"], row["mpp_y"], row["source"]
    if source is not None:
        source = Path(os.fsdecode(source))
    elif row["origin"] == UPLOAD:
        source = upload_path(folder, row["id"])
    return {
        **{key: row[key] for key in _PLAIN},
        "source": source,
        "mpp": None if x is None else (x, y),
        "error": json.loads(row["error"] or "null"),
        "info": json.loads(row["info"] or "{}"),
    }


def slide_columns(slide: Slide, folder: Path) -> dict[str, Any]:
    """Cells of a slide's own row; an upload is known by its id, wherever it lies."""
    x, y = slide.mpp or (None, None)
    source = None if slide.source == upload_path(folder, slide.id) else slide.source
    return {
        **{key: getattr(slide, key) for key in ("id", "slide_id", "name", "origin", "fingerprint", "created")},
        "source": None if source is None else os.fsencode(source.absolute()),
        "mpp_x": x,
        "mpp_y": y,
        "info": as_json(slide.info),
    }


def job_cells(row: Any) -> dict[str, Any]:
    """Fields of a job."""
    return {**{key: row[key] for key in JOB_COLUMNS}, "error": json.loads(row["error"] or "null")}
