"""What was measured, drawn over a slide's picture; the page draws the same ``Drawing`` by ``stage.html``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageDraw, ImageFont

from ntrm.core.arrays import Floats
from ntrm.core.labels import RGB, LabelSchema, rgb_of
from ntrm.report.html import share_text
from ntrm.results.documents import PieceSummary, Summary

LINES = {
    "deep_clearance": ("deep", "#0053a6"),
    "lateral_clearance": ("lateral", "#a83800"),
    "invasion_depth": ("depth", "#1d1d22"),
}
"""What is drawn of the measurements: a short name, and a colour that stands out from white and from tissue."""
INK, PAPER = "#1d1d22", "#ffffff"
MOST_LENGTHS = 12  # In the legend; of more lines it explains the colours, and the table has the lengths

Point = tuple[float, float]  # x and y
Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Frame:
    """A picture of the whole mask, and the size of the letters on it."""

    width: float
    height: float
    across: float  # Pixels of the picture for one of the mask, along x
    down: float
    font: float

    def point(self, row: float, column: float) -> Point:
        """The middle of a pixel of the mask."""
        return (column + 0.5) * self.across, (row + 0.5) * self.down


def font_size(width: float, height: float) -> float:
    """Of letters on a picture of this size."""
    return max(width, height) / 60


class Line(NamedTuple):
    """A measured line."""

    text: str
    colour: str
    start: Point
    end: Point


@dataclass(frozen=True)
class Drawing:
    """All that is drawn of the pieces."""

    lines: Sequence[Line]
    badges: Sequence[tuple[str, Point]]  # Numbers of the pieces, where there are several, and where they stand
    font: float  # Size of their letters: where there are many lines, they become smaller

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Texts and colours of the lines."""
        if len(self.lines) <= MOST_LENGTHS:
            return [(line.text, line.colour) for line in self.lines]
        return [(name, colour) for name, colour in LINES.values() if colour in {line.colour for line in self.lines}]


def drawing_of(pieces: Sequence[PieceSummary], frame: Frame) -> Drawing:
    """What is drawn of the pieces in this frame."""
    lines, several = [], len(pieces) > 1
    for piece in pieces:
        for key, measure in piece.measurements.items():
            if key in LINES and measure.line_px is not None and measure.value is not None:
                name, colour = LINES[key]
                text = f"{piece.number}: " * several + f"{name} {measure.value:.2f} mm"
                lines.append(Line(text, colour, *(frame.point(*point) for point in measure.line_px)))
    font = frame.font * max(0.4, min(1.0, math.sqrt(9 / max(len(lines), 1))))
    badges = []
    for number, box in [(piece.number, piece.mask_box_px) for piece in pieces] if several else ():
        # Also of a piece at the border the number is inside the picture.
        x, y = max(box.left * frame.across, font), max(box.top * frame.down, font)
        badges.append((str(number), (min(x, frame.width - font), min(y, frame.height - font))))
    return Drawing(lines, badges, font)


def scale_bar(frame: Frame, mpp_x: float) -> tuple[str, float]:
    """The longest of 1, 2, 5, 10 … that takes up a quarter of the width at most: its text, and its length there.

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
    summary: Summary,
    seen: Mapping[str, RGB],
) -> Picture:
    """``picture`` (H, W, 3) of a whole mask of ``mpp_x`` with all that is drawn on it.

    ``seen`` are the tissues' colours as they look over the slide; the legend shows them beside the pure ones.
    """
    height, width = picture.shape[:2]
    size = font_size(width, height)
    frame = Frame(width, height, width / mask_shape[1], height / mask_shape[0], size)
    drawing, canvas = drawing_of(summary.pieces, frame), Image.fromarray(picture)
    font, draw = _font(size), ImageDraw.Draw(canvas)
    for line in drawing.lines:
        _draw_line(canvas, line, drawing.font)
    for text, centre in drawing.badges:
        draw.circle(centre, 0.85 * drawing.font, fill=INK, outline=PAPER, width=max(1, int(drawing.font / 9)))
        draw.text(centre, text, font=_font(drawing.font), fill=PAPER, anchor="mm")
    text, length = scale_bar(frame, mpp_x)
    top, bottom = height - 1.3 * size, height - size
    draw.rectangle((size - 2, top - 2, size + length + 2, bottom + 2), fill=PAPER)
    draw.rectangle((size, top, size + length, bottom), fill=INK)
    note, fractions = summary.corrected.text if summary.corrected else "", summary.tissue_fractions
    for at, words, anchor in (((size, top - 0.3 * size), text, "ls"), ((size, size / 2), note, "la")):
        draw.text(at, words, INK, font, anchor, stroke_width=max(1, round(size / 7)), stroke_fill=PAPER)
    entries = []
    for name in sorted((name for name, value in fractions.items() if value), key=lambda name: -(fractions[name] or 0)):
        words = "  ".join(filter(None, (name, schema[name].explanation, share_text(fractions[name]))))
        entries.append((words, schema[name].rgb, seen.get(name, schema[name].rgb)))
    entries += [(words, rgb := rgb_of(ImageColor.getrgb(colour)), rgb) for words, colour in drawing.legend]
    return np.asarray(with_legend(canvas, entries, size))


def _font(size: float) -> ImageFont.FreeTypeFont:
    """The font that comes with matplotlib, the same on every machine; importing that takes longer than all drawing."""
    path = distribution("matplotlib").locate_file("matplotlib/mpl-data/fonts/ttf/DejaVuSans.ttf")
    return ImageFont.truetype(str(path), size)


def _draw_line(canvas: Image.Image, line: Line, size: float) -> None:
    """A line with dots at its ends, with white edges; drawn twice as large, because Pillow's edges are jagged."""
    ends = np.array([line.start, line.end])
    left, top = np.maximum(ends.min(axis=0) - size, 0).astype(int).tolist()
    right, bottom = np.minimum(ends.max(axis=0) + size, canvas.size).astype(int).tolist()
    for colour, thick in ((PAPER, 0.30 * size), (line.colour, 0.13 * size)) if left < right and top < bottom else ():
        cover = Image.new("L", (2 * (right - left), 2 * (bottom - top)))
        draw, points = ImageDraw.Draw(cover), [tuple(end) for end in (2 * (ends - (left, top))).tolist()]
        draw.line(points, fill=255, width=max(1, round(2 * thick)))
        for point in points:
            draw.circle(point, 2 * (0.18 * size + thick / 2), fill=255)
        canvas.paste(colour, (left, top, right, bottom), cover.reduce(2))


