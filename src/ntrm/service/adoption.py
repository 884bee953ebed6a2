"""Results that were there before the service, and the slides they were made from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

from ntrm.errors import DataError, UsageError
from ntrm.segmentation.memory import finished
from ntrm.segmentation.sources import source_fingerprint
from ntrm.service.facts import facts_of
from ntrm.service.jobs import JobStore
from ntrm.service.records import DONE, FOUND, Slide, new_id
from ntrm.slide.inputs import find_inputs


def adopt(out: Path, store: JobStore) -> list[Slide]:
    """Put finished slides of ``out`` that the database does not know into it."""
    if not out.is_dir():
        return []
    taken = store.taken_names()
    folders = sorted(each for each in out.iterdir() if each.is_dir() and not each.name.startswith("."))
    found = [_adopted(folder) for folder in folders if folder.name.lower() not in taken]
    return [store.add(slide) for slide in found if slide is not None]


def _adopted(folder: Path) -> Slide | None:
    """None for what is unfinished, damaged or no slide at all."""
    try:
        document = finished(folder)
        if document is None:
            return None
        facts = facts_of(folder)
        ended = (folder / "summary.json").stat().st_mtime
    except (DataError, OSError):
        return None
    plan = document.get("plan", {})
    stated = plan.get("mpp")
    return Slide(
        id=new_id(),
        slide_id=folder.name,
        name=folder.name,
        origin=FOUND,
        source=None,
        mpp=None if stated is None else (float(stated[0]), float(stated[1])),
        status=DONE,
        created=ended,
        finished=ended,
        progress=1.0,
        fingerprint=plan.get("source"),
        facts=facts,
    )


def forget_vanished(out: Path, store: JobStore) -> None:
    """Results that somebody removed by hand are no results any more."""
    for slide in store.every(DONE):
        if not (out / slide.slide_id / "summary.json").is_file():
            store.vanished(slide.id, keep=slide.source is not None and slide.origin != FOUND)


def find_originals(store: JobStore, roots: Sequence[Path], stop: Event) -> int:
    """Look under the roots for the files of slides that are not where they were, by content; returns how many."""
    wanted: dict[str, list[str]] = {}
    for slide in store.every():
        if slide.fingerprint is not None and (slide.source is None or not slide.source.exists()):
            wanted.setdefault(slide.fingerprint, []).append(slide.id)
    count = 0
    for path in _files(roots) if wanted else ():
        if stop.is_set() or not wanted:
            break
        for each in wanted.pop(source_fingerprint(path) or "", ()):
            store.locate(each, path)
            count += 1
        # Others want the disk, too.
        time.sleep(0)
    return count


def _files(roots: Sequence[Path]) -> Iterator[Path]:
    for root in roots:
        base = root.resolve()
        try:
            slides = find_inputs([base])
        except (UsageError, DataError):
            continue
        # Links may lead out of the root.
        yield from (slide.path for slide in slides if slide.path.resolve().is_relative_to(base))
