"""What is drawn on a slide's picture: measured lines with their lengths, numbers of pieces, a scale bar, a legend.

First the layout, for the picture file and for the page alike; then the drawing of the picture file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ntrm.core.errors import NtrmError, check_number
from ntrm.core.labels import RGB, LabelSchema
from ntrm.report.html import share_text
from ntrm.results.documents import Measure, PieceSummary

LINES = {
    "deep_clearance": ("deep", "#0053a6"),
    "lateral_clearance": ("lateral", "#a83800"),
    "invasion_depth": ("depth", "#1d1d22"),
}
"""What is drawn of the measurements: a short name, and a colour that stands out from white and from tissue."""
INK, PAPER = "#1d1d22", "#ffffff"

LETTER_WIDTH, LINE_HEIGHT = 0.62, 1.25
"""Of the font's size; generous for the fonts in use."""
MOST_COVERED = 1 / 8
"""Of a picture by labels together; where there are more of them, letters become smaller."""
SMALLEST_LETTERS = 0.4
"""Of the usual size."""
OVERSAMPLING = 4
"""Lines are drawn so many times larger and then reduced: Pillow's own have jagged edges."""
BAND_ROWS = 64
"""Of the picture, in which lines are drawn together."""

Point = tuple[float, float]
"""x and y."""
Stroke = tuple[tuple[int, int], tuple[int, int]]
"""x and y of both ends in the larger drawing."""
Floats = NDArray[np.float64]
Points = NDArray[np.float64]
"""(N, 2) of these."""
Boxes = NDArray[np.float64]
"""(N, 4) left, top, width, height."""
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture."""

    left: float
    top: float
    width: float
    height: float


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

    def point(self, row: float, column: float) -> Point:
        """The middle of a pixel of the mask."""
        return (column + 0.5) * self.across, (row + 0.5) * self.down


@dataclass(frozen=True)
class Mark:
    """A measured line."""

    text: str
    colour: str
    start: Point
    end: Point
    label: Box


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


@dataclass(frozen=True)
class Drawn:
    """All that is drawn of the pieces, and the frame with the size of its letters."""

    frame: Frame
    badges: Sequence[Badge]
    marks: Sequence[Mark]

    @classmethod
    def of(cls, pieces: Sequence[PieceSummary], frame: Frame) -> Drawn:
        """``frame`` has the usual letters."""
        measures = [named for piece in pieces for named in piece.measurements.items()]
        frame = with_fitting_letters(frame, measures)
        badges = piece_badges(pieces, frame)
        taken = [Box(b.centre[0] - b.radius, b.centre[1] - b.radius, 2 * b.radius, 2 * b.radius) for b in badges]
        return cls(frame, badges, line_marks(measures, frame, taken))


def with_fitting_letters(frame: Frame, measures: Iterable[tuple[str, Measure]]) -> Frame:
    """The frame with letters so small that the labels of many pieces leave something of the picture to be seen."""
    letters = sum(len(text) for text, _, _ in _shown(measures))
    room = MOST_COVERED * frame.width * frame.height / max(1, letters)
    fitting = math.sqrt(room / (LETTER_WIDTH * LINE_HEIGHT))
    return replace(frame, font=min(frame.font, max(fitting, SMALLEST_LETTERS * frame.font)))


def line_marks(measures: Iterable[tuple[str, Measure]], frame: Frame, taken: Sequence[Box] = ()) -> list[Mark]:
    """Lines with labels that avoid each other, the lines, the picture's edge and what is taken."""
    shown = _shown(measures)
    ends = [tuple(frame.point(*point) for point in line) for _, _, line in shown]
    lines = np.array(ends).reshape(-1, 2, 1, 2)
    points = (lines[:, 0] + (lines[:, 1] - lines[:, 0]) * (np.arange(25) / 24)[:, None]).reshape(-1, 2)
    boxes = np.empty((len(taken) + len(shown), 4))  # what is taken: the labels so far come after ``taken``
    boxes[: len(taken)] = np.array([*map(astuple, taken)]).reshape(-1, 4)
    marks: list[Mark] = []
    for (text, colour, _), (start, end) in zip(shown, ends, strict=True):
        count = len(taken) + len(marks)
        boxes[count] = _best_label(text, start, end, frame, boxes[:count], points)
        marks.append(Mark(text, colour, start, end, Box(*boxes[count].tolist())))
    return marks


def _shown(measures: Iterable[tuple[str, Measure]]) -> list[tuple[str, str, tuple[Point, Point]]]:
    """Text and colour of what is drawn, and the ends of its line (row and column of the mask)."""
    return [
        (f"{LINES[key][0]} {measure.value:.2f} mm", LINES[key][1], measure.line_px)
        for key, measure in measures
        if key in LINES and measure.line_px is not None and measure.value is not None
    ]


def piece_badges(pieces: Sequence[PieceSummary], frame: Frame) -> list[Badge]:
    """Numbers at the top left of the pieces' boxes; none where there is but one piece."""
    radius = 0.85 * frame.font
    badges = []
    for piece in pieces:
        x = min(max(piece.mask_box_px.left * frame.across, radius), max(frame.width - radius, radius))
        y = min(max(piece.mask_box_px.top * frame.down, radius), max(frame.height - radius, radius))
        badges.append(Badge(str(piece.number), (x, y), radius))
    return badges if len(badges) > 1 else []


