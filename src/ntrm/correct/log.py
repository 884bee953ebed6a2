"""``corrections.jsonl``: what a person changed in a slide's mask, one line a step, only ever appended to.

The first line says which mask the steps are about; a further one follows where classes were added or renamed, as they
can be where tissues are named from nothing. A step holds what was said (the places and the tissue) and what came of it
(the pixels), so that the corrected mask follows from the network's mask and the log alone, on any machine. To undo is a
step, too: nothing is ever removed. No names, unless a person gives initials.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.io import STRICT, holding, open_for_update, parsed, writing
from ntrm.core.wording import PURPOSE
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import CORRECTIONS, CORRECTIONS_LOCK, HIDDEN
from ntrm.version import __version__

INITIALS = 8  # Characters that initials may have
MOST_STEPS, MOST_BYTES = 5_000, 64 * 2**20  # Of one slide: what they come to is known in some seconds
RECORD_BEGINS = b'{"format"'  # A line that says, once more, which mask and classes the steps after it are about
SET_ASIDE = "move it away; the network's mask is as it was"

Place = tuple[int, int]  # Row and column in pixels of the mask
Stamp = tuple[int, int, int] | None


def stamp_of(path: Path) -> Stamp:
    """Changes whenever a file does; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class ConflictError(RefusedError):
    """Somebody else corrected the slide meanwhile."""


