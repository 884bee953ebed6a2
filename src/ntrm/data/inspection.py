"""One section of a dataset, decoded and judged: the part of the check that runs in parallel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from ntrm.data.cases import Case
from ntrm.data.decode import image_size, read_image, read_mask
from ntrm.data.faults import Fault, FaultError, fault, printable
from ntrm.labels import IGNORE, DecodedMask, LabelSchema

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A case to inspect, and what is needed for it."""

    root: Path
    case: Case
    schema: LabelSchema | None
    tiles: bool
    """Whether the masks may be tiles of sections, of which some are rightly all background."""
    max_pixels: int


@dataclass
class Outcome:
    """What was found out about a case."""

    size: tuple[int, int] | None = None
    """(height, width) by the image, or else by the mask."""
    pixels: int = 0
    strays: int = 0
    ignored: int = 0
    faults: list[Fault] = field(default_factory=list)


def inspect_case(task: Task) -> Outcome:
    """Decode image and mask of a case; every fault of theirs is in the outcome."""
    outcome = Outcome()
    image, mask = task.case.image, task.case.mask
    image_at = _attempt(task, outcome, image, image_size) if image else None
    mask_at = _attempt(task, outcome, mask, image_size) if mask else None
    outcome.size = image_at or mask_at
    if image and image_at:
        _attempt(task, outcome, image, lambda path: read_image(path, max_pixels=task.max_pixels))
    if mask and mask_at:
        _inspect_mask(task, outcome, mask)
    if mask and image_at and mask_at and image_at != mask_at:
        found = f"image {image_at[1]} × {image_at[0]}, mask {mask_at[1]} × {mask_at[0]}"
        outcome.faults.append(fault("size-mismatch", _relative(task, mask), found))
    return outcome


def _inspect_mask(task: Task, outcome: Outcome, path: Path) -> None:
    schema = task.schema
    if schema is None:
        return
    decoded = _attempt(task, outcome, path, lambda path: read_mask(path, schema, max_pixels=task.max_pixels))
    if decoded is None:
        return
    outcome.pixels, outcome.strays, outcome.ignored = decoded.mask.size, decoded.strays, decoded.ignored
    code = _emptiness(decoded, schema.background_index)
    if code == "background-only" and task.tiles:
        return
    if code:
        outcome.faults.append(fault(code, _relative(task, path)))


def _emptiness(decoded: DecodedMask, background: int | None) -> str:
    """Code of the fault that a mask without any tissue has, or the empty string."""
    values = set(np.flatnonzero(np.bincount(decoded.mask.ravel(), minlength=256)).tolist())
    if values <= {IGNORE}:
        return "empty-mask"
    return "background-only" if values <= {IGNORE, background} else ""


def _attempt(task: Task, outcome: Outcome, path: Path, read: Callable[[Path], T]) -> T | None:
    try:
        return read(path)
    except FaultError as error:
        outcome.faults.append(replace(error.fault, file=_relative(task, path)))
        return None


def _relative(task: Task, path: Path) -> str:
    return printable(path.relative_to(task.root).as_posix())
