"""``index.html``: many slides on one page, from the tables and the slides' thumbnails; and all pages made again.

No clock, no script; the page stays small, however many slides there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ntrm.core.errors import NtrmError
from ntrm.core.io import write_text, writing
from ntrm.core.labels import CANCERS, RGB, SAFE_COLOURS
from ntrm.core.locks import holding
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.core.wording import counted
from ntrm.report.html import css_colours, render, share_text
from ntrm.report.slide_picture import class_colours, stored_jpeg
from ntrm.report.slide_report import model_origin, write_slide_report
from ntrm.results.cohort import MEASURES, Cohort, CohortSlide, read_cohort
from ntrm.results.documents import NOTHING_TO_MEASURE
from ntrm.results.familiarity import NOT_ASSESSED, cancers_in_words
from ntrm.results.folder import SlideFolder
from ntrm.results.manifest import read_run
from ntrm.results.paths import CORRECTED, CORRECTED_LOCK, HIDDEN, INDEX, REPORT, RUN_LOCK, SUMMARY, THUMBNAIL

MOST_BYTES = 6000  # Of a thumbnail on the page; larger ones are left out
MOST_BARS = 150  # More slides than this are shown in groups
MOST_NAMED = 9  # Bars that have their names below them
BINS = 16

Content = dict[str, Any]  # What a template shows


@dataclass(frozen=True)
class Remade:
    """What became of the pages."""

    out: Path
    overview: Path
    reported: tuple[str, ...]  # Slides with a new report
    failures: tuple[tuple[str, str], ...]  # Slides that could not be reported, and why
    without: tuple[str, ...]  # Slides that have no results, since they failed

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON document."""
        return {
            "out": str(self.out),
            "overview": str(self.overview),
            "reported": list(self.reported),
            "failures": [{"slide_id": slide_id, "reason": reason} for slide_id, reason in self.failures],
            "without_results": list(self.without),
        }


def remake_reports(out: str | Path, *, jobs: int = 1, progress: Progress = SILENT) -> Remade:
    """Write the report of every slide that ``slides.csv`` calls done, then the overview."""
    folder = Path(out)
    read_run(folder)  # refuses a folder of something else, before there is a lock in it
    # The tables are of one moment: nobody writes them while they are read.
    with writing(folder), holding(folder / RUN_LOCK, wait=True):
        cohort = read_cohort(folder)
    folders = [folder / slide.slide_id for slide in cohort.done]
    reasons = progress.track(parallel_map(_attempt, folders, jobs), len(folders), "reports")
    outcomes = {slide.slide_id: reason for slide, reason in zip(cohort.done, reasons, strict=True)}
    with writing(folder), holding(folder / RUN_LOCK, wait=True):
        overview = write_overview(folder)
    return Remade(
        folder,
        overview,
        reported=tuple(slide_id for slide_id, reason in outcomes.items() if not reason),
        failures=tuple((slide_id, reason) for slide_id, reason in outcomes.items() if reason),
        without=tuple(slide.slide_id for slide in cohort.failed),
    )


def _attempt(folder: Path) -> str:
    """Empty, or why there is no report; one slide's error does not stop the others."""
    try:
        write_slide_report(folder)
        if (folder / CORRECTED).is_dir():
            SlideFolder(folder).check()
            # Not while a person's correction replaces that folder.
            with writing(folder), holding(folder / HIDDEN / CORRECTED_LOCK, wait=True):
                if SlideFolder(folder).has(CORRECTED, SUMMARY):
                    write_slide_report(folder / CORRECTED)
    except NtrmError as error:
        texts = (error.what, "" if error.got is None else f"got {error.got}", error.hint)
        return "; ".join(" ".join(text.split()) for text in texts if text)
    return ""


def write_overview(out: Path) -> Path:
    """Write ``out/index.html`` from ``out``'s tables; the same tables and thumbnails give the same bytes."""
    cohort = read_cohort(out)
    cancers = {name: sum(name in slide.cancers for slide in cohort.assessed) for name in cohort.cancers}
    left_out = len(cohort.done) - len(cohort.assessed)
    corrected = sum(slide.corrected_parts > 0 for slide in cohort.done)
    text = render(
        "overview.html",
        cohort=cohort,
        colours=css_colours(_tissue_colours(cohort, out), "t"),
        figures=_key_figures(cohort, left_out, corrected),
        cancers=[f"{name} on {count:,}" for name, count in cancers.items()] if cohort.assessed else [],
        classes=CANCERS,
        left_out=left_out,
        corrected=corrected,
        **_plots(cohort),
        measures=[(name, "") for name in MEASURES.values()],
        slides=[_row(slide, cohort, out / slide.slide_id) for slide in cohort.done],
        origin=_origin(cohort),
    )
    path = out / INDEX
    # No text from outside can hold this: its brackets would have been escaped.
    write_text(path, text.replace("<!-- size -->", f"{len(text.encode()) / 1e6:.2g}") + "\n")
    return path


def _key_figures(cohort: Cohort, left_out: int, corrected: int) -> list[tuple[str, str, str]]:
    area = sum(slide.tissue_area_mm2 or 0.0 for slide in cohort.done)
    figures = {
        "Slides done": f"{len(cohort.done):,}",
        "Failed": f"{len(cohort.failed):,}",
        "With warnings": f"{sum(bool(slide.warnings) for slide in cohort.done):,}",
        "Cancers not assessed": f"{left_out:,}" * bool(left_out),
        "Corrected by a person": f"{corrected:,}" * bool(corrected),
        "Tissue": f"{area:,.1f} mm²",
        "Pieces": f"{sum(slide.pieces for slide in cohort.done):,}",
    }
    return [(name, value, "") for name, value in figures.items() if value]


