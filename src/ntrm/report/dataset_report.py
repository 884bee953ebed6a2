"""A dataset at a glance: a contact sheet, pixels and boundaries of its tissues, and the page of ``ntrm demo``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ntrm.core.errors import DataError
from ntrm.core.progress import SILENT, Progress
from ntrm.data.check import CheckReport
from ntrm.data.dataset import Dataset
from ntrm.data.image_files import read_image, read_mask
from ntrm.data.stats import DatasetStats
from ntrm.report import drawing
from ntrm.report.drawing import FAINT, INK, write_figure
from ntrm.report.html import write_page
from ntrm.report.picture_grids import draw_grid

MOST, COLUMNS = 24, 3  # Of the contact sheet: sections, and how many stand side by side
SIDE = 300  # Of a picture on the contact sheet, in pixels


def dataset_report(
    path: Path, dataset: Dataset, stats: DatasetStats, check: CheckReport, *, more: dict[str, Any], progress: Progress
) -> None:
    """Write one self-contained HTML page about the dataset, and about what a model made of it (``more``)."""
    with tempfile.TemporaryDirectory() as folder:
        sheet, figure = Path(folder, "sheet.png"), Path(folder, "stats.png")
        shown = f"{contact_sheet(dataset, sheet, progress)} of {len(dataset)}"
        write_figure(figure, stats_figure, stats)
        faults = [(fault.code, fault.file, fault.found, fault.hint) for fault in check.faults]
        more = more | {"sheet": sheet, "shown": shown, "figure": figure, "faults": faults}
        write_page(path, "tour.html", title=f"Dataset {dataset.root.name}", stats=stats.as_dict(), **more)


def contact_sheet(dataset: Dataset, path: Path, progress: Progress = SILENT) -> int:
    """Write up to ``MOST`` sections of the dataset, spread over it, to a PNG; returns how many are shown."""
    cases = [case for case in dataset if case.image and case.mask]
    if not cases:
        raise DataError("no section has both image and mask", got=dataset.root, hint="run ntrm data check on it")
    cases = [cases[k] for k in np.linspace(0, len(cases) - 1, min(MOST, len(cases))).round().astype(int)]
    shown = []
    for case in progress.track(cases, len(cases), "contact sheet"):
        image, mask = read_image(case.image or path), read_mask(case.mask or path, dataset.schema).mask
        caption = " · ".join(filter(None, (case.name, case.split, case.level)))
        shown.append((caption, (drawing.shrink_image(image, SIDE), drawing.shrink_mask(mask, dataset.schema, SIDE))))
    columns = min(COLUMNS, len(shown))
    rows = [shown[first : first + columns] for first in range(0, len(shown), columns)]
    grid = [("   |   ".join(text for text, _ in row), [picture for _, pair in row for picture in pair]) for row in rows]
    write_figure(path, draw_grid, ("image", "mask") * columns, grid, drawing.tissue_swatches(dataset.schema))
    return len(cases)


def stats_figure(stats: DatasetStats) -> Figure:
    """Pixels of each tissue at the left, its neighbours at the right."""
    schema, shares, rows = stats.schema, stats.pixel_share, np.arange(len(stats.schema))
    side = 0.36 * max(len(schema), 6)
    figure = drawing.new_figure(side * 1.15 + 7.5, side + 1.9)
    pixels, borders = figure.subplots(1, 2, width_ratios=(4.6, side * 1.15 + 1.2))
    # Outlined, because some tissues are nearly white.
    bars = pixels.barh(rows, shares, height=0.72, color=schema.palette / 255.0, edgecolor=INK, linewidth=0.6)
    pixels.bar_label(bars, [f"  {share:.1%}" for share in shares], fontsize=8, color=INK)
    pixels.set_yticks(rows, [f"{t.explanation}  {t.name}".strip() for t in schema.tissues], fontsize=8)
    pixels.set(xlim=(0, max(float(shares.max()), 0.01) * 1.18), ylim=(len(schema) - 0.5, -0.5), xticks=[])
    pixels.tick_params(length=0)
    pixels.spines[["top", "right", "bottom"]].set_visible(False)
    drawing.set_title(pixels, "Share of the pixels")
    # Row → column; a tissue with itself is greyed out.
    drawing.heat_map(borders, stats.boundary_share, schema.names, grey=np.eye(len(schema), dtype=bool))
    drawing.set_title(borders, "Neighbours: share of the row’s boundary")
    figure.suptitle(stats.headline, x=0.01, ha="left", fontsize=9.5, color=FAINT)
    return figure