def scale_bar(frame: Frame, mpp_x: float) -> ScaleBar:
    """The longest of 1, 2, 5, 10 … that takes up a quarter of the width at most; ``mpp_x`` is the mask's.

    >>> scale_bar(Frame(1000, 500, 1, 1, 20), 10.0)
    ScaleBar(text='2 mm', length=200.0)
    """
    most = frame.width / frame.across * mpp_x / 4000
    power = 10.0 ** math.floor(math.log10(most))
    length = max(step * power for step in (1, 2, 5) if step * power <= most * (1 + 1e-9))
    text = f"{length:g} mm" if length >= 1 else f"{length * 1000:g} µm"
    return ScaleBar(text, length * 1000 / mpp_x * frame.across)


def ticks(mark: Mark, size: float) -> tuple[tuple[Point, Point], ...]:
    """Short strokes across both ends of a line; of a line too short to be seen, none."""
    length = math.dist(mark.start, mark.end)
    if length < size:
        return ()
    dx, dy = ((mark.end[1] - mark.start[1]) / length * size / 2, -(mark.end[0] - mark.start[0]) / length * size / 2)
    return tuple(((x - dx, y - dy), (x + dx, y + dy)) for x, y in (mark.start, mark.end))


def _best_label(text: str, start: Point, end: Point, frame: Frame, taken: Boxes, points: Points) -> Floats:
    """The cheapest of the boxes around the line; the first one wins among equals."""
    size = np.array((LETTER_WIDTH * frame.font * len(text), LINE_HEIGHT * frame.font))
    corners = _corners(np.array(start), np.array(end), size, frame.font)
    margin = 0.2 * frame.font
    low, high = corners - margin, corners + size + margin  # (n, 2)
    first, last = low.min(axis=0) - 1, high.max(axis=0) + 1
    # What no candidate reaches adds nothing to any of them.
    near = points[_within(points, first, last)]
    beside = taken[_within(taken[:, :2], first - taken[:, 2:], last)]
    lines = _within(near[:, None], low, high).sum(axis=0)
    inside = _overlaps(np.array([(0, 0, frame.width, frame.height)]), corners, size) / size.prod()
    covered = _overlaps(beside, corners, size) / size.prod()
    cost = 50 * (1 - inside) + 20 * covered + lines + _DISTANCES / 10 + _PENALTIES
    return np.concatenate([corners[int(cost.argmin())], size])


_EIGHTHS = [(math.cos(eighth * math.pi / 4), math.sin(eighth * math.pi / 4)) for eighth in range(8)]
# Rather away from the start, where the tumour is.
_EVERY = [*product((0.7, 1.6, 3.0), ((0.5, 0.0), (1.0, 0.05), (0.0, 1.5)), _EIGHTHS)]
_DISTANCES = np.array([distance for distance, _, _ in _EVERY])
"""Of a label from its line, in heights of letters."""
_ALONG, _PENALTIES = np.array([along for _, along, _ in _EVERY]).T
"""Where along the line a label stands, and how bad that is."""
_WAYS = np.array([way for _, _, way in _EVERY])
"""On which side."""


def _corners(start: Floats, end: Floats, size: Floats, font: float) -> Points:
    """(n, 2) left and top of the boxes around a line."""
    at = start + (end - start) * _ALONG[:, None]
    return np.asarray(at + _WAYS * (_DISTANCES[:, None] * font + size / 2) - size / 2)


def _within(points: Points, low: Points, high: Points) -> NDArray[np.bool_]:
    """Whether points (…, 2) lie in rectangles."""
    # Axis by axis: ``all`` over an axis of two takes far longer.
    x, y = points[..., 0], points[..., 1]
    return (x >= low[..., 0]) & (x <= high[..., 0]) & (y >= low[..., 1]) & (y <= high[..., 1])


def _overlaps(others: Boxes, corners: Points, size: Floats) -> Floats:
    """(n,) area that each box of this size has in common with the others, added up."""
    low = np.maximum(corners, others[:, None, :2])
    high = np.minimum(corners + size, (others[:, :2] + others[:, 2:])[:, None])
    return np.asarray(np.maximum(high - low, 0.0).prod(axis=2).sum(axis=0))


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
    drawn = Drawn.of(pieces, frame)
    canvas, font, small = Image.fromarray(picture), _font(size), _font(drawn.frame.font)
    for mark in drawn.marks:
        _draw_mark(canvas, mark, drawn.frame.font)
    for badge in drawn.badges:
        _draw_badge(canvas, badge, small)
    for mark in drawn.marks:
        _draw_text(canvas, (mark.label.left, mark.label.top), mark.text, small, mark.colour)
    _draw_scale_bar(canvas, scale_bar(frame, mpp_x), font)
    if note:
        _draw_text(canvas, (size, size / 2), note, font, INK)
    return np.asarray(with_legend(canvas, _tissues(schema, fractions, seen or {}), size))


def font_size(width: float, height: float) -> float:
    """Of letters on a picture of this size.

    >>> font_size(1500, 1000)
    25.0
    """
    return max(width, height) / 60


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
    page = Image.new("RGB", (canvas.width, canvas.height + round(rows * line + (size if rows else 0))), PAPER)
    page.paste(canvas, (0, 0))
    draw = ImageDraw.Draw(page)
    for number, (text, pure, seen) in enumerate(entries):
        x, y = size + column * (number // rows), canvas.height + 0.6 * size + line * (number % rows)
        draw.rectangle((x + size, y, x + 2 * size, y + size), fill=seen)
        draw.rectangle((x, y, x + size, y + size), fill=pure)
        draw.rectangle((x, y, x + 2 * size, y + size), outline=INK)
        draw.text((x + 2.5 * size, y + size / 2), text, font=font, fill=INK, anchor="lm")
    return page
