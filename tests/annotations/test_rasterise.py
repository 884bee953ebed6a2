from fractions import Fraction

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import star

from ntrm.annotations.qupath import Annotation
from ntrm.annotations.rasterise import AnnotationGrid, paint, read_grid
from ntrm.core.labels import IGNORE
from ntrm.slides.readers.reader import SlideInfo, SlideLevel

seeds = st.integers(0, 2**32 - 1)


def area(rings, value, size, name=""):
    return Annotation(tuple(rings), size, (0, 0, 0, 0), name), value


def centres(width, height):
    y, x = np.mgrid[:height, :width] + 0.5
    return x, y


def box(left, top, right, bottom):
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], dtype=float)


def test_smaller_areas_lie_on_top_whatever_their_order():
    grid = AnnotationGrid(0, 0, 1, 1, 20, 10)
    areas = [area([box(4, 4, 8, 8)], 9, 16), area([box(0, 0, 10, 10)], 3, 100)]
    mask, overlaps, pixels = paint(areas, grid)
    assert np.array_equal(paint(areas[::-1], grid).mask, mask)
    assert pixels == (16, 100)
    assert {value: (mask == value).sum() for value in (3, 9, IGNORE)} == {3: 84, 9: 16, IGNORE: 100}
    assert overlaps == {(3, 9): 16}


@pytest.mark.parametrize("size", [1, 9])
def test_ignore_lies_on_top_whatever_its_size(size):
    tissues = [area([box(0, 0, 4, 4)], 1, 16), area([box(1, 1, 3, 2)], 2, 2)]
    ink = area([box(1, 1, 2, 2)], IGNORE, size, "Ignore*")
    mask, overlaps, _ = paint([ink, *tissues], AnnotationGrid(0, 0, 1, 1, 4, 4))
    assert np.argwhere(mask == IGNORE).tolist() == [[1, 1]]
    assert overlaps == {(1, 2): 2, (2, IGNORE): 1}


@pytest.mark.parametrize("name", ["Region*", "Outline of the section"])
def test_a_frame_around_annotations_hides_none_of_them(name):
    frame = area([box(0, 0, 4, 4)], IGNORE, 16, name)
    mask, overlaps, _ = paint([area([box(1, 1, 2, 2)], 3, 1), frame], AnnotationGrid(0, 0, 1, 1, 4, 4))
    assert np.argwhere(mask == 3).tolist() == [[1, 1]]
    assert overlaps == {}


@given(seed=seeds)
def test_the_grid_is_placed_on_the_slide(seed):
    rng = np.random.default_rng(seed)
    grid = AnnotationGrid(*rng.uniform(0, 50, 2), *rng.uniform(0.5, 4, 2), 30, 20)
    ring = star(rng, rng.uniform(0, 100, 2), 60, 15)
    mask = paint([area([ring], 5, 1)], grid).mask
    x, y = centres(30, 20)
    inside = shapely.contains_xy(shapely.Polygon(ring), grid.left + x * grid.step_x, grid.top + y * grid.step_y)
    assert np.array_equal(mask == 5, inside)


class InMemory:
    """Stands for a reader, and never lets itself be asked for what lies outside."""

    def __init__(self, pixels):
        height, width, _ = pixels.shape
        self.pixels = pixels
        self.info = SlideInfo("array", "array", (SlideLevel(width, height, 1.0),))

    def read(self, x, y, width, height, level):
        assert level == 0
        part = self.pixels[y : y + height, x : x + width]
        assert (min(x, y) >= 0, part.shape) == (True, (height, width, 3))
        return part


@pytest.mark.parametrize("step", [Fraction(24, 25), Fraction(21, 20), Fraction(5, 2), Fraction(10, 3)])
def test_means_over_fractions_of_pixels_are_exact_and_halves_are_rounded_up(step, random):
    pixels = random.integers(0, 2, (50, 50, 3), dtype=np.uint8)  # so small that many means are one half
    count = int(48 / step)
    image = read_grid(InMemory(pixels), AnnotationGrid(1, 2, float(step), float(step), count, count))
    # Cut into slivers of which a pixel of the grid has a whole number.
    slivers = np.kron(pixels[2:, 1:], np.ones((step.denominator, step.denominator, 1), dtype=int))
    side = count * step.numerator
    sums = slivers[:side, :side].reshape(count, step.numerator, count, step.numerator, 3).sum(axis=(1, 3))
    assert np.array_equal(image, (2 * sums + step.numerator**2) // (2 * step.numerator**2))
