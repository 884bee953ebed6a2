"""Pictures of how sure a network is: whether it is right as often as it says, and where it doubts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.core.labels import LabelSchema
from ntrm.metrics.calibration import CalibrationCounts
from ntrm.report.drawing import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    new_figure,
    plain,
    say_nothing_here,
    set_title,
    trim,
    write_figure,
)
from ntrm.report.picture_grid import (
    Picture,
    check_same_size,
    draw_legend,
    legend_height,
    shrink_image,
    shrink_map,
    shrink_mask,
    tissue_swatches,
)

SURE, DOUBT = "cividis", "magma"
"""Maps whose lightness alone carries the value."""


def reliability_figure(before: CalibrationCounts, after: CalibrationCounts | None, path: Path) -> None:
    """Write accuracy against confidence, before and after calibration."""
    write_figure(path, lambda: draw_reliability(before, after))


def draw_reliability(before: CalibrationCounts, after: CalibrationCounts | None = None) -> Figure:
    """Reliability diagram above, share of the pixels by confidence below."""
    figure = new_figure(6.4, 7.4, constrained=True)
    diagram, pixels = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1.3))
    for axes in (diagram, pixels):
        trim(axes)
    diagram.plot([0, 1], [0, 1], color=FAINT, lw=1, ls=":", label="as sure as right")
    _draw_counts(diagram, pixels, before, "before calibration" if after else "as it is", ORANGE, "s", "--")
    if after is not None:
        _draw_counts(diagram, pixels, after, "after calibration", BLUE, "o", "-")
    diagram.set_xlim(0, 1)
    diagram.set_ylim(0, 1.02)
    diagram.set_ylabel("share of pixels that are right", fontsize=9)
    diagram.text(0.97, 0.05, "below the line: too sure", fontsize=8, color=FAINT, ha="right")
    diagram.legend(fontsize=8.5, frameon=False, loc="upper left")
    set_title(diagram, "Is it right as often as it is sure?")
    pixels.set_ylabel("share of pixels", fontsize=9)
    pixels.set_xlabel("confidence (probability of the predicted tissue)", fontsize=9)
    pixels.set_ylim(0, None)
    return figure


def uncertainty_figure(
    name: str,
    image: Picture,
    mask: NDArray[np.integer],
    confidence: NDArray[np.floating],
    entropy: NDArray[np.floating],
    schema: LabelSchema,
    path: Path,
) -> None:
    """Write image, predicted mask, confidence and entropy of one section."""
    write_figure(path, lambda: draw_uncertainty(name, image, mask, confidence, entropy, schema))


def draw_uncertainty(
    name: str,
    image: Picture,
    mask: NDArray[np.integer],
    confidence: NDArray[np.floating],
    entropy: NDArray[np.floating],
    schema: LabelSchema,
) -> Figure:
    """Two by two pictures; confidence and entropy both run from 0 to 1."""
    check_same_size(name, image, mask, confidence, entropy)
    legend, cell, bar = tissue_swatches(schema, mask), 3.4, 0.75
    tall = cell * min(1.0, image.shape[0] / image.shape[1])
    width = 2 * (cell + bar) + 0.3
    foot = legend_height(legend, width) + 0.2
    height = 2 * (tall + 0.36) + 0.3 + foot
    figure = new_figure(width, height)
    figure.text(0.15 / width, 1 - 0.12 / height, plain(name), fontsize=10.5, fontweight="bold", color=INK, va="top")
    titles = ("image", "predicted tissue", f"confidence (mean {_mean(confidence)})", f"entropy (mean {_mean(entropy)})")
    for place, title in enumerate(titles):
        left, bottom = 0.15 + place % 2 * (cell + bar), foot + (1 - place // 2) * (tall + 0.36)
        axes = figure.add_axes((left / width, bottom / height, cell / width, tall / height))
        axes.set_title(title, loc="left", fontsize=9, color=INK, pad=4)
        axes.set_xticks([])
        axes.set_yticks([])
        if place < 2:
            shown = shrink_image(image) if place == 0 else shrink_mask(mask, schema)
            axes.imshow(shown, interpolation="nearest")
            continue
        values, colours = (confidence, SURE) if place == 2 else (entropy, DOUBT)
        drawn = axes.imshow(shrink_map(values), cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        ruler = figure.add_axes(((left + cell + 0.08) / width, bottom / height, 0.12 / width, tall / height))
        figure.colorbar(drawn, cax=ruler).ax.tick_params(labelsize=7.5)
    draw_legend(figure, legend, bottom=0.12)
    return figure


def _draw_counts(
    diagram: Any, pixels: Any, counts: CalibrationCounts, label: str, colour: str, marker: str, style: str
) -> None:
    rows = counts.reliability()
    known = [(row.confidence, row.accuracy) for row in rows if row.pixels]
    if not known:
        say_nothing_here(diagram, "no annotated pixel")
        return
    error, brier = counts.expected_error or 0.0, counts.brier or 0.0
    text = f"{label}: calibration error {error:.3f}, Brier {brier:.3f}"
    diagram.plot(*zip(*known, strict=True), color=colour, marker=marker, ms=5, lw=1.6, ls=style, label=text)
    edges = [row.low for row in rows] + [1.0]
    pixels.stairs([row.pixels / counts.total for row in rows], edges, color=colour, lw=1.6, ls=style)


def _mean(values: NDArray[np.floating]) -> str:
    return f"{float(np.mean(values, dtype=np.float64)):.2f}"
