"""What is drawn on a slide's picture has the pixels that it should have."""

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tests.report.measured_pieces import piece

from ntrm.core.labels import SKIN
from ntrm.report import overlay_drawing
from ntrm.report.overlay_drawing import annotated
from ntrm.report.overlay_layout import Box, Mark, font_size, ticks

GREY = 128


def plain(height=600, width=900):
    return np.full((height, width, 3), GREY, dtype=np.uint8)


def drawn(picture, shape=None, mpp=10.0, pieces=(), fractions=None):
    shape = shape or picture.shape[:2]
    return annotated(picture, SKIN, shape, mpp, pieces=pieces, fractions=fractions or {})


def test_a_line_is_drawn_where_it_was_measured(random):
    picture = plain()
    start, end = (100, 150), (500, int(random.integers(300, 800)))
    shown = drawn(picture, (300, 450), pieces=[piece(1, [[r / 2, c / 2] for r, c in (start, end)])])
    steps = np.linspace(0.05, 0.95, 40)
    points = [(round(start[0] + (end[0] - start[0]) * s), round(start[1] + (end[1] - start[1]) * s)) for s in steps]
    blue = np.array([0, 0x53, 0xA6])
    on_line = [
        np.abs(shown[row - 2 : row + 5, column - 2 : column + 5].astype(int) - blue).sum(axis=2).min()
        for row, column in points
    ]
    # The label may cover a stretch of it.
    assert np.mean(np.array(on_line) < 30) > 0.8


def drawn_whole(canvas, mark, size):
    """A mark drawn larger in one picture of all of its box: slow, and the bytes that its drawing in bands must have."""
    ends = ticks(mark, 0.7 * size)
    strokes = [(mark.start, mark.end), *ends] if ends else []
    points = np.array([point for stroke in strokes for point in stroke] or [mark.end])
    left, top = np.maximum((points.min(axis=0) - 2 * size).astype(int), 0).tolist()
    right, bottom = np.minimum((points.max(axis=0) + 2 * size).astype(int), canvas.size).tolist()
    if right <= left or bottom <= top:
        return
    for colour, thick in (("#ffffff", 0.30 * size), (mark.colour, 0.13 * size)):
        cover = Image.new("L", ((right - left) * 4, (bottom - top) * 4), 0)
        draw, width = ImageDraw.Draw(cover), max(1, round(thick * 4))
        for (x0, y0), (x1, y1) in strokes:
            draw.line([(x0 - left) * 4, (y0 - top) * 4, (x1 - left) * 4, (y1 - top) * 4], fill=255, width=width)
        if not strokes:
            centre = (mark.end[0] - left) * 4, (mark.end[1] - top) * 4
            draw.circle(centre, 0.35 * size * 4 + width / 2, outline=255, width=width)
        canvas.paste(colour, (left, top, right, bottom), cover.reduce(4))


@pytest.mark.parametrize("kind", ["any", "level", "upright", "short", "beyond"])
def test_lines_drawn_in_bands_have_the_pixels_of_lines_drawn_whole(random, kind):
    picture = random.integers(0, 256, (400, 300, 3), dtype=np.uint8)
    for _ in range(25):
        start, end = random.uniform((0, 0), (300, 400), (2, 2))
        if kind in ("level", "upright"):
            end[int(kind == "level")] = start[int(kind == "level")] + random.choice([0.0, 0.3, 3.0])
        elif kind != "any":
            end = start + (random.normal(0, 4, 2) if kind == "short" else random.normal(0, 400, 2))
        size = float(random.choice([2.0, 7.0, 12.5, 25.0]))
        mark = Mark("", "#0053a6", tuple(start.tolist()), tuple(end.tolist()), Box(0, 0, 1, 1))
        found, expected = Image.fromarray(picture), Image.fromarray(picture)
        overlay_drawing._draw_mark(found, mark, size)
        drawn_whole(expected, mark, size)
        assert np.array_equal(found, expected)


def test_a_line_without_length_is_a_ring_and_one_beyond_the_picture_harmless():
    ring = drawn(plain(), pieces=[piece(1, [[300, 400], [300, 401]], 0.0)])
    assert (ring[300, 401] == GREY).all()
    assert (ring[280:320, 380:421] != GREY).any()
    away = drawn(plain(), pieces=[piece(1, [[-9000, -9000], [-8000, -8000]])])
    np.testing.assert_array_equal(away[100:400, 300:], plain()[100:400, 300:])


def test_the_rest_of_the_picture_stays_as_it_is():
    picture = plain()
    shown = drawn(picture)
    assert shown.shape == picture.shape
    np.testing.assert_array_equal(shown[:450], picture[:450])


def test_the_scale_bar_has_the_length_it_says():
    shown = drawn(plain(), mpp=10.0)  # 9 mm wide: a bar of 2 mm
    size = font_size(900, 600)
    row = shown[round(600 - size - 0.15 * size)]
    dark = np.flatnonzero((row == (29, 29, 34)).all(axis=1))
    assert dark.max() - dark.min() + 1 == pytest.approx(200, abs=2)


def test_the_legend_names_tissues_that_are_there_in_their_colours():
    shares = {"RET": 0.75, "BCC": 0.25, "EPI": 0.0, "SCC": None}
    shown = drawn(plain(), fractions=shares)
    below = shown[600:].reshape(-1, 3)
    assert len(below) > 0
    for name, present in (("RET", True), ("BCC", True), ("EPI", False), ("SCC", False)):
        assert (below == SKIN[name].rgb).all(axis=1).any() == present, name
    seen = annotated(plain(), SKIN, (600, 900), 10.0, fractions=shares, seen={"RET": (1, 2, 3)})
    assert (seen[600:].reshape(-1, 3) == (1, 2, 3)).all(axis=1).any()


def test_pieces_are_numbered_where_there_are_several():
    line = [[300, 400], [310, 420]]
    boxes = [(50, 100, 10, 10), (50, 700, 10, 10)]
    one = drawn(plain(), pieces=[piece(1, line, box=boxes[0])])
    two = drawn(plain(), pieces=[piece(n + 1, line, box=box) for n, box in enumerate(boxes)])
    assert (one[45:56, 95:106] == GREY).all()
    for column in (100, 700):
        assert (two[45:56, column - 5 : column + 6] != GREY).any()


def test_the_same_picture_every_time_and_also_of_a_sliver(random):
    pieces = [piece(1, random.uniform(0, 500, (2, 2)).tolist())]
    one, two = (drawn(plain(), pieces=pieces, fractions={"RET": 1.0}) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert drawn(plain(1200, 1), pieces=pieces, fractions={"RET": 1.0}).shape[1] > 100  # the legend
