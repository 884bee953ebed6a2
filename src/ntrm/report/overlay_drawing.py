"""What is drawn on a slide's picture: measured lines with their lengths, numbers of pieces, a scale bar, a legend.

First where things go, for the picture file and for the page alike; then the drawing of the picture file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import NtrmError, check_number
from ntrm.core.labels import RGB, LabelSchema
from ntrm.report.html import share_text
from ntrm.results.documents import Measure, Piece, measures_of

if TYPE_CHECKING:
    from PIL import Image as Pillow
    from PIL.ImageFont import FreeTypeFont

LINES = {
    "deep_clearance": ("deep", "#0053a6"),
    "lateral_clearance": ("lateral", "#a83800"),
    "invasion_depth": ("depth", "#1d1d22"),
}
"""What is drawn of the measurements: a short name, and a colour that stands out from white and from tissue."""

WIDTH_OF_LETTER, HEIGHT_OF_LINE = 0.62, 1.25
"""Of the font's size; generous for the fonts in use."""

Point = tuple[float, float]
"""x and y."""
Points = NDArray[np.float64]
"""(N, 2) of these."""

FINER = 4
"""Lines are drawn so many times larger and then reduced: Pillow's own have jagged edges."""

INK: RGB = (29, 29, 34)

PAPER: RGB = (255, 255, 255)

Image = NDArray[np.uint8]

Document = Mapping[str, Any]

_BOX = ("top", "left", "height", "width")


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture."""

    left: float
    top: float
    width: float
    height: float

    def count(self, points: Points, margin: float = 0.0) -> int:
        """How many of the points lie inside, or nearer than ``margin``."""
        first = np.array([self.left - margin, self.top - margin])
        last = np.array([self.left + self.width + margin, self.top + self.height + margin])
        return int(np.count_nonzero(((points >= first) & (points <= last)).all(axis=1)))

    def overlap(self, other: Box) -> float:
        """Area that two have in common."""
        wide = min(self.left + self.width, other.left + other.width) - max(self.left, other.left)
        high = min(self.top + self.height, other.top + other.height) - max(self.top, other.top)
        return max(wide, 0.0) * max(high, 0.0)


@dataclass(frozen=True)
class Frame:
    """A picture of the whole mask, and the size of the letters on it."""

    width: float
    height: float
    across: float
    """Pixels of the picture for one of the mask, along x."""
    down: float
    font: float

    def __post_init__(self) -> None:
        for what in ("width", "height", "across", "down", "font"):
            check_number(f"{what} of a picture", getattr(self, what), 1e-6, 1e7)

    def place(self, row: float, column: float) -> Point:
        """The middle of a pixel of the mask."""
        return (column + 0.5) * self.across, (row + 0.5) * self.down


@dataclass(frozen=True)
class Mark:
    """A measured line."""

    key: str
    text: str
    colour: str
    start: Point
    end: Point
    label: Box

    @property
    def length(self) -> float:
        """In pixels of the picture."""
        return math.dist(self.start, self.end)


@dataclass(frozen=True)
class Badge:
    """The number of a piece."""

    text: str
    centre: Point
    radius: float


@dataclass(frozen=True)
class ScaleBar:
    """A bar of a round length."""

    text: str
    length: float
    """In pixels of the picture."""
    millimetres: float


def line_marks(measures: Iterable[Measure], frame: Frame, taken: Sequence[Box] = ()) -> list[Mark]:
    """Lines with labels that avoid each other, the lines, the picture's edge and what is taken."""
    drawn = [each for each in measures if each.key in LINES and each.line is not None and each.value is not None]
    ends = [tuple(frame.place(*point) for point in each.line or ()) for each in drawn]
    points = np.array([_between(start, end, share / 24) for start, end in ends for share in range(25)]).reshape(-1, 2)
    marks: list[Mark] = []
    for each, (start, end) in zip(drawn, ends, strict=True):
        name, colour = LINES[each.key]
        text = f"{name} {each.value:.2f} mm"
        boxes = [*taken, *(mark.label for mark in marks)]
        label = _best_label(text, start, end, frame, boxes, points)
        marks.append(Mark(each.key, text, colour, start, end, label))
    return marks


