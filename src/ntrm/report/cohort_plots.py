"""Plots of many slides as SVG: composition, distributions, what cancers border on. Bounded, however many slides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise

from ntrm.report.cohort import CohortSlide
from ntrm.report.formatting import share_text
from ntrm.report.page import Markup

MOST_BARS = 150
"""More slides than this are put together to groups."""
MOST_NAMED = 9
"""Bars that have their names below them."""
WIDTH, HEIGHT = 1000.0, 240.0
LEFT, RIGHT, BOTTOM, TOP = 44.0, 24.0, 26.0, 8.0
SMALL = (480.0, 220.0)
BINS = 16

Shares = Mapping[str, float]


def composition(slides: Sequence[CohortSlide], tissues: Sequence[str], cancers: Sequence[str]) -> tuple[Markup, str]:
    """A stacked bar for each slide, or for groups of slides, by their share of cancer; and what to say of it."""
    order = sorted(slides, key=lambda slide: (-slide.tumour_share(cancers), slide.slide_id))
    shown = [slide for slide in order if slide.tissue_area_mm2]
    groups = grouped(shown, MOST_BARS)
    stacked = [*(name for name in tissues if name in cancers), *(name for name in tissues if name not in cancers)]
    step = (WIDTH - LEFT) / max(len(groups), 1)
    high = HEIGHT - TOP - BOTTOM
    parts = [_axis_share(WIDTH, HEIGHT)]
    for at, group in enumerate(groups):
        shares = {name: math.fsum(slide.fractions.get(name, 0.0) for slide in group) / len(group) for name in stacked}
        wide = min(step * 0.9, 60.0)
        parts.append(_stack(shares, LEFT + at * step + (step - wide) / 2, wide, high, tissues, _who(group)))
        if len(groups) <= MOST_NAMED:
            name = group[0].slide_id
            shown_name = name if len(name) <= 12 else f"{name[:11]}…"
            parts.append(
                f'<text class="faint" x="{LEFT + (at + 0.5) * step:.1f}" y="{HEIGHT - 8:.0f}" text-anchor="middle">'
                f"{escape(shown_name)}</text>"
            )
    sentence = "Each bar is a slide, most cancer first."
    if len(groups) < len(shown):
        sentence = f"Each bar is the mean of about {len(shown) / len(groups):.0f} slides, most cancer first."
    return _svg("Tissue composition", WIDTH, HEIGHT, "".join(parts)), sentence


def grouped(slides: Sequence[CohortSlide], most: int) -> list[Sequence[CohortSlide]]:
    """Slides in at most ``most`` groups of neighbours, of sizes that differ by one at most."""
    count = min(len(slides), most)
    cuts = [round(at * len(slides) / count) for at in range(count + 1)] if count else [0]
    return [slides[start:end] for start, end in pairwise(cuts)]


def _who(group: Sequence[CohortSlide]) -> str:
    return group[0].slide_id if len(group) == 1 else f"{len(group)} slides"


def _stack(shares: Shares, left: float, width: float, high: float, tissues: Sequence[str], who: str) -> str:
    parts, below = [], TOP + high
    for name, share in shares.items():
        if share <= 0:
            continue
        below -= share * high
        said = escape(f"{who}: {name} {share_text(share)}")
        parts.append(
            f'<rect x="{left:.1f}" y="{below:.2f}" width="{width:.1f}" height="{share * high:.2f}" '
            f'style="fill:var(--t{tissues.index(name)})"><title>{said}</title></rect>'
        )
    return "".join(parts)


def _axis_share(width: float, height: float) -> str:
    high = height - TOP - BOTTOM
    lines = ""
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = TOP + high * (1 - share)
        lines += (
            f'<line class="grid" x1="{LEFT:.0f}" y1="{y:.1f}" x2="{width:.0f}" y2="{y:.1f}"/>'
            f'<text class="faint" x="{LEFT - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        )
    return lines


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


def histogram(values: Sequence[float], title: str, unit: str) -> Markup:
    """How many slides have which value; ``unit`` is ``mm`` or ``%``."""
    width, height = SMALL
    if not values:
        return _svg(title, width, 60, f'<text class="faint" x="0" y="36">no slide has one: {escape(title)}</text>')
    step, counts = bins(values)
    most, high = max(counts), height - TOP - BOTTOM - 16
    wide = (width - LEFT - RIGHT) / len(counts)
    parts = []
    for count in sorted({0, most // 2, most}):
        y = TOP + high * (1 - count / most)
        parts.append(
            f'<line class="grid" x1="{LEFT:.0f}" y1="{y:.1f}" x2="{width:.0f}" y2="{y:.1f}"/>'
            f'<text class="faint" x="{LEFT - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{count}</text>'
        )
    for at, count in enumerate(counts):
        tall = high * count / most
        span = f"{_tick(at * step, unit)} to {_tick((at + 1) * step, unit)} {unit}: {count}"
        parts.append(
            f'<rect class="column" x="{LEFT + at * wide + 0.5:.1f}" y="{TOP + high - tall:.1f}" '
            f'width="{max(wide - 1, 1):.1f}" height="{tall:.1f}"><title>{escape(span)}</title></rect>'
        )
    every = max(1, math.ceil(len(counts) / 6))
    parts += [
        f'<text class="faint" x="{LEFT + at * wide:.1f}" y="{TOP + high + 17:.0f}" text-anchor="middle">'
        f"{_tick(at * step, unit)}</text>"
        for at in range(0, len(counts) + 1, every)
    ]
    middle = LEFT + (width - LEFT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{height - 6:.0f}" text-anchor="middle">{escape(title)}, {unit}</text>')
    return _svg(title, width, height, "".join(parts))


def _tick(value: float, unit: str) -> str:
    return f"{value * 100:g}" if unit == "%" else f"{value:g}"


def borders(neighbours: Mapping[str, Shares], tissues: Sequence[str]) -> Markup:
    """For each cancer, the shares of its boundary with other tissues."""
    rows = [(cancer, by) for cancer, by in neighbours.items() if sum(by.values()) > 0]
    line, width = 46.0, WIDTH
    parts = []
    for at, (cancer, by) in enumerate(rows):
        y, x, whole = TOP + at * line, LEFT, sum(by.values())
        parts.append(f'<text x="{LEFT - 6:.0f}" y="{y + 19:.0f}" text-anchor="end">{escape(cancer)}</text>')
        for name in sorted(by, key=lambda each: -by[each]):
            share = by[name] / whole
            wide = share * (width - LEFT)
            said = escape(f"{cancer} – {name}: {by[name]:.2f} mm, {share_text(share)}")
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="26" '
                f'style="fill:var(--t{tissues.index(name)})"><title>{said}</title></rect>'
            )
            if wide > 74:
                parts.append(
                    f'<text class="faint" x="{x + wide / 2:.1f}" y="{y + 40:.1f}" text-anchor="middle">'
                    f"{escape(name)} {share_text(share)}</text>"
                )
            x += wide
    return _svg("What cancers border on", width, TOP + max(len(rows), 1) * line, "".join(parts))


def _svg(title: str, width: float, height: float, inner: str) -> Markup:
    box = f"0 0 {width:.0f} {height:.0f}"
    return Markup(f'<svg class="plot" viewBox="{box}" role="img" aria-label="{escape(title)}">{inner}</svg>')
