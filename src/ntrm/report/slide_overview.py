"""``index.html``: many slides on one page, from the tables and the slides' thumbnails; and all pages made again.

No clock, no script; the page stays small, however many slides there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from ntrm.report.html import css_colours, data_uri, render, share_text
from ntrm.report.slide_picture import class_colours
from ntrm.report.slide_report import model_origin, write_slide_report
from ntrm.results.cohort import MEASURES, Cohort, CohortSlide, read_cohort
from ntrm.results.documents import NOTHING_TO_MEASURE
from ntrm.results.familiarity import NOT_ASSESSED, cancers_in_words
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import CORRECTED, CORRECTED_LOCK, HIDDEN, INDEX, REPORT, RUN_LOCK, SUMMARY, THUMBNAIL
from ntrm.results.run_record import read_run

MOST_BYTES = 6000
"""Of a thumbnail on the page; larger ones are left out."""
WORTH_A_PROCESS = 8
"""Reports for which another process pays: it needs a second to start."""

MOST_BARS = 150
"""More slides than this are shown in groups."""
MOST_NAMED = 9
"""Bars that have their names below them."""
WIDTH, HEIGHT = 1000.0, 240.0
LEFT, RIGHT, BOTTOM, TOP = 44.0, 24.0, 26.0, 8.0
SMALL = (480.0, 220.0)
BINS = 16

Content = dict[str, Any]
"""What a template shows."""


@dataclass(frozen=True)
class Remade:
    """What became of the pages."""

    out: Path
    overview: Path
    reported: tuple[str, ...]
    """Slides with a new report."""
    failures: tuple[tuple[str, str], ...]
    """Slides that could not be reported, and why."""
    without: tuple[str, ...]
    """Slides that have no results, since they failed."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
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
    workers = min(jobs, max(1, len(folders) // WORTH_A_PROCESS)) if jobs > 1 else jobs
    reasons = progress.track(parallel_map(_attempt, folders, workers), len(folders), "reports")
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
    return [
        ("Slides done", f"{len(cohort.done):,}", ""),
        ("Failed", f"{len(cohort.failed):,}", ""),
        ("With warnings", f"{sum(bool(slide.warnings) for slide in cohort.done):,}", ""),
        *([("Cancers not assessed", f"{left_out:,}", "")] if left_out else []),
        *([("Corrected by a person", f"{corrected:,}", "")] if corrected else []),
        ("Tissue", f"{area:,.1f} mm²", ""),
        ("Pieces", f"{sum(slide.pieces for slide in cohort.done):,}", ""),
    ]


def _row(slide: CohortSlide, cohort: Cohort, folder: Path) -> Content:
    return {
        "slide": slide,
        "link": f"{quote(slide.slide_id, safe='')}/{REPORT}" if (folder / REPORT).is_file() else "",
        "thumbnail": _thumbnail(SlideFolder(folder)),
        "corrected": _corrected(slide, cohort.cancers, folder) if slide.corrected_parts else None,
        "mix": _mix(slide, cohort),
        "measures": [(slide.measures[key], _why(slide, key)) for key in MEASURES],
    }


def _why(slide: CohortSlide, key: str) -> str:
    """Why the slide has no such length; where it has one, why other pieces have none although there may be tumour."""
    reasons = slide.reasons.get(key, ())
    if slide.measures[key] is None:
        return "; ".join(reasons)
    return "; ".join(f"{NOT_ASSESSED} in other pieces: {each}" for each in reasons if each not in NOTHING_TO_MEASURE)


def _corrected(slide: CohortSlide, cancers: Sequence[str], folder: Path) -> Content:
    """What a person corrected in the slide, and where that report is."""
    there = SlideFolder(folder).has(CORRECTED, REPORT)
    found = slide.corrected_cancers or (() if slide.corrected_assessed else None)
    return {
        "text": f"corrected by a person, {counted(slide.corrected_parts, 'part')}",
        "cancers": cancers_in_words(found, cancers),
        "link": f"{quote(slide.slide_id, safe='')}/{CORRECTED}/{REPORT}" if there else "",
    }


def _mix(slide: CohortSlide, cohort: Cohort) -> str:
    """All tissues of a slide in one bar: the stops of a gradient."""
    stops, start = [], 0.0
    for index, name in enumerate(cohort.tissues):
        fraction = slide.fractions.get(name, 0.0)
        if fraction > 0:
            stops.append(f"var(--t{index}) {100 * start:.1f}% {100 * (start + fraction):.1f}%")
            start += fraction
    return ",".join(stops)


def _thumbnail(folder: SlideFolder) -> str:
    try:
        content = folder.read(THUMBNAIL, most=MOST_BYTES)
    except OSError:
        return ""
    return data_uri(content, "jpeg") if content.startswith(b"\xff\xd8\xff") else ""


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


@dataclass(frozen=True)
class Bar:
    """A bar, and the text that shows when one points at it."""

    left: float
    top: float
    width: float
    height: float
    tooltip: str
    index: int | None = None
    """Of the tissue whose colour it has."""


@dataclass(frozen=True)
class Label:
    """A text of a plot."""

    x: float
    y: float
    text: str
    anchor: str = "middle"
    faint: bool = True


@dataclass
class Plot:
    """Where everything of a plot goes."""

    title: str
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT
    bars: list[Bar] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    grid: list[float] = field(default_factory=list)
    caption: str = ""

    def scale(self, ticks: Iterable[tuple[float, str]], high: float) -> None:
        """Lines across, each at a fraction of the height."""
        for fraction, text in ticks:
            y = TOP + high * (1 - fraction)
            self.grid.append(y)
            self.labels.append(Label(LEFT - 6, y + 4, text, "end"))


def _plots(cohort: Cohort) -> Content:
    slides = [slide for slide in cohort.assessed if slide.tissue_area_mm2]
    if not slides:
        return {"composition": None}
    values = {
        title: [value for slide in slides if (value := slide.measures[key]) is not None]
        for key, title in MEASURES.items()
    }
    tumour = [slide.tumour_fraction(cohort.cancers) for slide in slides]
    bordering = any(sum(by_tissue.values()) for by_tissue in cohort.neighbours.values())
    return {
        "composition": composition(slides, cohort.tissues, cohort.cancers),
        "distributions": [
            *([histogram(tumour, "Cancer in tissue", "%")] if cohort.cancers else []),
            *(histogram(known, title, "mm") for title, known in values.items()),
        ],
        "missing": [f"{title.lower()} on {len(slides) - len(known):,}" for title, known in values.items()],
        "borders": borders(cohort.neighbours, cohort.tissues) if bordering else None,
    }


def composition(slides: Sequence[CohortSlide], tissues: Sequence[str], cancers: Sequence[str]) -> Plot:
    """A stacked bar for each slide, or for groups of slides, most cancer first."""
    order = sorted(slides, key=lambda slide: (-slide.tumour_fraction(cancers), slide.slide_id))
    groups = grouped(order, MOST_BARS)
    first = ", most cancer first" if cancers else ""
    plot = Plot("Tissue composition", caption=f"Each bar is a slide{first}.")
    if len(groups) < len(order):
        plot.caption = f"Each bar is the mean of about {len(order) / len(groups):.0f} slides{first}."
    high = HEIGHT - TOP - BOTTOM
    plot.scale([(fraction, f"{fraction:.0%}") for fraction in (0.0, 0.25, 0.5, 0.75, 1.0)], high)
    stacked = sorted(tissues, key=lambda name: name not in cancers)
    step = (WIDTH - LEFT) / max(len(groups), 1)
    wide = min(step * 0.9, 60.0)
    for number, group in enumerate(groups):
        name = group[0].slide_id
        who = name if len(group) == 1 else f"{len(group)} slides"
        top = TOP + high
        for tissue in stacked:
            fraction = math.fsum(slide.fractions.get(tissue, 0.0) for slide in group) / len(group)
            if fraction > 0:
                top -= fraction * high
                left, text = LEFT + number * step + (step - wide) / 2, f"{who}: {tissue} {share_text(fraction)}"
                plot.bars.append(Bar(left, top, wide, fraction * high, text, tissues.index(tissue)))
        if len(groups) <= MOST_NAMED:
            short = name if len(name) <= 12 else f"{name[:11]}…"
            plot.labels.append(Label(LEFT + (number + 0.5) * step, HEIGHT - 8, short))
    return plot


def grouped(slides: Sequence[CohortSlide], most: int) -> list[Sequence[CohortSlide]]:
    """Slides in at most ``most`` groups of neighbours, of sizes that differ by one at most."""
    count = min(len(slides), most)
    cuts = [round(k * len(slides) / count) for k in range(count + 1)] if count else [0]
    return [slides[start:end] for start, end in pairwise(cuts)]


def nice_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10 … times a power of ten that is not below ``least``.

    >>> nice_step(0.03), nice_step(7)
    (0.05, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(float(f"{step * power:.12g}") for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))


def bins(values: Sequence[float]) -> tuple[float, list[int]]:
    """Width of the bins, from 0, and how many values are in each; a value on a border belongs to the bin above.

    >>> bins([0.0, 0.4, 1.0, 8.0])
    (0.5, [2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    """
    step = nice_step((max(values) or 1.0) / BINS)
    counts = Counter(math.floor(value / step + 1e-9) for value in values)
    return step, [counts[k] for k in range(max(counts) + 1)]


def histogram(values: Sequence[float], title: str, unit: str) -> Plot:
    """How many slides have which value; ``unit`` is ``mm`` or ``%``."""
    if not values:
        return Plot(title, SMALL[0], 60, labels=[Label(0, 36, f"no slide has one: {title}", "start")])
    plot = Plot(title, *SMALL)
    step, counts = bins(values)
    most, high = max(counts), plot.height - TOP - BOTTOM - 16
    wide = (plot.width - LEFT - RIGHT) / len(counts)
    edges = [f"{k * step * 100:g}" if unit == "%" else f"{k * step:g}" for k in range(len(counts) + 1)]
    plot.scale([(count / most, str(count)) for count in sorted({0, most // 2, most})], high)
    for k, count in enumerate(counts):
        tall = high * count / most
        text = f"{edges[k]} to {edges[k + 1]} {unit}: {count}"
        plot.bars.append(Bar(LEFT + k * wide + 0.5, TOP + high - tall, max(wide - 1, 1), tall, text))
    for k in range(0, len(counts) + 1, max(1, math.ceil(len(counts) / 6))):
        plot.labels.append(Label(LEFT + k * wide, TOP + high + 17, edges[k]))
    plot.labels.append(Label(LEFT + (plot.width - LEFT) / 2, plot.height - 6, f"{title}, {unit}", faint=False))
    return plot


def borders(neighbours: Mapping[str, Mapping[str, float]], tissues: Sequence[str]) -> Plot:
    """For each cancer, the fractions of its boundary with other tissues."""
    rows = [(cancer, lengths) for cancer, lengths in neighbours.items() if sum(lengths.values()) > 0]
    line = 46.0
    plot = Plot("What cancers border on", height=TOP + max(len(rows), 1) * line)
    for number, (cancer, lengths) in enumerate(rows):
        y, x, total = TOP + number * line, LEFT, sum(lengths.values())
        plot.labels.append(Label(LEFT - 6, y + 19, cancer, "end", faint=False))
        for name, length in sorted(lengths.items(), key=lambda item: -item[1]):
            fraction = share_text(length / total)
            wide = length / total * (WIDTH - LEFT)
            text = f"{cancer} – {name}: {length:.2f} mm, {fraction}"
            plot.bars.append(Bar(x, y, wide, 26, text, tissues.index(name)))
            if wide > 74:
                plot.labels.append(Label(x + wide / 2, y + 40, f"{name} {fraction}"))
            x += wide
    return plot
