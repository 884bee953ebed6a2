"""``index.html``: many slides on one small page, from the tables and thumbnails; and all pages made again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ntrm.core.errors import NtrmError
from ntrm.core.io import holding, writing
from ntrm.core.labels import CANCERS, RGB, SAFE_COLOURS, WHITE
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.core.wording import counted
from ntrm.report.html import css_colours, share_text, write_page
from ntrm.report.slide_picture import stored_jpeg
from ntrm.report.slide_report import model_origin, write_slide_report
from ntrm.results.classes import folder_classes
from ntrm.results.cohort import MEASURES, Cohort, CohortSlide, read_cohort
from ntrm.results.documents import NOTHING_TO_MEASURE
from ntrm.results.familiarity import NOT_ASSESSED, cancers_in_words
from ntrm.results.folder import SlideFolder
from ntrm.results.manifest import read_run
from ntrm.results.mask_file import colours_in, opened_mask
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
    failures: tuple[dict[str, str], ...]  # ``slide_id`` and ``reason`` of those that could not be reported
    without_results: tuple[str, ...]  # Slides that failed

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON document."""
        return {**asdict(self), "out": str(self.out), "overview": str(self.overview)}


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
    reported = tuple(slide_id for slide_id, reason in outcomes.items() if not reason)
    failures = tuple({"slide_id": slide_id, "reason": reason} for slide_id, reason in outcomes.items() if reason)
    return Remade(folder, overview, reported, failures, tuple(slide.slide_id for slide in cohort.failed))


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
    model, program = cohort.run.model, cohort.run.program
    write_page(
        out / INDEX,
        "overview.html",
        cohort=cohort,
        colours=css_colours(_tissue_colours(cohort, out), "t"),
        figures=[(name, value, "") for name, value in figures.items() if value],
        cancers=[f"{name} on {count:,}" for name, count in cancers.items()] if cohort.assessed else [],
        classes=CANCERS,
        left_out=left_out,
        corrected=corrected,
        **_plots(cohort),
        measures=[(name, "") for name in MEASURES.values()],
        slides=[_row(slide, cohort, out / slide.slide_id) for slide in cohort.done],
        origin={
            **model_origin(model),
            "µm/px of the masks": f"{cohort.run.mpp:g}",
            "Program": f"{program.get('name')} {program.get('version')}",
            "Options": [f"{key}={value}" for key, value in cohort.run.options.items()],
        },
    )
    return out / INDEX


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
    measures = []
    for key, length in slide.measures.items():
        reasons = slide.reasons.get(key, ())
        if length is not None:  # why other pieces have none, although there may be tumour
            reasons = [f"{NOT_ASSESSED} in other pieces: {why}" for why in reasons if why not in NOTHING_TO_MEASURE]
        measures.append((length, "; ".join(reasons)))
    return {
        "slide": slide,
        "link": f"{link}/{REPORT}" if (folder / REPORT).is_file() else "",
        "thumbnail": stored_jpeg(stored, THUMBNAIL, MOST_BYTES),
        "corrected": corrected,
        "mix": _stops(slide.fractions, cohort.tissues),
        "measures": measures,
    }


def _tissue_colours(cohort: Cohort, out: Path) -> list[RGB]:
    """Colours of the tissues as people chose them, or from the first mask that can be read; else safe ones."""
    if cohort.run.model is None:
        colours = {tissue.name: tissue.rgb for tissue in folder_classes(out).tissues}
        return [colours.get(name, WHITE) for name in cohort.tissues]
    palette: Sequence[RGB] = SAFE_COLOURS
    for slide in cohort.done[:20]:
        with suppress(NtrmError), opened_mask(out / slide.slide_id) as stored:
            palette = colours_in(stored)
            break
    classes = cohort.run.classes
    indices = [classes.index(name) if name in classes else 0 for name in cohort.tissues]
    return [palette[index % len(palette)] for index in indices]


def _plots(cohort: Cohort) -> Content:
    slides = [slide for slide in cohort.assessed if slide.tissue_area_mm2]
    if not slides:
        return {"composition": None}
    lengths = {title: [slide.measures[key] for slide in slides] for key, title in MEASURES.items()}
    values = {title: [length for length in each if length is not None] for title, each in lengths.items()}
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
        stacked = dict(sorted(means.items(), key=lambda item: item[0] not in cancers))  # cancers at the bottom
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
