"""``index.html``: many slides on one page, from the tables and the slides' thumbnails; and all pages made again.

No clock, no script; the page stays small, however many slides there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ntrm.core.errors import NtrmError
from ntrm.core.io import write_text
from ntrm.core.labels import RGB, SAFE_COLOURS
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.report.html import css_colours, data_uri, render, share_text
from ntrm.report.slide_picture import class_colours
from ntrm.report.slide_report import model_origin, write_slide_report
from ntrm.results.cohort import MEASURES, Cohort, CohortSlide, read_cohort
from ntrm.results.paths import INDEX, REPORT, THUMBNAIL

MOST_BYTES = 6000
"""Of a thumbnail on the page; larger ones are left out."""
WORTH_A_PROCESS = 8
"""Reports for which another process pays: it needs a second to start."""

MOST_BARS = 150
"""More slides than this are put together to groups."""
MOST_NAMED = 9
"""Bars that have their names below them."""
WIDTH, HEIGHT = 1000.0, 240.0
LEFT, RIGHT, BOTTOM, TOP = 44.0, 24.0, 26.0, 8.0
SMALL = (480.0, 220.0)
BINS = 16

Content = dict[str, Any]
Shares = Mapping[str, float]


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
    cohort = read_cohort(folder)
    folders = [folder / slide.slide_id for slide in cohort.done]
    workers = min(jobs, max(1, len(folders) // WORTH_A_PROCESS)) if jobs > 1 else jobs
    found = parallel_map(_attempt, folders, workers)
    reasons = list(progress.track(found, len(folders), "reports"))
    outcomes = [(slide.slide_id, reason) for slide, reason in zip(cohort.done, reasons, strict=True)]
    return Remade(
        folder,
        write_overview(folder),
        tuple(slide_id for slide_id, reason in outcomes if not reason),
        tuple((slide_id, reason) for slide_id, reason in outcomes if reason),
        tuple(slide.slide_id for slide in cohort.failed),
    )


def _attempt(folder: Path) -> str:
    """Empty, or why there is no report; one slide's error does not stop the others."""
    try:
        write_slide_report(folder)
    except NtrmError as error:
        parts = [error.what, *([f"got {error.got}"] if error.got is not None else []), error.hint]
        return "; ".join(" ".join(str(part).split()) for part in parts if part)
    return ""


def write_overview(out: Path) -> Path:
    """Write ``out/index.html`` from ``out``'s tables; the same tables and thumbnails give the same bytes."""
    cohort = read_cohort(out)
    text = render(
        "overview.html",
        cohort=cohort,
        colours=css_colours(_tissue_colours(cohort, out), "t"),
        figures=_key_figures(cohort),
        cancers=[f"{name} on {sum(name in slide.cancers for slide in cohort.done):,}" for name in cohort.cancers]
        if cohort.done
        else [],
        **_plots(cohort),
        measures=[(name, "") for name in MEASURES.values()],
        slides=[_row(slide, cohort, out / slide.slide_id) for slide in cohort.done],
        origin=_origin(cohort),
    )
    path = out / INDEX
    # No text from outside can hold this: its brackets would have been escaped.
    write_text(path, text.replace("<!-- size -->", f"{len(text.encode()) / 1e6:.2g}") + "\n")
    return path


def _key_figures(cohort: Cohort) -> list[tuple[str, str, str]]:
    area = sum(slide.tissue_area_mm2 or 0.0 for slide in cohort.done)
    return [
        ("Slides done", f"{len(cohort.done):,}", ""),
        ("Failed", f"{len(cohort.failed):,}", ""),
        ("With warnings", f"{sum(bool(slide.warnings) for slide in cohort.done):,}", ""),
        ("Tissue", f"{area:,.1f} mm²", ""),
        ("Pieces", f"{sum(slide.pieces for slide in cohort.done):,}", ""),
    ]


def _row(slide: CohortSlide, cohort: Cohort, folder: Path) -> Content:
    return {
        "slide": slide,
        "link": f"{quote(slide.slide_id, safe='')}/{REPORT}" if (folder / REPORT).is_file() else "",
        "thumbnail": _thumbnail(folder / THUMBNAIL),
        "mix": _mix(slide, cohort),
        "measures": [(slide.measures[key], slide.reasons.get(key, "")) for key in MEASURES],
    }