@dataclass(frozen=True, kw_only=True)
class MaskRecord:
    """The mask that the steps are about: the first line of the file."""

    __pydantic_config__ = STRICT
    format: Literal["ntrm-corrections/1"] = "ntrm-corrections/1"
    slide_id: str
    mask: str  # SHA-256 of its file
    height: int
    width: int
    classes: tuple[str, ...]
    purpose: str = PURPOSE


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing that a person did. The fields are the keys of a line."""

    __pydantic_config__ = STRICT
    number: int = 0  # From 1; set by ``append``
    action: Literal["name", "draw", "undo", "redo"]
    tissue: str | None = None  # The name given; None for undo and redo
    places: tuple[Place, ...] = ()  # Where the person pointed, one place for each part that was named
    whole_regions: bool = False  # Whether the connected regions around these places were named, not the parts alone
    left_out: tuple[Place, ...] = ()  # Parts that would have followed, and that the person took out
    spread: str | None = None  # How the name was carried on to others; None: it was not
    reach: float | None = None
    named: str = ""  # Pixels that the person named, as ``PixelSet.text``.
    followed: Mapping[str, str] = field(default_factory=dict)  # Pixels that followed, by the tissue that they got
    regions: int = 0  # Parts that were named and that followed; 0 for areas that were drawn
    area_mm2: float = 0.0
    of: int | None = None  # The step that is undone or done again
    origin: str = ""  # Where it came from: the page, the command, a file, or another slide's step
    by: str | None = None  # Initials, if the person gave any
    when: str = ""  # UTC; set by ``append``
    version: str = __version__  # Of the program
    key: str | None = None  # Whoever sends a step twice under one key, since no answer came, takes it once

    def __post_init__(self) -> None:
        if self.by is not None and not (self.by.isprintable() and 0 < len(self.by) <= INITIALS):
            raise UsageError("impossible initials", got=self.by, expected=f"1 to {INITIALS} characters")

    def renamed(self, names: Mapping[str, str]) -> Step:
        """The same of classes with other names."""
        followed = {names.get(name, name): pixels for name, pixels in self.followed.items()}
        return replace(self, tissue=self.tissue and names.get(self.tissue, self.tissue), followed=followed)


@dataclass(frozen=True)
class Log:
    """All steps of a slide."""

    record: MaskRecord | None  # None where nothing was corrected yet
    steps: tuple[Step, ...] = ()

    @property
    def version(self) -> int:
        """Number of the last step; 0 before the first."""
        return self.steps[-1].number if self.steps else 0

    @cached_property
    def fingerprint(self) -> str:
        """Of what the steps that count say: done again after an undo, they are what they were."""
        digest = hashlib.sha256()
        for step in self.active:
            digest.update(json.dumps([step.tissue, step.regions, step.named, dict(step.followed)]).encode())
        return digest.hexdigest()[:16]

    def at(self, version: int | None) -> Log:
        """As it was after this step."""
        return self if version is None else Log(self.record, self.steps[:version])

    def with_key(self, key: str | None) -> Step | None:
        """The step that was sent under this key."""
        return None if key is None else next((step for step in self.steps if step.key == key), None)

    @property
    def active(self) -> tuple[Step, ...]:
        """Steps that count, in their order; the last is the one that an undo takes back."""
        return self._history[0]

    @property
    def undone(self) -> tuple[Step, ...]:
        """Steps that can be done again; the last is the one that a redo does."""
        return self._history[1]

    @cached_property
    def _history(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        done: list[Step] = []
        undone: list[Step] = []
        for step in self.steps:
            if step.action == "undo":
                undone.append(done.pop())
            elif step.action == "redo":
                done.append(undone.pop())
            else:
                done.append(step)
                undone.clear()
        return tuple(done), tuple(undone)

    def check(self, record: MaskRecord, seen: int | None = None) -> Log:
        """Itself, by the classes' present names; refused as about another mask, or where a person saw another version.

        Where tissues are named from nothing, classes are added and renamed meanwhile: their numbers stay.
        """
        if self.record is not None and replace(self.record, classes=record.classes) != record:
            raise RefusedError(
                f"{record.slide_id}: the corrections are about another mask",
                hint=f"the slide was segmented again: move {CORRECTIONS} away, and correct the new mask",
            )
        if seen not in (None, self.version):
            raise ConflictError(
                "the slide was corrected elsewhere meanwhile",
                got=f"version {seen}",
                expected=f"version {self.version}",
                hint="look at the slide as it is now, and correct it again",
            )
        if self.record is None or self.record.classes == record.classes:
            return self
        names = dict(zip(self.record.classes, record.classes, strict=False))
        return Log(record, tuple(step.renamed(names) for step in self.steps))

    def with_step(self, record: MaskRecord, step: Step) -> Log:
        """One more step; an undo or redo gets the step that it is about."""
        if step.action in ("undo", "redo"):
            targets = self.active if step.action == "undo" else self.undone
            if not targets:
                raise UsageError(f"there is nothing to {step.action}", got=f"{len(self.active)} corrections")
            step = replace(step, of=targets[-1].number, tissue=targets[-1].tissue)
        return Log(record, (*self.steps, replace(step, number=self.version + 1)))


def read_log(folder: Path) -> Log:
    """The log of a slide's folder; an empty one where nothing was corrected.

    A last line that was cut off, by a crash or a full disk, was never confirmed to anybody and is left out.
    """
    try:
        content = SlideFolder(folder).read(CORRECTIONS, most=MOST_BYTES)
    except FileNotFoundError:
        return Log(None)
    except OSError as error:
        raise DataError(f"cannot read {folder / CORRECTIONS}", got=error, hint=SET_ASIDE) from error
    lines, number, steps = content[: content.rfind(b"\n") + 1].splitlines(), 0, list[Step]()
    record: MaskRecord | None = None
    try:
        for line in lines:
            number += 1
            if record is None or line.startswith(RECORD_BEGINS):
                record, before = parsed(MaskRecord, line), Log(record, tuple(steps))
                steps = [*before.check(record).steps]
                if before.record is not None:  # whoever wrote this did not know the newest classes yet
                    newer = before.record.classes[len(record.classes) :]
                    record = replace(record, classes=(*record.classes, *newer))
                continue
            step, expected = parsed(Step, line), len(steps) + 1
            if step.number != expected or expected > MOST_STEPS:
                raise ValueError(f"step {step.number}, not {expected} of at most {MOST_STEPS}")
            if unknown := {step.tissue, *step.followed} - {None, *record.classes}:
                raise ValueError(f"tissues that the mask does not have: {unknown}")
            steps.append(step)
        log = Log(record, tuple(steps))
        _ = log.active  # an undo of nothing is damage
    except (NtrmError, ValueError, IndexError) as error:
        what = f"{folder.name}: {CORRECTIONS} is damaged in line {number}"
        raise DataError(what, got=error, hint=SET_ASIDE) from error
    return log


def append(folder: Path, record: MaskRecord, step: Step, *, after: int | None = None) -> Log:
    """Write a step down, with number and time; on the disk when this returns. One whose key is known is not.

    ``after`` is the version that the person saw: if others were faster, ``ConflictError``, and nothing is written.
    """
    SlideFolder(folder).check()
    with holding(folder / HIDDEN / CORRECTIONS_LOCK, wait=True):
        before = read_log(folder)
        log = before.check(record)
        if log.with_key(step.key) is not None:
            return log
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        new = log.check(record, after).with_step(record, replace(step, when=now))
        is_told = before.record is not None and before.record.classes == record.classes
        lines = [*([] if is_told else [asdict(record)]), asdict(new.steps[-1])]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        with writing(folder / CORRECTIONS), open_for_update(folder / CORRECTIONS) as stream:
            end = stream.read().rfind(b"\n") + 1
            if end + len(text) > MOST_BYTES or len(new.steps) > MOST_STEPS:  # it could not be read any more
                raise RefusedError(
                    f"{folder.name}: no further correction fits into {CORRECTIONS}",
                    expected=f"at most {MOST_STEPS:,} steps and {MOST_BYTES >> 20} MB",
                    hint="train on what is corrected so far, keep a copy of the results, and move the file away",
                )
            stream.truncate(end)
            stream.seek(end)
            try:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            except OSError:  # a full disk: nothing is left of the text
                with suppress(OSError):
                    stream.truncate(end)
                raise
        return new
