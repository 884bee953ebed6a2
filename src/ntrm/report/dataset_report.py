"""A dataset at a glance: a contact sheet, pixels and boundaries of its tissues, and a page with all of it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.labels import LabelSchema
from ntrm.core.progress import SILENT, Progress
from ntrm.data.check import CheckReport
from ntrm.data.dataset import Dataset
from ntrm.data.image_files import read_image, read_mask
from ntrm.data.stats import DatasetStats
from ntrm.report.drawing import (
    FAINT,
    INK,
    heat_map,
    new_figure,
    plain,
    set_title,
    shrink_image,
    shrink_mask,
    tissue_swatches,
    write_figure,
)
from ntrm.report.html import write_page
from ntrm.report.picture_grids import draw_grid

_INCH_PER_CLASS = 0.36
MOST, COLUMNS = 24, 3  # Of the contact sheet: sections, and how many stand side by side
SIDE = 300  # Of a picture on the contact sheet, in pixels


def dataset_report(
    path: Path,
    dataset: Dataset,
    stats: DatasetStats,
    check: CheckReport,
    *,
    template: str,
    more: Mapping[str, object],
    progress: Progress,
) -> None:
    """Write one self-contained HTML page about the dataset; ``template``, built on this page's, shows ``more``."""
    with tempfile.TemporaryDirectory() as folder:
        sheet, figure = Path(folder, "sheet.png"), Path(folder, "stats.png")
        shown = contact_sheet(dataset, sheet, progress)
        write_figure(figure, stats_figure, stats)
        document = stats.as_dict()
        write_page(
            path,
            template,
            title=f"Dataset {dataset.root.name}",
            stats=document,
            sheet=sheet,
            shown=f"{shown} of {len(dataset)}",
            figure=figure,
            tissues=_tissues(stats),
            numbers=_numbers(document),
            faults=[(fault.code, fault.file, fault.found, fault.hint) for fault in check.faults],
            **more,
        )


def _tissues(stats: DatasetStats) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for tissue, share, boundary in zip(stats.schema.tissues, stats.pixel_share, stats.boundary_share, strict=True):
        nearest = np.argsort(-boundary, kind="stable")[:3]
        neighbours = ", ".join(f"{stats.schema.names[k]} {boundary[k]:.0%}" for k in nearest if boundary[k] >= 0.05)
        rows.append({"tissue": tissue, "share": f"{share:.1%}", "neighbours": neighbours})
    return rows


def _numbers(document: Mapping[str, Any]) -> list[tuple[str, object]]:
    plain_keys = ("sections", "patients", "masks", "level", "ignored_pixels")
    rows = [(key.replace("_", " "), "–" if document[key] is None else document[key]) for key in plain_keys]
    counts = [(key, document[key]) for key in ("splits", "cancers") if isinstance(document[key], dict)]
    return rows + [(key, ", ".join(f"{name or 'none'} {n}" for name, n in each.items())) for key, each in counts]


def contact_sheet(dataset: Dataset, path: Path, progress: Progress = SILENT) -> int:
    """Write up to ``MOST`` sections of the dataset, spread over it, to a PNG; returns how many are shown."""
    cases = [case for case in dataset if case.image and case.mask]
    if not cases:
        hint = "run ntrm data check on the folder"
        raise DataError("no section has both image and mask", got=dataset.root, hint=hint)
    cases = [cases[k] for k in np.linspace(0, len(cases) - 1, min(MOST, len(cases))).round().astype(int)]
    shown = []
    for case in progress.track(cases, len(cases), "contact sheet"):
        image, mask = read_image(case.image or path), read_mask(case.mask or path, dataset.schema).mask
        caption = " · ".join(filter(None, (case.name, case.split, case.level)))
        shown.append((caption, (shrink_image(image, SIDE), shrink_mask(mask, dataset.schema, SIDE))))
    columns = min(COLUMNS, len(shown))
    rows = [shown[first : first + columns] for first in range(0, len(shown), columns)]
    grid = [("   |   ".join(text for text, _ in row), [picture for _, pair in row for picture in pair]) for row in rows]
    write_figure(path, draw_grid, ("image", "mask") * columns, grid, tissue_swatches(dataset.schema))
    return len(cases)


def stats_figure(stats: DatasetStats) -> Figure:
    """Pixels of each tissue at the left, its neighbours at the right."""
    side = _INCH_PER_CLASS * max(len(stats.schema), 6)
    figure = new_figure(side * 1.15 + 7.5, side + 1.9)
    pixels, borders = figure.subplots(1, 2, width_ratios=(4.6, side * 1.15 + 1.2))
    _draw_pixels(pixels, stats.pixel_share, stats.schema)
    # Row → column; a tissue with itself is greyed out.
    heat_map(borders, stats.boundary_share, stats.schema.names, grey=np.eye(len(stats.schema), dtype=bool))
    set_title(borders, "Neighbours: share of the row’s boundary")
    figure.suptitle(stats.headline, x=0.01, ha="left", fontsize=9.5, color=FAINT)
    return figure


def _draw_pixels(axes: Any, fractions: NDArray[np.float64], schema: LabelSchema) -> None:
    """Horizontal bars in the tissues' colours, outlined, because some tissues are nearly white."""
    rows = np.arange(len(schema))
    axes.barh(rows, fractions, height=0.72, color=schema.palette / 255.0, edgecolor=INK, linewidth=0.6)
    for row, value in zip(rows, fractions, strict=True):
        axes.text(value, row, f"  {value:.1%}", va="center", fontsize=8, color=INK)
    labels = [plain(f"{t.explanation}  {t.name}".strip()) for t in schema.tissues]
    axes.set_yticks(rows, labels, fontsize=8)
    axes.set_ylim(len(schema) - 0.5, -0.5)
    axes.set_xlim(0, max(float(fractions.max()), 0.01) * 1.18)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    set_title(axes, "Share of the pixels")
