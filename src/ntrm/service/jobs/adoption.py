"""Results that were there before the service, their slides, and the short version of results for lists."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event
from typing import Any

from ntrm.core.errors import DataError, UsageError
from ntrm.results.paths import SUMMARY
from ntrm.results.slide_state import finished
from ntrm.service.jobs.database import DONE, FOUND, JobStore, Slide, new_id
from ntrm.service.tiles.mask_tiles import FILES
from ntrm.wsi.inputs import find_inputs, source_fingerprint


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
        ended = (folder / SUMMARY).stat().st_mtime
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
        if not (out / slide.slide_id / SUMMARY).is_file():
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


# The short version of a slide's results, for lists: kept in the database, made from ``summary.json``.


def read_summary(folder: Path) -> dict[str, Any]:
    """``summary.json`` of a finished slide."""
    try:
        document = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        return dict(document)
    except (OSError, ValueError) as error:
        raise DataError("the results are damaged", got=type(error).__name__, hint="segment the slide again") from error


def facts_of(folder: Path) -> dict[str, Any]:
    """What a list of slides shows."""
    summary = read_summary(folder)
    try:
        grid, areas, shares = summary["grid"], summary["areas_mm2"], summary["tissue_fractions"]
        width, height = image_size(grid)
        cancers = [
            {"name": name, "present": bool(each["present"]), "confidence": each["confidence"]}
            for name, each in summary["cancers"].items()
        ]
        tissue = [
            {"index": summary["classes"].index(name), "name": name, "area_mm2": areas[name], "share": share}
            for name, share in shares.items()
        ]
        return {
            "width": width,
            "height": height,
            "mpp": [float(value) for value in grid["slide_mpp"]],
            "cancers": cancers,
            "tissue": tissue,
            "quality_warnings": [str(text) for text in summary["warnings"]],
            "tissue_area_mm2": summary["tissue_area_mm2"],
            "pieces": len(summary["pieces"]),
            "layers": layers_in(folder),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError("the results are damaged", got=type(error).__name__, hint="segment the slide again") from error


def image_size(grid: dict[str, Any]) -> tuple[int, int]:
    """Width and height of the scanned part, from the part ``grid`` of a summary."""
    bounds = grid["bounds"]
    slide = grid["slide"]
    return (int(bounds[2]), int(bounds[3])) if bounds else (int(slide["width"]), int(slide["height"]))


def layers_in(folder: Path) -> list[str]:
    """Layers of results that a folder has files for."""
    have = {name for name, file in FILES.items() if (folder / file).is_file()}
    found: list[str] = [name for name in ("tissue", "coarse", "confidence") if name in have]
    found += ["improvement"] if {"tissue", "coarse", "truth"} <= have else []
    return [*found, "interface"] if "tissue" in have else found
