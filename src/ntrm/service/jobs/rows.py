"""What the database of the service holds: a slide, and a job; each value is checked when it is read."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Json, PlainValidator, TypeAdapter

from ntrm.results.folder import is_safe_name

Status = Literal["queued", "running", "done", "failed", "cancelled"]
Origin = Literal["upload", "path", "found"]
"""Where a slide comes from: uploaded, named by a path, or results that were there before."""
Kind = Literal["segment", "prepare", "correct", "tables"]
"""What a job does: results of a slide; the texture, for which somebody waits who corrects it; the files of its
corrected mask; the tables and the overview of all slides, whose job is of the slide ``""``."""
NETWORK: tuple[Kind, ...] = ("segment", "prepare")
LIGHT: tuple[Kind, ...] = ("correct", "tables")  # Jobs for workers that hold the network, and for the one that does not
UNUSABLE = (ValueError, TypeError, AttributeError, KeyError, ArithmeticError, RecursionError)
"""What values of a wrong type or size raise where they are used."""
GIVEN_UP: dict[Kind, str] = {
    "segment": "the slide could not be segmented",
    "prepare": "the texture of the slide could not be read",
    "correct": "the files of the corrected mask could not be made",
    "tables": "the tables of all slides could not be written",
}


def _safe(name: str) -> str:
    if not is_safe_name(name):
        raise ValueError("no name of a slide's folder")
    return name


def _path(cell: bytes | Path) -> Path:
    if "\0" in (text := os.fsdecode(cell)):
        raise ValueError("no path")
    return Path(text)


Text = Annotated[str, Field(max_length=2**20)]
Time = Annotated[float, Field(ge=0, le=253_402_300_799)]  # Until the end of the year 9999
Share = Annotated[float, Field(ge=0, le=1)]
Size = Annotated[int, Field(ge=0, le=2**31, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Mpp = tuple[Positive, Positive]  # µm/px along x and y
Place = Annotated[Path, PlainValidator(_path)]


@dataclass(frozen=True)
class SlideRow:
    """A slide and the state of its segmentation."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{24}$")]  # Random: whoever does not know it cannot ask for it
    slide_id: Annotated[str, AfterValidator(_safe)]  # Name of its folder of results
    name: Text
    origin: Origin
    source: Place | None
    mpp: Json[Mpp] | None  # As the user stated it
    status: Status
    created: Time
    fingerprint: Text | None = None
    progress: Share = 0.0
    stage: Text = ""
    error: Json[dict[str, Any]] | None = None
    started: Time | None = None
    finished: Time | None = None  # Of a slide that is done: when its results were written
    area: Json[tuple[Size, Size, Size, Size]] | None = None  # Scanned, in the file's level 0: left, top, width, height
    file_mpp: Json[Mpp] | None = None  # As the file states it

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
