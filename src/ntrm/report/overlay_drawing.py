"""A slide's picture as people want it: measured lines, numbers of pieces, scale bar and a legend below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import NtrmError
from ntrm.core.labels import RGB, LabelSchema
from ntrm.report.formatting import share_text
from ntrm.report.picture_marks import Badge, Frame, Mark, Point, ScaleBar, line_marks, piece_badges, scale_bar, ticks
from ntrm.report.slide_documents import measures_of

if TYPE_CHECKING:
    from PIL import Image as Pillow
    from PIL.ImageFont import FreeTypeFont

FINER = 4
"""Lines are drawn so many times larger and then reduced: Pillow's own have jagged edges."""
INK: RGB = (29, 29, 34)
PAPER: RGB = (255, 255, 255)

Image = NDArray[np.uint8]
Document = Mapping[str, Any]


def annotated(
    picture: Image,
    schema: LabelSchema,
    mask_shape: tuple[int, int],
    mpp_x: float,
    *,
    pieces: Sequence[Document] = (),
    fractions: Mapping[str, float | None],
    seen: Mapping[str, RGB] | None = None,
) -> Image:
    """``picture`` (H, W, 3) of a whole mask with all that is drawn on it.

    ``pieces`` and ``fractions`` are those of ``summary.json``; ``mpp_x`` is the mask's along x. ``seen`` are the
    tissues' colours as they look over the slide; the legend shows them beside the pure ones.
    """
    from PIL import Image as Pillow

    height, width = picture.shape[:2]
    size = font_size(width, height)
    frame = Frame(width, height, width / mask_shape[1], height / mask_shape[0], size)
    canvas = Pillow.fromarray(picture)
    boxes = [(each["number"], tuple(each["mask_box_px"][key] for key in _BOX)) for each in pieces]
    measures = [measure for each in pieces for measure in measures_of(dict(each))]
    marks = line_marks(measures, frame)
    for mark in marks:
        _draw_line(canvas, mark, size)
    for badge in piece_badges(boxes, frame):
        _draw_badge(canvas, badge, size)
    for mark in marks:
        _write(canvas, (mark.label.left, mark.label.top), mark.text, size, _rgb(mark.colour))
    _draw_scale_bar(canvas, scale_bar(frame, mpp_x), size)
    return np.asarray(_with_legend(canvas, schema, fractions, seen or {}, size))


_BOX = ("top", "left", "height", "width")


def font_size(width: float, height: float) -> float:
    """Of letters on a picture of this size.

    >>> font_size(1500, 1000)
    25.0
    """
    return max(width, height) / 60


def _font(size: float) -> FreeTypeFont:
    """The font that comes with matplotlib: the same on every machine."""
    from PIL import ImageFont

    return ImageFont.truetype(_font_file(), size)


