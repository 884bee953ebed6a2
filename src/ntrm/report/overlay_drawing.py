"""A slide's picture with measured lines, numbers of pieces, a scale bar and a legend drawn on it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ntrm.core.errors import NtrmError
from ntrm.core.labels import RGB, LabelSchema
from ntrm.report.html import share_text
from ntrm.report.overlay_layout import Badge, Frame, Mark, OverlayLayout, Point, ScaleBar, font_size, scale_bar, ticks
from ntrm.results.documents import PieceSummary

INK, PAPER = "#1d1d22", "#ffffff"
OVERSAMPLING = 4
"""Lines are drawn so many times larger and then reduced: Pillow's own have jagged edges."""
BAND_ROWS = 64
"""Of the picture, in which lines are drawn together."""

Stroke = tuple[tuple[int, int], tuple[int, int]]
"""x and y of both ends in the larger drawing."""
Picture = NDArray[np.uint8]


def annotated(
    picture: Picture,
    schema: LabelSchema,
    mask_shape: tuple[int, int],
    mpp_x: float,
    *,
    pieces: Sequence[PieceSummary] = (),
    fractions: Mapping[str, float | None],
    seen: Mapping[str, RGB] | None = None,
    note: str = "",
) -> Picture:
    """``picture`` (H, W, 3) of a whole mask with all that is drawn on it.

    ``pieces`` and ``fractions`` are those of ``summary.json``; ``mpp_x`` is the mask's along x. ``seen`` are the
    tissues' colours as they look over the slide; the legend shows them beside the pure ones. ``note`` stands at
    the top.
    """
    height, width = picture.shape[:2]
    size = font_size(width, height)
    frame = Frame(width, height, width / mask_shape[1], height / mask_shape[0], size)
    layout = OverlayLayout.of(pieces, frame)
    canvas, font, small = Image.fromarray(picture), _font(size), _font(layout.frame.font)
    for mark in layout.marks:
        _draw_mark(canvas, mark, layout.frame.font)
    for badge in layout.badges:
        _draw_badge(canvas, badge, small)
    for mark in layout.marks:
        _draw_text(canvas, (mark.label.left, mark.label.top), mark.text, small, mark.colour)
    _draw_scale_bar(canvas, scale_bar(frame, mpp_x), font)
    if note:
        _draw_text(canvas, (size, size / 2), note, font, INK)
    return np.asarray(with_legend(canvas, _tissues(schema, fractions, seen or {}), size))


