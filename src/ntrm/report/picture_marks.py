"""What is drawn on a slide's picture: measured lines with their lengths, numbers of pieces, a scale bar.

Only where things go; a picture file and a page draw them, each in its own way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import check_number
from ntrm.report.slide_documents import Measure, Piece

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
