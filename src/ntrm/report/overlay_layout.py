"""Where everything stands that is drawn on a slide's picture, for the picture file and for the page alike.

Measured lines with their lengths, numbers of pieces, a scale bar.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats
from ntrm.core.errors import check_number
from ntrm.results.documents import Measure, PieceSummary

LINES = {
    "deep_clearance": ("deep", "#0053a6"),
    "lateral_clearance": ("lateral", "#a83800"),
    "invasion_depth": ("depth", "#1d1d22"),
}
"""What is drawn of the measurements: a short name, and a colour that stands out from white and from tissue."""

LETTER_WIDTH, LINE_HEIGHT = 0.62, 1.25
"""Of the font's size; generous for the fonts in use."""
MOST_COVERED = 1 / 8
"""Of a picture by labels together; where there are more of them, letters become smaller."""
SMALLEST_LETTERS = 0.4
"""Of the usual size."""

Point = tuple[float, float]
"""x and y."""
Points = NDArray[np.float64]
"""(N, 2) of these."""
Boxes = NDArray[np.float64]
"""(N, 4) left, top, width, height."""


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


def font_size(width: float, height: float) -> float:
    """Of letters on a picture of this size.

    >>> font_size(1500, 1000)
    25.0
    """
    return max(width, height) / 60


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
class OverlayLayout:
    """All that is drawn of the pieces, and the frame with the size of its letters."""

    frame: Frame
    badges: Sequence[Badge]
    marks: Sequence[Mark]

    @classmethod
    def of(cls, pieces: Sequence[PieceSummary], frame: Frame) -> OverlayLayout:
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