def _font(size: float) -> ImageFont.FreeTypeFont:
    """The font that comes with matplotlib, the same on every machine; importing that takes longer than all drawing."""
    package = find_spec("matplotlib")
    if package is None or package.origin is None:
        raise NtrmError("matplotlib is not installed", hint="install NTRM again: pip install ntrm")
    return ImageFont.truetype(Path(package.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def _draw_text(canvas: Image.Image, corner: Point, text: str, font: ImageFont.FreeTypeFont, colour: str) -> None:
    edge = max(1, round(font.size / 7))
    ImageDraw.Draw(canvas).text(corner, text, font=font, fill=colour, stroke_width=edge, stroke_fill=PAPER)


def _draw_mark(canvas: Image.Image, mark: Mark, size: float) -> None:
    """A line with its ticks, or a ring where it is too short, with white edges; drawn larger around where it lies."""
    ends = ticks(mark, 0.7 * size)
    strokes = [(mark.start, mark.end), *ends] if ends else []
    points = [point for stroke in strokes for point in stroke] or [mark.end]
    # A ring has a radius of half a letter with its white edge.
    reach = 2 * size if strokes else 0.5 * size + 2
    left, top = (max(int(min(point[axis] for point in points) - reach), 0) for axis in (0, 1))
    right, bottom = (
        min(int(max(point[axis] for point in points) + reach), limit) for axis, limit in enumerate(canvas.size)
    )
    if right <= left or bottom <= top:
        return

    def enlarged(point: Point) -> tuple[int, int]:
        # Pillow takes whole numbers for lines, and cuts off the rest.
        return int((point[0] - left) * OVERSAMPLING), int((point[1] - top) * OVERSAMPLING)

    for colour, thick in ((PAPER, 0.30 * size), (mark.colour, 0.13 * size)):
        width = max(1, round(thick * OVERSAMPLING))
        if strokes:
            lines = [(enlarged(start), enlarged(end)) for start, end in strokes]
            covers = _covers(lines, width, right - left, bottom - top)
        else:
            centre = (mark.end[0] - left) * OVERSAMPLING, (mark.end[1] - top) * OVERSAMPLING
            covers = iter([((0, 0), _ring(centre, 0.35 * size, width, right - left, bottom - top))])
        for (x, y), cover in covers:
            canvas.paste(colour, (left + x, top + y, left + x + cover.width, top + y + cover.height), cover)


def _ring(centre: Point, radius: float, width: int, wide: int, high: int) -> Image.Image:
    """How much of each pixel a ring covers; its centre and its width are those of the larger drawing."""
    cover = Image.new("L", (wide * OVERSAMPLING, high * OVERSAMPLING), 0)
    ImageDraw.Draw(cover).circle(centre, radius * OVERSAMPLING + width / 2, outline=255, width=width)
    return cover.reduce(OVERSAMPLING)


def _covers(lines: Sequence[Stroke], width: int, wide: int, high: int) -> Iterator[tuple[tuple[int, int], Image.Image]]:
    """How much of each pixel lines cover, where they do: left and top in a picture (``high``, ``wide``), and a part.

    Lines are drawn in bands of rows, of which only the columns are looked at that a line may reach: one across a whole
    slide has few pixels, and the box around it many.
    """
    band = Image.new("L", (wide * OVERSAMPLING, (BAND_ROWS + 2) * OVERSAMPLING), 0)
    draw = ImageDraw.Draw(band)
    for top in range(0, high, BAND_ROWS):
        # A row more above and below, since Pillow ends lines at the edge of a picture a little otherwise.
        above = (top - 1) * OVERSAMPLING
        reached = [columns for line in lines if (columns := _columns(line, above, band.height, width)) is not None]
        left = max(min((first for first, _ in reached), default=0) // OVERSAMPLING, 0)
        right = min(-(-max((last for _, last in reached), default=0) // OVERSAMPLING), wide)
        if left >= right:
            continue
        rows = min(BAND_ROWS, high - top)
        for (x0, y0), (x1, y1) in lines:
            draw.line([x0, y0 - above, x1, y1 - above], fill=255, width=width)
        box = (left * OVERSAMPLING, OVERSAMPLING, right * OVERSAMPLING, (rows + 1) * OVERSAMPLING)
        yield (left, top), band.reduce(OVERSAMPLING, box)
        draw.rectangle((box[0], 0, box[2], band.height), fill=0)


def _columns(line: Stroke, above: int, rows: int, width: int) -> tuple[int, int] | None:
    """First and last column that a line of this width may reach in rows from ``above`` on; None for none."""
    (x0, y0), (x1, y1) = sorted(line, key=lambda point: point[1])
    first, last = max(above - 2 * width, y0), min(above + rows + 2 * width, y1)
    if first > last:
        return None
    steep = (x1 - x0) / (y1 - y0) if y1 > y0 else 0.0
    ends = (x0, x1) if y1 == y0 else (x0 + (first - y0) * steep, x0 + (last - y0) * steep)
    return math.floor(min(ends)) - 2 * width, math.ceil(max(ends)) + 2 * width


def _draw_badge(canvas: Image.Image, badge: Badge, font: ImageFont.FreeTypeFont) -> None:
    draw = ImageDraw.Draw(canvas)
    draw.circle(badge.centre, badge.radius, fill=INK, outline=PAPER, width=max(1, int(font.size / 9)))
    draw.text(badge.centre, badge.text, font=font, fill=PAPER, anchor="mm")


def _draw_scale_bar(canvas: Image.Image, bar: ScaleBar, font: ImageFont.FreeTypeFont) -> None:
    size = font.size
    draw, edge = ImageDraw.Draw(canvas), max(1, round(size / 9))
    left, bottom = size, canvas.height - size
    box = (left, bottom - 0.3 * size, left + bar.length, bottom)
    draw.rectangle((box[0] - edge, box[1] - edge, box[2] + edge, box[3] + edge), fill=PAPER)
    draw.rectangle(box, fill=INK)
    _draw_text(canvas, (left, bottom - 1.75 * size), bar.text, font, INK)


def _tissues(
    schema: LabelSchema, fractions: Mapping[str, float | None], seen: Mapping[str, RGB]
) -> list[tuple[str, RGB, RGB]]:
    """Names, colours and fractions of the tissues, the largest first."""
    shown = sorted((name for name, value in fractions.items() if value), key=lambda name: -(fractions[name] or 0))
    texts = ["  ".join(filter(None, (n, schema[n].explanation, share_text(fractions[n])))) for n in shown]
    colours = [(schema[name].rgb, seen.get(name, schema[name].rgb)) for name in shown]
    return [(text, *pair) for text, pair in zip(texts, colours, strict=True)]


def with_legend(canvas: Image.Image, entries: Sequence[tuple[str, RGB, RGB]], size: float) -> Image.Image:
    """The picture with texts below, each beside two colours: as it is, and as it looks over the slide."""
    font = _font(size)
    column = max((font.getlength(text) for text, _, _ in entries), default=0.0) + 4.2 * size
    columns = max(1, int((canvas.width - size) // column)) if entries else 1
    rows = -(-len(entries) // columns)
    line = 1.6 * size
    # A narrow slide is narrower than the texts.
    width = max(canvas.width, math.ceil(column)) if entries else canvas.width
    page = Image.new("RGB", (width, canvas.height + round(rows * line + (size if rows else 0))), PAPER)
    page.paste(canvas, (0, 0))
    draw = ImageDraw.Draw(page)
    for number, (text, pure, seen) in enumerate(entries):
        x, y = size + column * (number // rows), canvas.height + 0.6 * size + line * (number % rows)
        draw.rectangle((x + size, y, x + 2 * size, y + size), fill=seen)
        draw.rectangle((x, y, x + size, y + size), fill=pure)
        draw.rectangle((x, y, x + 2 * size, y + size), outline=INK)
        draw.text((x + 2.5 * size, y + size / 2), text, font=font, fill=INK, anchor="lm")
    return page