def _row(slide: CohortSlide, cohort: Cohort, folder: Path) -> Content:
    stored, link = SlideFolder(folder), quote(slide.slide_id, safe="")
    corrected = None
    if slide.corrected_parts:
        found = slide.corrected_cancers or (() if slide.corrected_assessed else None)
        corrected = {
            "text": f"corrected by a person, {counted(slide.corrected_parts, 'part')}",
            "cancers": cancers_in_words(found, cohort.cancers),
            "link": f"{link}/{CORRECTED}/{REPORT}" if stored.has(CORRECTED, REPORT) else "",
        }
    return {
        "slide": slide,
        "link": f"{link}/{REPORT}" if (folder / REPORT).is_file() else "",
        "thumbnail": stored_jpeg(stored, THUMBNAIL, MOST_BYTES),
        "corrected": corrected,
        "mix": _stops(slide.fractions, cohort.tissues),
        "measures": [(slide.measures[key], _why(slide, key)) for key in MEASURES],
    }


def _why(slide: CohortSlide, key: str) -> str:
    """Why the slide has no such length; where it has one, why other pieces have none although there may be tumour."""
    reasons = slide.reasons.get(key, ())
    if slide.measures[key] is None:
        return "; ".join(reasons)
    return "; ".join(f"{NOT_ASSESSED} in other pieces: {each}" for each in reasons if each not in NOTHING_TO_MEASURE)


def _tissue_colours(cohort: Cohort, out: Path) -> list[RGB]:
    """Colours of the tissues from the first mask that can be read; else those that are easily told apart."""
    palette: Sequence[RGB] = SAFE_COLOURS
    for slide in cohort.done[:20]:
        with suppress(NtrmError):
            palette = class_colours(out / slide.slide_id)
            break
    classes = cohort.run.classes
    indices = [classes.index(name) if name in classes else 0 for name in cohort.tissues]
    return [palette[index % len(palette)] for index in indices]


def _origin(cohort: Cohort) -> dict[str, str | list[str]]:
    model, program = cohort.run.model, cohort.run.program
    return {
        **model_origin(model),
        "µm/px of the masks": str(model.get("mpp")),
        "Program": f"{program.get('name')} {program.get('version')}",
        "Options": [f"{key}={value}" for key, value in cohort.run.options.items()],
    }


def _plots(cohort: Cohort) -> Content:
    slides = [slide for slide in cohort.assessed if slide.tissue_area_mm2]
    if not slides:
        return {"composition": None}
    values = {
        title: [value for slide in slides if (value := slide.measures[key]) is not None]
        for key, title in MEASURES.items()
    }
    distributions = [(title, "mm", histogram(known)) for title, known in values.items()]
    if cohort.cancers:
        shares = [100 * slide.tumour_fraction(cohort.cancers) for slide in slides]
        distributions.insert(0, ("Cancer in tissue", "%", histogram(shares)))
    return {
        "composition": composition(slides, cohort.tissues, cohort.cancers),
        "distributions": distributions,
        "missing": [f"{title.lower()} on {len(slides) - len(known):,}" for title, known in values.items()],
        "borders": borders(cohort.neighbours, cohort.tissues),
    }


def composition(slides: Sequence[CohortSlide], tissues: Sequence[str], cancers: Sequence[str]) -> Content:
    """A stacked column for each slide, or for groups of neighbouring slides of about one size, most cancer first."""
    order = sorted(slides, key=lambda slide: (-slide.tumour_fraction(cancers), slide.slide_id))
    count = min(len(order), MOST_BARS)
    columns = []
    for start, end in pairwise(round(k * len(order) / count) for k in range(count + 1)):
        group = order[start:end]
        means = {name: math.fsum(slide.fractions.get(name, 0.0) for slide in group) / len(group) for name in tissues}
        # Cancers stand at the bottom.
        stacked = dict(sorted(means.items(), key=lambda item: item[0] not in cancers))
        columns.append((group[0].slide_id, _stops(stacked, tissues)))
    return {"columns": columns, "named": count <= MOST_NAMED, "slides_each": len(order) / count}


def _stops(fractions: Mapping[str, float], tissues: Sequence[str]) -> str:
    """The tissues in one bar: the stops of a gradient."""
    stops, start = [], 0.0
    for name, fraction in fractions.items():
        if fraction > 0:
            stops.append(f"var(--t{tissues.index(name)}) {100 * start:.1f}% {100 * (start + fraction):.1f}%")
            start += fraction
    return ",".join(stops)


def histogram(values: Sequence[float]) -> list[tuple[str, int, float]]:
    """Where each bin begins, how many values are in it, and its height in percent of the highest one.

    Bins have a width of 1, 2, 5, 10 …; a value on a border belongs to the bin above.

    >>> histogram([0.1, 0.1, 8.0])[:2], histogram([0.1, 0.1, 8.0])[-1], histogram([])
    ([('0', 2, 100.0), ('0.5', 0, 0.0)], ('8', 1, 50.0), [])
    """
    if not values:
        return []
    least = (max(values) or 1.0) / BINS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))
    counts = Counter(math.floor(value / step + 1e-9) for value in values)
    most = max(counts.values())
    return [(f"{k * step:g}", counts[k], 100 * counts[k] / most) for k in range(max(counts) + 1)]


def borders(neighbours: Mapping[str, Mapping[str, float]], tissues: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """For each cancer its boundary with other tissues: the stops of a bar, and the shares in words, largest first."""
    rows = []
    for cancer, lengths in neighbours.items():
        total = math.fsum(lengths.values())
        shares = {name: length / total for name, length in sorted(lengths.items(), key=lambda item: -item[1]) if total}
        if shares:
            words = [f"{name} {share_text(share)}" for name, share in shares.items() if share > 0]
            rows.append((cancer, _stops(shares, tissues), words))
    return rows