def piece_badges(boxes: Sequence[tuple[int, tuple[int, int, int, int]]], frame: Frame) -> list[Badge]:
    """Numbers at the upper left of the pieces' boxes; none where there is but one piece."""
    if len(boxes) < 2:
        return []
    radius = 0.85 * frame.font
    badges = []
    for number, (top, left, _, _) in boxes:
        x, y = left * frame.across, top * frame.down
        centre = (
            min(max(x, radius), max(frame.width - radius, radius)),
            min(max(y, radius), max(frame.height - radius, radius)),
        )
        badges.append(Badge(str(number), centre, radius))
    return badges


def scale_bar(frame: Frame, mpp_x: float) -> ScaleBar:
    """The longest of 1, 2, 5, 10 … that takes up a quarter of the width at most; ``mpp_x`` is the mask's.

    >>> scale_bar(Frame(1000, 500, 1, 1, 20), 10.0)
    ScaleBar(text='2 mm', length=200.0, millimetres=2.0)
    """
    most = frame.width / frame.across * mpp_x / 4000
    power = 10.0 ** math.floor(math.log10(most))
    length = max(step * power for step in (1, 2, 5) if step * power <= most * (1 + 1e-9))
    text = f"{length:g} mm" if length >= 1 else f"{length * 1000:g} µm"
    return ScaleBar(text, length * 1000 / mpp_x * frame.across, length)


def piece_boxes(pieces: Iterable[Piece]) -> list[tuple[int, tuple[int, int, int, int]]]:
    """Numbers and boxes, as ``piece_badges`` wants them."""
    return [(piece.number, piece.box) for piece in pieces]


def ticks(mark: Mark, size: float) -> tuple[tuple[Point, Point], ...]:
    """Short strokes across both ends of a line; of a line too short to be seen, none."""
    length = mark.length
    if length < size:
        return ()
    across = ((mark.end[1] - mark.start[1]) / length * size / 2, -(mark.end[0] - mark.start[0]) / length * size / 2)
    return tuple(((x - across[0], y - across[1]), (x + across[0], y + across[1])) for x, y in (mark.start, mark.end))


def _between(start: Point, end: Point, share: float) -> Point:
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _best_label(text: str, start: Point, end: Point, frame: Frame, taken: Sequence[Box], points: Points) -> Box:
    """The cheapest of places around the line; what comes first wins among equals."""
    width, height = WIDTH_OF_LETTER * frame.font * len(text), HEIGHT_OF_LINE * frame.font
    best, least = None, math.inf
    for near in (0.7, 1.6, 3.0):
        # Rather away from the start, where the tumour is.
        for share, worse in ((0.5, 0.0), (1.0, 0.05), (0.0, 1.5)):
            x, y = _between(start, end, share)
            for turn in range(8):
                right, below = math.cos(turn * math.pi / 4), math.sin(turn * math.pi / 4)
                reach = near * frame.font
                middle = x + right * (reach + width / 2), y + below * (reach + height / 2)
                box = Box(middle[0] - width / 2, middle[1] - height / 2, width, height)
                cost = _cost(box, frame, taken, points) + near / 10 + worse
                if cost < least:
                    best, least = box, cost
    # Without any place there would be no loop above; the type checker does not know.
    return best or Box(start[0], start[1], width, height)


def _cost(box: Box, frame: Frame, taken: Sequence[Box], points: Points) -> float:
    whole = box.width * box.height
    inside = box.overlap(Box(0, 0, frame.width, frame.height)) / whole
    covered = sum(box.overlap(other) for other in taken) / whole
    return 50 * (1 - inside) + 20 * covered + box.count(points, 0.2 * frame.font)


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
        raise NtrmError("matplotlib is not installed", hint="install NTRM again: pip install ntrm")
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
