"""Drawn pixels, each against the definition: the distance of its centre, the turns around it, a flood."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE
from ntrm.core.mpp import Resolution
from ntrm.correct.drawing import area, split_by_line, stroke

MPP = Resolution(2.0, 3.0)
SHAPE = (17, 23)
COORDINATE = st.integers(-400, 3000).map(lambda n: n / 100 + 0.003)
POINTS = st.lists(st.tuples(COORDINATE, COORDINATE), min_size=1, max_size=6)


def dense(pixels, shape=SHAPE):
    return pixels.rows(0, *shape)


def centres(shape=SHAPE):
    row, column = np.mgrid[: shape[0], : shape[1]] + 0.5
    return column, row


def distance_um(points, shape=SHAPE):
    """(H, W) from each pixel's centre to the line."""
    x, y = centres(shape)
    here = np.stack([x * MPP.x, y * MPP.y], axis=-1)
    line = np.array(points) * [MPP.x, MPP.y]
    nearest = np.full(shape, np.inf)
    for one, other in zip(line, line[1:] if len(line) > 1 else line, strict=False):
        along = other - one
        square = float(along @ along)
        share = np.clip((here - one) @ along / square, 0, 1) if square else np.zeros(shape)
        nearest = np.minimum(nearest, np.linalg.norm(here - (one + share[..., None] * along), axis=-1))
    return nearest


@given(POINTS, st.floats(4.0, 40.0))
def test_a_stroke_is_all_that_lies_within_half_its_width(points, width):
    away = distance_um(points)
    painted = dense(stroke(np.array(points), width, SHAPE, MPP))
    sure = np.abs(away - width / 2) > 1e-6
    np.testing.assert_array_equal(painted[sure], (away < width / 2)[sure])


@given(POINTS)
def test_the_thinnest_stroke_holds_every_pixel_that_its_line_passes(points):
    painted = dense(stroke(np.array(points), 0.0, SHAPE, MPP))
    ends = points[1:] or points
    for (x0, y0), (x1, y1) in zip(points, ends, strict=False):
        for share in np.linspace(0, 1, 50):
            row, column = int(np.floor(y0 + share * (y1 - y0))), int(np.floor(x0 + share * (x1 - x0)))
            if 0 <= row < SHAPE[0] and 0 <= column < SHAPE[1]:
                assert painted[row, column]


@given(st.lists(st.tuples(COORDINATE, COORDINATE), min_size=3, max_size=8))
def test_an_area_is_what_an_odd_number_of_edges_lies_right_of(points):
    x, y = centres()
    turns = np.zeros(SHAPE, dtype=int)
    for (x0, y0), (x1, y1) in zip(points, [*points[1:], points[0]], strict=True):
        if y0 != y1:
            at = x0 + (y - y0) / (y1 - y0) * (x1 - x0)
            turns += ((y0 > y) != (y1 > y)) & (at > x)
    np.testing.assert_array_equal(dense(area(np.array(points), SHAPE)), turns % 2 == 1)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0)])
def test_nothing_is_drawn_where_there_is_no_mask(shape):
    points = np.array([(0, 0), (3, 0), (3, 3)])
    assert not stroke(points, 3.0, shape, MPP)
    assert not area(points, shape)


def test_the_side_of_a_line_is_what_a_flood_reaches(random):
    mask = np.kron(random.integers(0, 3, (6, 7)), np.ones((5, 5), dtype=int)).astype(np.uint8)
    line = random.uniform(0, 34, (5, 2))
    under = dense(stroke(line, 0.0, mask.shape, MPP), mask.shape)
    divisions = 0
    for row, column in random.integers(0, 30, (80, 2)):
        if under[row, column]:
            continue
        same = mask == mask[row, column]
        regions, sides = ndimage.label(same)[0], ndimage.label(same & ~under)[0]
        whole, side = regions == regions[row, column], sides == sides[row, column]
        if not (whole & ~side & ~under).any():
            with pytest.raises(UsageError, match="does not divide"):
                split_by_line(mask, line, (row, column), MPP)
            continue
        divisions += 1
        np.testing.assert_array_equal(dense(split_by_line(mask, line, (row, column), MPP), mask.shape), side)
    assert divisions > 3


@pytest.mark.parametrize(
    ("points", "place", "message"),
    [
        ([(1, 1)], (5, 5), "does not divide"),
        ([(4, 0), (4, 9)], (2, 4), "on the line"),
        ([(4, 0), (4, 9)], (2, 99), "no region"),
        ([(4, 0), (4, 9)], (8, 0), "no region"),
        ([(4, 2), (4, 9)], (2, 1), "does not divide"),
    ],
)
def test_lines_that_divide_nothing_are_refused(points, place, message):
    mask = np.zeros((9, 10), dtype=np.uint8)
    mask[8] = IGNORE
    with pytest.raises(UsageError, match=message):
        split_by_line(mask, np.array(points, dtype=float), place, MPP)


def test_a_drawing_that_would_take_long_is_refused():
    there_and_back = np.array([(1.0, 0.0), (9.0, 16.0)] * 100)
    for draw in (lambda: area(there_and_back, SHAPE), lambda: stroke(there_and_back, 3.0, SHAPE, MPP)):
        with pytest.raises(UsageError, match="too long"):
            draw()