def _mix(slide: CohortSlide, cohort: Cohort) -> str:
    """All tissues of a slide in one bar: the stops of a gradient."""
    stops, at = [], 0.0
    for index, name in enumerate(cohort.tissues):
        share = slide.fractions.get(name, 0.0)
        if share > 0:
            stops.append(f"var(--t{index}) {100 * at:.1f}% {100 * (at + share):.1f}%")
            at += share
    return ",".join(stops)


def _thumbnail(path: Path) -> str:
    try:
        content = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
    except OSError:
        return ""
    return data_uri(content, "jpeg") if content.startswith(b"\xff\xd8\xff") else ""


def _tissue_colours(cohort: Cohort, out: Path) -> list[RGB]:
    """Colours of the tissues from the first mask that tells them; else those that are easily told apart."""
    palette: Sequence[RGB] = SAFE_COLOURS
    for slide in cohort.done[:20]:
        try:
            palette = class_colours(out / slide.slide_id)
            break
        except NtrmError:
            continue
    places = [cohort.classes.index(name) if name in cohort.classes else 0 for name in cohort.tissues]
    return [palette[place % len(palette)] for place in places]


def _origin(cohort: Cohort) -> dict[str, str | list[str]]:
    model, program = cohort.about["model"], cohort.about["program"]
    return {
        **model_origin(model),
        "µm/px of the masks": str(model.get("mpp")),
        "Program": f"{program.get('name')} {program.get('version')}",
        "Options": [f"{key}={value}" for key, value in cohort.about["options"].items()],
    }


@dataclass(frozen=True)
class Bar:
    """A bar, and what is said of it."""

    left: float
    top: float
    width: float
    height: float
    said: str
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
    said: str = ""

    def scale(self, ticks: Iterable[tuple[float, str]], high: float) -> None:
        """Lines across, each at a share of the height."""
        for share, text in ticks:
            y = TOP + high * (1 - share)
            self.grid.append(y)
            self.labels.append(Label(LEFT - 6, y + 4, text, "end"))


def _plots(cohort: Cohort) -> Content:
    slides = [slide for slide in cohort.done if slide.tissue_area_mm2]
    if not slides:
        return {"composition": None}
    shares = [slide.tumour_share(cohort.cancers) for slide in slides]
    known = {
        title: [value for slide in slides if (value := slide.measures[key]) is not None]
        for key, title in MEASURES.items()
    }
    bordering = any(sum(by.values()) for by in cohort.neighbours.values())
    return {
        "composition": composition(slides, cohort.tissues, cohort.cancers),
        "distributions": [
            *([histogram(shares, "Cancer in tissue", "%")] if cohort.cancers else []),
            *(histogram(values, title, "mm") for title, values in known.items()),
        ],
        "missing": [f"{title.lower()} on {len(slides) - len(values):,}" for title, values in known.items()],
        "borders": borders(cohort.neighbours, cohort.tissues) if bordering else None,
    }


def composition(slides: Sequence[CohortSlide], tissues: Sequence[str], cancers: Sequence[str]) -> Plot:
    """A stacked bar for each slide, or for groups of slides, by their share of cancer."""
    order = sorted(slides, key=lambda slide: (-slide.tumour_share(cancers), slide.slide_id))
    shown = [slide for slide in order if slide.tissue_area_mm2]
    groups = grouped(shown, MOST_BARS)
    plot = Plot("Tissue composition", said="Each bar is a slide, most cancer first.")
    if len(groups) < len(shown):
        plot.said = f"Each bar is the mean of about {len(shown) / len(groups):.0f} slides, most cancer first."
    plot.scale([(share, f"{share:.0%}") for share in (0.0, 0.25, 0.5, 0.75, 1.0)], HEIGHT - TOP - BOTTOM)
    stacked = [*(name for name in tissues if name in cancers), *(name for name in tissues if name not in cancers)]
    step = (WIDTH - LEFT) / max(len(groups), 1)
    wide = min(step * 0.9, 60.0)
    for at, group in enumerate(groups):
        shares = {name: math.fsum(slide.fractions.get(name, 0.0) for slide in group) / len(group) for name in stacked}
        plot.bars += _stack(shares, LEFT + at * step + (step - wide) / 2, wide, tissues, _who(group))
        if len(groups) <= MOST_NAMED:
            name = group[0].slide_id
            short = name if len(name) <= 12 else f"{name[:11]}…"
            plot.labels.append(Label(LEFT + (at + 0.5) * step, HEIGHT - 8, short))
    return plot