@cache
def _font_file() -> Path:
    """Found without importing matplotlib, which takes longer than all the drawing."""
    package = find_spec("matplotlib")
    if package is None or package.origin is None:
        raise NtrmError("matplotlib is not installed", mend="install NTRM again: pip install ntrm")
    return Path(package.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"


def _rgb(colour: str) -> RGB:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def _write(canvas: Pillow.Image, corner: Point, text: str, size: float, colour: RGB) -> None:
    from PIL import ImageDraw

    edge = max(1, round(size / 7))
    ImageDraw.Draw(canvas).text(corner, text, font=_font(size), fill=colour, stroke_width=edge, stroke_fill=PAPER)


def _draw_line(canvas: Pillow.Image, mark: Mark, size: float) -> None:
    strokes = [(mark.start, mark.end), *ticks(mark, 0.7 * size)]
    rings = [] if len(strokes) > 1 else [(mark.end, 0.35 * size)]
    _smooth(canvas, [] if rings else strokes, rings, _rgb(mark.colour), size)


def _smooth(
    canvas: Pillow.Image,
    strokes: Sequence[tuple[Point, Point]],
    rings: Sequence[tuple[Point, float]],
    colour: RGB,
    size: float,
) -> None:
    """Strokes and rings with white edges, drawn larger on the part of the picture where they lie."""
    from PIL import Image as Pillow
    from PIL import ImageDraw

    points = [point for stroke in strokes for point in stroke] + [point for point, _ in rings]
    left, top = (int(min(point[axis] for point in points) - 2 * size) for axis in (0, 1))
    right, bottom = (int(max(point[axis] for point in points) + 2 * size) for axis in (0, 1))
    left, top, right, bottom = max(left, 0), max(top, 0), min(right, canvas.width), min(bottom, canvas.height)
    wide, high = (right - left) * FINER, (bottom - top) * FINER
    if wide <= 0 or high <= 0:
        return
    # Only how much of a pixel is covered is drawn larger: one byte each, even for a line across a whole slide.
    for rgb, thick in ((PAPER, 0.30 * size), (colour, 0.13 * size)):
        cover = Pillow.new("L", (wide, high), 0)
        draw, line = ImageDraw.Draw(cover), max(1, round(thick * FINER))
        for stroke in strokes:
            ends = [((x - left) * FINER, (y - top) * FINER) for x, y in stroke]
            draw.line(ends, fill=255, width=line)
        for (x, y), radius in rings:
            middle, reach = ((x - left) * FINER, (y - top) * FINER), radius * FINER + line / 2
            box = (middle[0] - reach, middle[1] - reach, middle[0] + reach, middle[1] + reach)
            draw.ellipse(box, outline=255, width=line)
        canvas.paste(rgb, (left, top, right, bottom), cover.reduce(FINER))


def _draw_badge(canvas: Pillow.Image, badge: Badge, size: float) -> None:
    from PIL import ImageDraw

    draw, (x, y), radius = ImageDraw.Draw(canvas), badge.centre, badge.radius
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=INK, outline=PAPER, width=max(1, int(size / 9)))
    draw.text(badge.centre, badge.text, font=_font(size), fill=PAPER, anchor="mm")


def _draw_scale_bar(canvas: Pillow.Image, bar: ScaleBar, size: float) -> None:
    from PIL import ImageDraw

    draw, edge = ImageDraw.Draw(canvas), max(1, round(size / 9))
    left, bottom = size, canvas.height - size
    box = (left, bottom - 0.3 * size, left + bar.length, bottom)
    draw.rectangle((box[0] - edge, box[1] - edge, box[2] + edge, box[3] + edge), fill=PAPER)
    draw.rectangle(box, fill=INK)
    _write(canvas, (left, bottom - 1.75 * size), bar.text, size, INK)


def _with_legend(
    canvas: Pillow.Image,
    schema: LabelSchema,
    fractions: Mapping[str, float | None],
    seen: Mapping[str, RGB],
    size: float,
) -> Pillow.Image:
    """The picture with names, colours and shares of the tissues below, the largest first."""
    from PIL import Image as Pillow
    from PIL import ImageDraw

    shown = sorted((name for name, share in fractions.items() if share), key=lambda name: -(fractions[name] or 0))
    words = [(name, schema[name].explanation, share_text(fractions[name])) for name in shown]
    texts = ["  ".join(filter(None, each)) for each in words]
    font = _font(size)
    column = max((font.getlength(text) for text in texts), default=0.0) + 4.2 * size
    columns = max(1, int((canvas.width - size) // column)) if texts else 1
    rows = -(-len(texts) // columns)
    line = 1.6 * size
    page = Pillow.new("RGB", (canvas.width, canvas.height + round(rows * line + (size if rows else 0))), PAPER)
    page.paste(canvas, (0, 0))
    draw = ImageDraw.Draw(page)
    for at, (name, text) in enumerate(zip(shown, texts, strict=True)):
        x, y = size + column * (at // rows), canvas.height + 0.6 * size + line * (at % rows)
        draw.rectangle((x + size, y, x + 2 * size, y + size), fill=seen.get(name, schema[name].rgb))
        draw.rectangle((x, y, x + size, y + size), fill=schema[name].rgb)
        draw.rectangle((x, y, x + 2 * size, y + size), outline=INK)
        draw.text((x + 2.5 * size, y + size / 2), text, font=font, fill=INK, anchor="lm")
    return page