def with_legend(canvas: Image.Image, entries: Sequence[tuple[str, RGB, RGB]], size: float) -> Image.Image:
    """The picture with texts below, each beside two colours: as it is, and as it looks over the slide."""
    font = _font(size)
    column = max((font.getlength(text) for text, _, _ in entries), default=0) + 4.2 * size
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


STEPS: tuple[tuple[float, RGB, str], ...] = (
    (0.01, (213, 94, 0), "p below 0.01: unlike the training data"),
    (0.1, (240, 228, 66), "p below 0.1: in between"),
    (math.inf, (86, 180, 233), "like the training data"),
)
"""P-values below which a window has a colour; colours of Okabe and Ito, told apart by every kind of colour vision."""
TINT = 0.5

Windows = Sequence[tuple[int, int, int, int, float]]  # Top, left, height and width in pixels of the mask, and p-value


def familiarity_map(picture: Picture, windows: Windows, mask_shape: tuple[int, int]) -> Picture:
    """``picture`` (H, W, 3) of a whole mask, tinted where there are windows, with a legend below.

    Where windows overlap, the geometric mean of their p-values counts.
    """
    p_values = window_values(windows, mask_shape, (picture.shape[0], picture.shape[1]))
    # The step of each pixel; the last one, which leaves it grey, where no window lies.
    step = np.where(np.isnan(p_values), len(STEPS), np.digitize(p_values, [upper for upper, _, _ in STEPS[:-1]]))
    grey = picture.mean(axis=2, keepdims=True, dtype=np.float32)
    tints = np.array([*(colour for _, colour, _ in STEPS), (0, 0, 0)], dtype=np.float32)[step]
    shown = np.where((step < len(STEPS))[..., None], (1 - TINT) * grey + TINT * tints, grey)
    canvas = Image.fromarray(np.rint(shown).astype(np.uint8))
    entries = [(text, colour, colour) for _, colour, text in STEPS]
    return np.asarray(with_legend(canvas, entries, 1.7 * font_size(canvas.width, canvas.height)))


def window_values(windows: Windows, mask_shape: tuple[int, int], shape: tuple[int, int]) -> Floats:
    """(H, W) p-values of a picture of ``shape`` that shows the whole mask; NaN where no window lies.

    >>> window_values([(0, 0, 2, 2, 0.25), (0, 1, 2, 2, 0.01)], (2, 4), (1, 4)).round(3).tolist()
    [[0.25, 0.05, 0.01, nan]]
    """
    sums, counts = np.zeros(shape), np.zeros(shape)
    down, across = shape[0] / mask_shape[0], shape[1] / mask_shape[1]
    for y, x, height, width, p_value in windows:
        top, left = round(y * down), round(x * across)
        bottom, right = max(round((y + height) * down), top + 1), max(round((x + width) * across), left + 1)
        # One window must not outweigh all that overlap it.
        sums[top:bottom, left:right] += math.log(max(p_value, 1e-6))
        counts[top:bottom, left:right] += 1
    means = np.divide(sums, counts, out=np.full(shape, np.nan), where=counts > 0)
    return np.asarray(np.exp(means))
