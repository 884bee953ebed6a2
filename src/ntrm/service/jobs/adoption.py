"""Results that were there before the service, their slides, and the short version of results for lists."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from ntrm.core.errors import NtrmError
from ntrm.results.documents import Summary, read_summary
from ntrm.results.folder import ResultsFolder, SlideFolder
from ntrm.results.paths import FAMILIARITY_MAP, SUMMARY
from ntrm.results.slide_state import finished
from ntrm.service.jobs.database import JobStore
from ntrm.service.jobs.slide_record import DONE, FOUND, UNUSABLE, Slide, new_id
from ntrm.service.tiles.mask_tiles import FILES, layers_with
from ntrm.slides.inputs import find_by_content, source_fingerprint

_log = logging.getLogger(__name__)
LONGEST_REASON = 300
MADE = "made"
"""Of the facts: by this results are known that were made anew."""


class Skipped:
    """Folders whose results cannot be shown, each logged once; ``show`` raises where a slide is unusable."""

    def __init__(self, show: Callable[[Slide], object] = repr) -> None:
        self._reasons: dict[Path, str] = {}
        self._show = show

    def read(self, folder: Path, use: Callable[[Slide], Slide]) -> Slide | None:
        """What ``use`` makes of a folder's results; None for what is unfinished, damaged, unusable or not a slide."""
        try:
            slide = _adopted(folder)
            if slide is not None:
                self._show(slide)
                slide = use(slide)
        except (NtrmError, OSError, *UNUSABLE) as error:
            reason = ascii(str(error))[:LONGEST_REASON]
            if self._reasons.get(folder) != reason:
                _log.warning("the folder %s is skipped: %s", ascii(folder.name), reason)
            self._reasons[folder] = reason
            return None
        self._reasons.pop(folder, None)
        return slide


def adopt(out: Path, store: JobStore, skipped: Skipped | None = None) -> list[Slide]:
    """Add the finished slides of ``out`` that the database does not know."""
    skipped, known = skipped or Skipped(), store.names()
    folders = (folder.path for folder in ResultsFolder(out)) if out.is_dir() else ()
    new = (path for path in folders if path.name not in known)
    found = [skipped.read(path, store.add) for path in new]
    return [slide for slide in found if slide is not None]


def _adopted(folder: Path) -> Slide | None:
    """None for what is unfinished or not a slide."""
    SlideFolder(folder).check()
    state = finished(folder)
    if state is None or state.plan is None:
        return None
    facts = facts_of(folder)
    ended = (folder / SUMMARY).stat().st_mtime
    plan = state.plan
    return Slide(
        id=new_id(),
        slide_id=folder.name,
        name=folder.name,
        origin=FOUND,
        source=None,
        mpp=plan.mpp,
        status=DONE,
        created=ended,
        finished=ended,
        progress=1.0,
        fingerprint=plan.source,
        facts=facts,
    )


def renew(out: Path, store: JobStore, skipped: Skipped | None = None) -> list[Slide]:
    """Read again what is known of slides whose results were made anew; their ids stay."""
    skipped = skipped or Skipped()
    done = [slide for slide in store.every(DONE) if slide.facts.get(MADE) != _made(out / slide.slide_id)]
    found = [skipped.read(out / old.slide_id, partial(_renew, store, old)) for old in done]
    return [slide for slide in found if slide is not None]


def _renew(store: JobStore, old: Slide, now: Slide) -> Slide:
    return store.renew(_renewed(old, now))


def _renewed(slide: Slide, now: Slide) -> Slide:
    """A slide with results that may be those of another file."""
    source = slide.source
    if source is not None and source_fingerprint(source) not in (now.fingerprint, None):
        source = None
    same = replace(slide, source=source, mpp=now.mpp, fingerprint=now.fingerprint)
    return replace(same, finished=now.finished, facts=now.facts)


def forget_vanished(out: Path, store: JobStore) -> None:
    """Update slides whose results somebody removed by hand."""
    for slide in store.every(DONE):
        if not (out / slide.slide_id / SUMMARY).is_file():
            store.vanished(slide.id, keep=slide.source is not None and slide.origin != FOUND)


def find_originals(store: JobStore, roots: Sequence[Path], stop: Event) -> int:
    """Look under the roots for slides whose file is missing, by content; returns how many were found."""
    wanted: dict[str, list[str]] = {}
    for slide in store.every():
        if slide.fingerprint is not None and (slide.source is None or not slide.source.exists()):
            wanted.setdefault(slide.fingerprint, []).append(slide.id)
    count = 0
    for fingerprint, path in find_by_content(wanted, roots, stop.is_set):
        for key in wanted[fingerprint]:
            store.locate(key, path)
            count += 1
    return count


def facts_of(folder: Path) -> dict[str, Any]:
    """The short version of a slide's results, which a list of slides shows; kept in the database."""
    # First, so that results that are replaced meanwhile are read once more.
    made = _made(folder)
    summary = read_summary(folder)
    return {
        MADE: made,
        "width": summary.grid.area[2],
        "height": summary.grid.area[3],
        "mpp": list(summary.grid.slide_mpp),
        "cancers": [
            {"name": name, "present": cancer.present, "confidence": cancer.confidence}
            for name, cancer in summary.cancers.items()
        ],
        "cancers_looked_for": [*summary.cancers],
        "tissue": [
            {
                "index": summary.classes.index(name),
                "name": name,
                "area_mm2": summary.areas_mm2[name],
                "share": fraction,
            }
            for name, fraction in summary.tissue_fractions.items()
        ],
        "familiarity": _familiarity(summary, folder),
        "warnings": list(summary.warnings),
        "quality_warnings": list(summary.quality_warnings),
        "tissue_area_mm2": summary.tissue_area_mm2,
        "pieces": len(summary.pieces),
        "layers": layers_with({name for name, file in FILES.items() if SlideFolder(folder).has(file)}),
    }


def _made(folder: Path) -> int | None:
    """When the results were written, in nanoseconds; None where there are none."""
    try:
        return (folder / SUMMARY).stat().st_mtime_ns
    except OSError:
        return None


def _familiarity(summary: Summary, folder: Path) -> dict[str, Any]:
    """The slide's verdict, which pieces are unfamiliar, and whether there is a map of where."""
    return {
        **asdict(summary.familiarity),
        "unfamiliar_pieces": [piece.number for piece in summary.pieces if not piece.familiarity.assessed],
        "has_map": SlideFolder(folder).has(FAMILIARITY_MAP),
    }
