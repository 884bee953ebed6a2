"""A dataset to look at: a contact sheet, shares of tissues and who borders on whom, and a page with all of it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
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
from ntrm.report.drawing import FAINT, INK, heat_map, new_figure, plain, set_title, write_figure
from ntrm.report.html import write_page

_INCH_PER_CLASS = 0.36
CELL = 220
"""Side of a thumbnail in pixels."""
MARGIN = 12
CAPTION = 20
LEGEND = 26
LEGEND_WIDTH = 215
"""Room for the longest tissue of the skin schema."""
LINE, PAPER, RULE = (30, 30, 34), (255, 255, 255), (205, 205, 210)

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def dataset_report(
    path: Path,
    dataset: Dataset,
    stats: DatasetStats,
    check: CheckReport,
    *,
    template: str = "dataset_report.html",
    more: Mapping[str, object] | None = None,
    progress: Progress = SILENT,
) -> None:
    """Write one self-contained HTML page about the dataset; a ``template`` built on this page's may show ``more``."""
    with tempfile.TemporaryDirectory() as folder:
        sheet, figure = Path(folder, "sheet.png"), Path(folder, "stats.png")
        shown = contact_sheet(dataset, sheet, columns=3, progress=progress)
        stats_figure(stats, figure)
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
            **(more or {}),
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


def contact_sheet(
    dataset: Dataset, path: Path, *, most: int = 24, columns: int = 4, progress: Progress = SILENT
) -> int:
    """Write a PNG with up to ``most`` sections of the dataset, spread over it; returns how many are shown."""
    cases = spread_evenly([case for case in dataset if case.image and case.mask], most)
    if not cases:
        raise DataError(
            "no section has both image and mask", got=dataset.root, hint="run ntrm data check on the folder"
        )
    columns = min(columns, len(cases))
    rows = -(-len(cases) // columns)
    cell_width, cell_height = 2 * CELL + 2 * MARGIN, CELL + CAPTION + MARGIN
    width = columns * cell_width + MARGIN
    legend_columns = max(1, (width - 2 * MARGIN) // LEGEND_WIDTH)
    legend_rows = -(-len(dataset.schema) // legend_columns)
    size = (width, rows * cell_height + MARGIN + legend_rows * LEGEND + MARGIN)
    sheet = Image.new("RGB", size, PAPER)
    for k, case in enumerate(progress.track(cases, len(cases), "contact sheet")):
        corner = (MARGIN + k % columns * cell_width, MARGIN + k // columns * cell_height)
        _paste_case(sheet, case, dataset.schema, corner)
    _draw_legend(sheet, dataset.schema, rows * cell_height + MARGIN, legend_columns)
    with whole_file(path) as partial:
        sheet.save(partial, format="PNG", optimize=True)
    return len(cases)


def spread_evenly(cases: Sequence[Case], most: int) -> list[Case]:
    """At most ``most`` of the cases, evenly spaced through the list.

    >>> spread_evenly(list("abcdef"), 3)
    ['a', 'c', 'f']
    """
    if len(cases) <= most:
        return list(cases)
    picks = np.linspace(0, len(cases) - 1, most).round().astype(int)
    return [cases[i] for i in picks]


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
    draw = ImageDraw.Draw(sheet)
    for k, picture in enumerate((image, mask)):
        x = left + k * (CELL + 2)
        place = (x + (CELL - picture.width) // 2, top + (CELL - picture.height) // 2)
        if k:
            draw.rectangle((x, top, x + CELL - 1, top + CELL - 1), fill=_backdrop(schema))
        sheet.paste(picture, place)
        draw.rectangle((x, top, x + CELL - 1, top + CELL - 1), outline=RULE)
    caption = " · ".join(part for part in (case.name, case.split or "", case.level) if part)
    draw.text((left, top + CELL + 2), caption, fill=LINE, font=_sheet_font(13))


def _backdrop(schema: LabelSchema) -> tuple[int, int, int]:
    return PAPER if schema.background is None else schema[schema.background].rgb


def _draw_legend(sheet: Image.Image, schema: LabelSchema, top: int, columns: int) -> None:
    draw = ImageDraw.Draw(sheet)
    width = (sheet.width - 2 * MARGIN) // columns
    for k, tissue in enumerate(schema.tissues):
        left, y = MARGIN + k % columns * width, top + k // columns * LEGEND
        draw.rectangle((left, y + 3, left + 16, y + 19), fill=tissue.rgb, outline=LINE)
        text = tissue.name if tissue.title in ("", tissue.name) else f"{tissue.name} {tissue.title}"
        draw.text((left + 22, y + 3), text, fill=LINE, font=_sheet_font(12))


def _sheet_font(size: int) -> Font:
    return ImageFont.load_default(size)


def stats_figure(stats: DatasetStats, path: Path) -> None:
    """Write both pictures side by side; the suffix of ``path`` chooses PNG, SVG or PDF."""
    write_figure(path, lambda: draw_stats(stats))


def draw_stats(stats: DatasetStats) -> Figure:
    """Figure with the pixel shares on the left and the boundary shares on the right."""
    side = _INCH_PER_CLASS * max(len(stats.schema), 6)
    figure = new_figure(side * 1.15 + 7.5, side + 1.9, constrained=True)
    shares, borders = figure.subplots(1, 2, width_ratios=(4.6, side * 1.15 + 1.2))
    draw_pixel_share(shares, stats.pixel_share, stats.schema)
    draw_boundary_share(borders, stats.boundary_share, stats.schema)
    figure.suptitle(stats.headline, x=0.01, ha="left", fontsize=9.5, color=FAINT)
    return figure


def draw_pixel_share(axes: Any, share: NDArray[np.float64], schema: LabelSchema) -> None:
    """Horizontal bars in the tissues' colours, outlined, because some tissues are nearly white."""
    places = np.arange(len(schema))
    axes.barh(places, share, height=0.72, color=schema.palette / 255.0, edgecolor=INK, linewidth=0.6)
    for place, value in zip(places, share, strict=True):
        axes.text(value, place, f"  {value:.1%}", va="center", fontsize=8, color=INK)
    axes.set_yticks(places, [_label(tissue.name, tissue.title) for tissue in schema.tissues], fontsize=8)
    axes.set_ylim(len(schema) - 0.5, -0.5)
    axes.set_xlim(0, max(float(share.max()), 0.01) * 1.18)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    set_title(axes, "Share of the pixels")


def draw_boundary_share(axes: Any, share: NDArray[np.float64], schema: LabelSchema) -> None:
    """Heat map, row → column; cells below half a percent stay blank, a tissue with itself is greyed out."""
    heat_map(axes, share, schema.names, grey=np.eye(len(schema), dtype=bool))
    set_title(axes, "Neighbours: share of the row’s boundary")


def _label(name: str, title: str) -> str:
    return plain(name if title in {"", name} else f"{title}  {name}")
