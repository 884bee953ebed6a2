"""A slide of the service and a job of it, as rows of the database; their types are checked when rows are read."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Json, PlainValidator, TypeAdapter

from ntrm.results.folder import is_safe_name

Status = Literal["queued", "running", "done", "failed", "cancelled"]
Origin = Literal["upload", "path", "found"]
"""Where a slide comes from: uploaded, named by a path, or results that were there before."""
Kind = Literal["segment", "prepare", "correct", "tables"]
"""What a job does: results of a slide; the region graph, for which somebody waits who corrects it; the files of its
corrected mask; the tables and the overview of all slides, whose job is of the slide ``""``."""
NETWORK: tuple[Kind, ...] = ("segment", "prepare")
LIGHT: tuple[Kind, ...] = ("correct", "tables")  # Jobs for workers that hold the network, and for the one that does not


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
Time = Annotated[float, Field(ge=0, le=253_402_300_799)]  # Until the end of the year 9999
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Place = Annotated[Path, PlainValidator(lambda cell: Path(os.fsdecode(cell)))]


@dataclass(frozen=True)
class SlideRow:
    """A slide and the state of its segmentation."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{24}$")]  # Random: whoever does not know it cannot ask for it
    slide_id: Annotated[str, AfterValidator(_check_name)]  # Name of its folder of results
    name: Text
    origin: Origin
    source: Place | None
    mpp: Json[tuple[Positive, Positive]] | None  # As the user stated it
    status: Status
    created: Time
    fingerprint: Text | None = None
    progress: Share = 0.0
    stage: Text = ""
    error: Json[dict[str, Any]] | None = None
    started: Time | None = None
    finished: Time | None = None  # Of a slide that is done: when its results were written
    info: Annotated[Json[dict[str, Any]], AfterValidator(_check_sizes)] = field(default_factory=dict, repr=False)
    """What the file says of itself: numbers and fixed words."""

    @property
    def alone(self) -> bool:
        """Whether no other file may be read with it: an upload could name any file of the server."""
        return self.origin == "upload"

    @property
    def has_image(self) -> bool:
        """Whether the original is there."""
        # Whatever is wrong with it: no error.
        return self.source is not None and os.path.isfile(self.source)  # noqa: PTH113


@dataclass(frozen=True)
class Job:
    """Something to be done for a slide."""

    slide: str  # Its id
    kind: Kind
    status: Status
    due: Time
    progress: Share
    stage: Text
    error: Json[dict[str, Any]] | None
    attempts: Annotated[int, Field(ge=0, le=100)]  # Starts that have not come to an end
    started: Time | None
    finished: Time | None
    worker: Annotated[str, Field(pattern="^[0-9a-z]+$")] | None  # A part of a file's name
    cancel: Time | None  # When somebody asked for the end of a running job


SLIDE: TypeAdapter[SlideRow] = TypeAdapter(SlideRow)
JOB: TypeAdapter[Job] = TypeAdapter(Job)


def new_id() -> str:
    """96 random bits."""
    return secrets.token_hex(12)


def as_json(document: Any) -> str | None:
    """A cell of JSON; NULL for nothing."""
    return None if document is None else json.dumps(document, ensure_ascii=False, allow_nan=False)
