"""What was measured, drawn over a slide's picture: lines with lengths, numbers of pieces, a scale bar, a legend.

The page draws the same ``Drawing`` by ``stage.html`` as the picture file does here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import distribution

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ntrm.core.labels import RGB, LabelSchema
from ntrm.report.html import share_text
from ntrm.results.documents import PieceSummary

LINES = {
    "deep_clearance": ("deep", "#0053a6"),
    "lateral_clearance": ("lateral", "#a83800"),
    "invasion_depth": ("depth", "#1d1d22"),
}
"""What is drawn of the measurements: a short name, and a colour that stands out from white and from tissue."""
INK, PAPER = "#1d1d22", "#ffffff"

Point = tuple[float, float]
"""x and y."""
Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Frame:
    """A picture of the whole mask, and the size of the letters on it."""

    width: float
    height: float
    across: float
    """Pixels of the picture for one of the mask, along x."""
    down: float
    font: float

    def point(self, row: float, column: float) -> Point:
        """The middle of a pixel of the mask."""
        return (column + 0.5) * self.across, (row + 0.5) * self.down


def font_size(width: float, height: float) -> float:
    """Of letters on a picture of this size.

    >>> font_size(1500, 1000)
    25.0
    """
    return max(width, height) / 60


@dataclass(frozen=True)
class Line:
    """A measured line."""

    text: str
    colour: str
    start: Point
    end: Point
    label: Point | None
    """Middle of its text; None where it would cover another one."""


@dataclass(frozen=True)
class Drawing:
    """All that is drawn of the pieces."""

    frame: Frame
    lines: Sequence[Line]
    badges: Sequence[tuple[str, Point]]
    """Numbers of the pieces, where there are several."""

    @property
    def radius(self) -> float:
        """Of the badges."""
        return 0.85 * self.frame.font


def drawing_of(pieces: Sequence[PieceSummary], frame: Frame) -> Drawing:
    """``frame`` has the usual letters; where there are many lines, they become smaller."""
    shown = [
        (
            f"{LINES[key][0]} {measure.value:.2f} mm",
            LINES[key][1],
            frame.point(*measure.line_px[0]),
            frame.point(*measure.line_px[1]),
        )
        for piece in pieces
        for key, measure in piece.measurements.items()
        if key in LINES and measure.line_px is not None and measure.value is not None
    ]
    frame = replace(frame, font=frame.font * max(0.4, min(1.0, math.sqrt(9 / max(len(shown), 1)))))
    drawing = Drawing(frame, [], [])
    radius = drawing.radius
    corners = [
        _inside((piece.mask_box_px.left * frame.across, piece.mask_box_px.top * frame.down), radius, radius, frame)
        for piece in pieces
    ]
    badges = [(str(piece.number), corner) for piece, corner in zip(pieces, corners, strict=True)]
    badges = badges if len(badges) > 1 else []
    taken = [(x - radius, y - radius, x + radius, y + radius) for _, (x, y) in badges]
    lines = [
        Line(text, colour, start, end, _free_place(text, start, end, frame, taken))
        for text, colour, start, end in shown
    ]
    return Drawing(frame, lines, badges)


def _inside(point: Point, wide: float, high: float, frame: Frame) -> Point:
    """The point, moved so that what reaches so far around it lies in the picture."""
    (x, y), width, height = point, frame.width, frame.height
    return max(min(x, width - wide), wide), max(min(y, height - high), high)


def _free_place(text: str, start: Point, end: Point, frame: Frame, taken: list[Box]) -> Point | None:
    """Beyond an end of a line or beside it, where no other text stands; what is found is added to ``taken``."""
    length = math.dist(start, end)
    right, down = ((end[0] - start[0]) / length, (end[1] - start[1]) / length) if length else (1.0, 0.0)
    middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
    wide, high, gap = 0.31 * frame.font * len(text), 0.6 * frame.font, 0.6 * frame.font
    beyond = (end, right, down), (start, -right, -down)
    beside = (middle, down, -right), (middle, -down, right), (end, 0.0, -1.0), (end, 0.0, 1.0)
    for (x, y), dx, dy in (*beyond, *beside):
        at = _inside((x + dx * (wide + gap), y + dy * (high + gap)), wide, high, frame)
        box = at[0] - wide, at[1] - high, at[0] + wide, at[1] + high
        if not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
            taken.append(box)
            return at
    return None


def scale_bar(frame: Frame, mpp_x: float) -> tuple[str, float]:
    """The longest of 1, 2, 5, 10 … that takes up a quarter of the width at most: its text, and its length there.

    ``mpp_x`` is the mask's.

    >>> scale_bar(Frame(1000, 500, 1, 1, 20), 10.0)
    ('2 mm', 200.0)
    """
    most = frame.width / frame.across * mpp_x / 4000
    power = 10.0 ** math.floor(math.log10(most))
    length = max(step * power for step in (1, 2, 5) if step * power <= most * (1 + 1e-9))
    text = f"{length:g} mm" if length >= 1 else f"{length * 1000:g} µm"
    return text, length * 1000 / mpp_x * frame.across


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
    drawing, canvas, font = drawing_of(pieces, frame), Image.fromarray(picture), _font(size)
    small, radius, draw = _font(drawing.frame.font), drawing.radius, ImageDraw.Draw(canvas)
    for line in drawing.lines:
        _draw_line(canvas, line, drawing.frame.font)
    for text, centre in drawing.badges:
        draw.circle(centre, radius, fill=INK, outline=PAPER, width=max(1, int(radius / 8)))
        draw.text(centre, text, font=small, fill=PAPER, anchor="mm")
    for line in drawing.lines:
        if line.label is not None:
            _draw_text(draw, line.label, line.text, small, line.colour, "mm")
    text, length = scale_bar(frame, mpp_x)
    left, top, bottom = size, height - 1.3 * size, height - size
    draw.rectangle((left - 2, top - 2, left + length + 2, bottom + 2), fill=PAPER)
    draw.rectangle((left, top, left + length, bottom), fill=INK)
    _draw_text(draw, (left, top - 0.3 * size), text, font, INK, "ls")
    if note:
        _draw_text(draw, (size, size / 2), note, font, INK, "la")
    shown = sorted((name for name, value in fractions.items() if value), key=lambda name: -(fractions[name] or 0))
    texts = ("  ".join(filter(None, (n, schema[n].explanation, share_text(fractions[n])))) for n in shown)
    colours = ((schema[name].rgb, (seen or {}).get(name, schema[name].rgb)) for name in shown)
    return np.asarray(with_legend(canvas, [(text, *pair) for text, pair in zip(texts, colours, strict=True)], size))


def _font(size: float) -> ImageFont.FreeTypeFont:
    """The font that comes with matplotlib, the same on every machine; importing that takes longer than all drawing."""
    path = distribution("matplotlib").locate_file("matplotlib/mpl-data/fonts/ttf/DejaVuSans.ttf")
    return ImageFont.truetype(str(path), size)


def _draw_text(
    draw: ImageDraw.ImageDraw, at: Point, text: str, font: ImageFont.FreeTypeFont, colour: str, anchor: str
) -> None:
    edge = max(1, round(font.size / 7))
    draw.text(at, text, font=font, fill=colour, anchor=anchor, stroke_width=edge, stroke_fill=PAPER)


def _draw_line(canvas: Image.Image, line: Line, size: float) -> None:
    """A line with dots at its ends, with white edges; drawn twice as large, because Pillow's edges are jagged."""
    ends = np.array([line.start, line.end])
    left, top = np.maximum(ends.min(axis=0) - size, 0).astype(int).tolist()
    right, bottom = np.minimum(ends.max(axis=0) + size, canvas.size).astype(int).tolist()
    if right <= left or bottom <= top:
        return
    points = [tuple(end) for end in (2 * (ends - (left, top))).tolist()]
    for colour, thick in ((PAPER, 0.30 * size), (line.colour, 0.13 * size)):
        cover = Image.new("L", (2 * (right - left), 2 * (bottom - top)))
        draw = ImageDraw.Draw(cover)
        draw.line(points, fill=255, width=max(1, round(2 * thick)))
        for point in points:
            draw.circle(point, 2 * (0.18 * size + thick / 2), fill=255)
        canvas.paste(colour, (left, top, right, bottom), cover.reduce(2))


def with_legend(canvas: Image.Image, entries: Sequence[tuple[str, RGB, RGB]], size: float) -> Image.Image:
    """The picture with texts below, each beside two colours: as it is, and as it looks over the slide."""
    if not entries:
        return canvas
    font = _font(size)
    column = max(font.getlength(text) for text, _, _ in entries) + 4.2 * size
    rows = -(-len(entries) // max(1, int((canvas.width - size) // column)))
    line = 1.6 * size
    # A narrow slide is narrower than the texts.
    page = Image.new("RGB", (max(canvas.width, math.ceil(column)), canvas.height + round(rows * line + size)), PAPER)
    page.paste(canvas, (0, 0))
    draw = ImageDraw.Draw(page)
    for number, (text, pure, seen) in enumerate(entries):
        x, y = size + column * (number // rows), canvas.height + 0.6 * size + line * (number % rows)
        draw.rectangle((x + size, y, x + 2 * size, y + size), fill=seen)
        draw.rectangle((x, y, x + size, y + size), fill=pure)
        draw.rectangle((x, y, x + 2 * size, y + size), outline=INK)
        draw.text((x + 2.5 * size, y + size / 2), text, font=font, fill=INK, anchor="lm")
    return page
