"""A dataset at a glance: a contact sheet, pixels and boundaries of its tissues, and a page with all of it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ntrm.core.errors import DataError
from ntrm.core.io import whole_file
from ntrm.core.labels import LabelSchema
from ntrm.core.progress import SILENT, Progress
from ntrm.data.check import CheckReport
from ntrm.data.dataset import Case, Dataset
from ntrm.data.image_files import read_image, read_mask
from ntrm.data.stats import DatasetStats
from ntrm.report.drawing import FAINT, INK, heat_map, new_figure, plain, set_title, tissue_swatches, write_figure
from ntrm.report.html import write_page

_INCH_PER_CLASS = 0.36
MOST, COLUMNS = 24, 3
"""Of the contact sheet: sections, and how many stand side by side."""
CELL, MARGIN, CAPTION = 220, 12, 20
"""Of the contact sheet in pixels: side of a thumbnail, space around, height of the text below."""
LEGEND, LEGEND_WIDTH = 26, 215
"""Height of a line, and room for the longest tissue of the skin schema."""
LINE, PAPER, RULE = (30, 30, 34), (255, 255, 255), (205, 205, 210)


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
        nearest = sorted(range(len(stats.schema)), key=lambda k: -boundary[k])[:3]
        neighbours = ", ".join(f"{stats.schema.names[k]} {boundary[k]:.0%}" for k in nearest if boundary[k] >= 0.05)
        rows.append({"tissue": tissue, "share": f"{share:.1%}", "neighbours": neighbours})
    return rows


def _numbers(document: Mapping[str, Any]) -> list[tuple[str, object]]:
    plain_keys = ("sections", "patients", "masks", "level", "ignored_pixels")
    rows = [(key.replace("_", " "), "–" if document[key] is None else document[key]) for key in plain_keys]
    for key in ("splits", "cancers"):
        counts = document[key]
        if isinstance(counts, dict):
            rows.append((key, ", ".join(f"{name or 'none'} {number}" for name, number in counts.items())))
    return rows


def contact_sheet(dataset: Dataset, path: Path, progress: Progress = SILENT) -> int:
    """Write a PNG with up to ``MOST`` sections of the dataset, spread over it; returns how many are shown."""
    cases = [case for case in dataset if case.image and case.mask]
    if not cases:
        hint = "run ntrm data check on the folder"
        raise DataError("no section has both image and mask", got=dataset.root, hint=hint)
    cases = [cases[k] for k in np.linspace(0, len(cases) - 1, min(MOST, len(cases))).round().astype(int)]
    columns = min(COLUMNS, len(cases))
    cell_width, cell_height = 2 * CELL + 2 * MARGIN, CELL + CAPTION + MARGIN
    width, bottom = columns * cell_width + MARGIN, -(-len(cases) // columns) * cell_height + MARGIN
    legend_columns = max(1, (width - 2 * MARGIN) // LEGEND_WIDTH)
    legend_rows = -(-len(dataset.schema) // legend_columns)
    sheet = Image.new("RGB", (width, bottom + legend_rows * LEGEND + MARGIN), PAPER)
    for k, case in enumerate(progress.track(cases, len(cases), "contact sheet")):
        corner = (MARGIN + k % columns * cell_width, MARGIN + k // columns * cell_height)
        _paste_case(sheet, case, dataset.schema, corner)
    _draw_legend(sheet, dataset.schema, bottom, legend_columns)
    with whole_file(path) as partial:
        sheet.save(partial, format="PNG", optimize=True)
    return len(cases)


def thumbnail(picture: NDArray[np.uint8], side: int, *, smooth: bool) -> Image.Image:
    """Shrink to fit a square; masks keep their exact colours when ``smooth`` is off."""
    image = Image.fromarray(picture)
    scale = side / max(image.size)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST)


def _paste_case(sheet: Image.Image, case: Case, schema: LabelSchema, corner: tuple[int, int]) -> None:
    if case.image is None or case.mask is None:
        return
    left, top = corner
    image = thumbnail(read_image(case.image), CELL, smooth=True)
    mask = thumbnail(schema.colourise(read_mask(case.mask, schema).mask), CELL, smooth=False)
    backdrop = PAPER if schema.background is None else schema[schema.background].rgb
    draw = ImageDraw.Draw(sheet)
    for picture, x, fill in ((image, left, PAPER), (mask, left + CELL + 2, backdrop)):
        box = (x, top, x + CELL - 1, top + CELL - 1)
        draw.rectangle(box, fill=fill)
        sheet.paste(picture, (x + (CELL - picture.width) // 2, top + (CELL - picture.height) // 2))
        draw.rectangle(box, outline=RULE)
    caption = " · ".join(filter(None, (case.name, case.split, case.level)))
    draw.text((left, top + CELL + 2), caption, fill=LINE, font=ImageFont.load_default(13))


def _draw_legend(sheet: Image.Image, schema: LabelSchema, top: int, columns: int) -> None:
    draw = ImageDraw.Draw(sheet)
    width = (sheet.width - 2 * MARGIN) // columns
    for k, swatch in enumerate(tissue_swatches(schema)):
        left, y = MARGIN + k % columns * width, top + k // columns * LEGEND
        draw.rectangle((left, y + 3, left + 16, y + 19), fill=swatch.rgb, outline=LINE)
        draw.text((left + 22, y + 3), swatch.text, fill=LINE, font=ImageFont.load_default(12))


def stats_figure(stats: DatasetStats) -> Figure:
    """Pixels of each tissue at the left, its neighbours at the right."""
    side = _INCH_PER_CLASS * max(len(stats.schema), 6)
    figure = new_figure(side * 1.15 + 7.5, side + 1.9, constrained=True)
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
    labels = [plain(t.name if t.title in {"", t.name} else f"{t.title}  {t.name}") for t in schema.tissues]
    axes.set_yticks(rows, labels, fontsize=8)
    axes.set_ylim(len(schema) - 0.5, -0.5)
    axes.set_xlim(0, max(float(fractions.max()), 0.01) * 1.18)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    set_title(axes, "Share of the pixels")