def grouped(slides: Sequence[CohortSlide], most: int) -> list[Sequence[CohortSlide]]:
    """Slides in at most ``most`` groups of neighbours, of sizes that differ by one at most."""
    count = min(len(slides), most)
    cuts = [round(at * len(slides) / count) for at in range(count + 1)] if count else [0]
    return [slides[start:end] for start, end in pairwise(cuts)]


def _who(group: Sequence[CohortSlide]) -> str:
    return group[0].slide_id if len(group) == 1 else f"{len(group)} slides"


def _stack(shares: Shares, left: float, width: float, tissues: Sequence[str], who: str) -> Iterable[Bar]:
    high = HEIGHT - TOP - BOTTOM
    top = TOP + high
    for name, share in shares.items():
        if share > 0:
            top -= share * high
            yield Bar(left, top, width, share * high, f"{who}: {name} {share_text(share)}", tissues.index(name))


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
    largest = max(values)
    step = nice_step((largest or 1.0) / BINS)
    counts = [0] * (math.floor(largest / step + 1e-9) + 1)
    for value in values:
        counts[math.floor(value / step + 1e-9)] += 1
    return step, counts


def histogram(values: Sequence[float], title: str, unit: str) -> Plot:
    """How many slides have which value; ``unit`` is ``mm`` or ``%``."""
    if not values:
        return Plot(title, SMALL[0], 60, labels=[Label(0, 36, f"no slide has one: {title}", "start")])
    plot = Plot(title, *SMALL)
    step, counts = bins(values)
    most, high = max(counts), plot.height - TOP - BOTTOM - 16
    wide = (plot.width - LEFT - RIGHT) / len(counts)
    plot.scale([(count / most, str(count)) for count in sorted({0, most // 2, most})], high)
    for at, count in enumerate(counts):
        tall = high * count / most
        said = f"{_tick(at * step, unit)} to {_tick((at + 1) * step, unit)} {unit}: {count}"
        plot.bars.append(Bar(LEFT + at * wide + 0.5, TOP + high - tall, max(wide - 1, 1), tall, said))
    for at in range(0, len(counts) + 1, max(1, math.ceil(len(counts) / 6))):
        plot.labels.append(Label(LEFT + at * wide, TOP + high + 17, _tick(at * step, unit)))
    plot.labels.append(Label(LEFT + (plot.width - LEFT) / 2, plot.height - 6, f"{title}, {unit}", faint=False))
    return plot


def _tick(value: float, unit: str) -> str:
    return f"{value * 100:g}" if unit == "%" else f"{value:g}"


def borders(neighbours: Mapping[str, Shares], tissues: Sequence[str]) -> Plot:
    """For each cancer, the shares of its boundary with other tissues."""
    rows = [(cancer, by) for cancer, by in neighbours.items() if sum(by.values()) > 0]
    line = 46.0
    plot = Plot("What cancers border on", height=TOP + max(len(rows), 1) * line)
    for at, (cancer, by) in enumerate(rows):
        y, x, whole = TOP + at * line, LEFT, sum(by.values())
        plot.labels.append(Label(LEFT - 6, y + 19, cancer, "end", faint=False))
        for name in sorted(by, key=lambda each: -by[each]):
            share = by[name] / whole
            wide = share * (WIDTH - LEFT)
            said = f"{cancer} – {name}: {by[name]:.2f} mm, {share_text(share)}"
            plot.bars.append(Bar(x, y, wide, 26, said, tissues.index(name)))
            if wide > 74:
                plot.labels.append(Label(x + wide / 2, y + 40, f"{name} {share_text(share)}"))
            x += wide
    return plot
