"""Many sections on one sheet, image beside mask, with a legend: to see a dataset at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ntrm.core.errors import DataError
from ntrm.core.io import whole_file
from ntrm.core.labels import LabelSchema
from ntrm.core.progress import SILENT, Progress
from ntrm.data.dataset import Case, Dataset
from ntrm.data.image_files import read_image, read_mask

CELL = 220
"""Side of a thumbnail in pixels."""
MARGIN = 12
CAPTION = 20
LEGEND = 26
LEGEND_WIDTH = 215
"""Room for the longest tissue of the skin schema."""
INK, PAPER, RULE = (30, 30, 34), (255, 255, 255), (205, 205, 210)

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def contact_sheet(
    dataset: Dataset, path: Path, *, most: int = 24, columns: int = 4, progress: Progress = SILENT
) -> int:
    """Write a PNG with up to ``most`` sections of the dataset, spread over it; returns how many are shown."""
    cases = spread_evenly([case for case in dataset if case.image and case.mask], most)
    if not cases:
        raise DataError(
            "no section has both image and mask", got=dataset.root, mend="run ntrm data check on the folder"
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
    draw.text((left, top + CELL + 2), caption, fill=INK, font=_font(13))


def _backdrop(schema: LabelSchema) -> tuple[int, int, int]:
    return PAPER if schema.background is None else schema[schema.background].rgb


def _draw_legend(sheet: Image.Image, schema: LabelSchema, top: int, columns: int) -> None:
    draw = ImageDraw.Draw(sheet)
    width = (sheet.width - 2 * MARGIN) // columns
    for k, tissue in enumerate(schema.tissues):
        left, y = MARGIN + k % columns * width, top + k // columns * LEGEND
        draw.rectangle((left, y + 3, left + 16, y + 19), fill=tissue.rgb, outline=INK)
        text = tissue.name if tissue.title in ("", tissue.name) else f"{tissue.name} {tissue.title}"
        draw.text((left + 22, y + 3), text, fill=INK, font=_font(12))


def _font(size: int) -> Font:
    return ImageFont.load_default(size)
