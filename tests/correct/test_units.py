"""What a person can name, and outlines, against loops over the pixels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from shapely.geometry import Point, Polygon

from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE, LabelSchema, Tissue
from ntrm.core.mpp import Resolution
from ntrm.correct.pixels import PixelSet
from ntrm.correct.units import Units, outlines
from ntrm.regions.regions import scan_mask

SCHEMA = LabelSchema(tuple(Tissue(k, f"T{k}", f"T{k}", (k, 0, 0)) for k in range(3)))
MASK = np.array([[0, 0, 1, 1, 1, 2], [0, 0, 1, 1, 1, 2], [0, 2, 1, 1, 1, 2], [255, 2, 2, 2, 2, 2]], dtype=np.uint8)
"""Three regions and one pixel of which nothing is known."""


@pytest.fixture
def units():
    return Units.in_mask(scan_mask(MASK, SCHEMA, Resolution.square(1.0)))


def set_of(where):
    return PixelSet.of_window(where, 0, 0, where.shape[1])


@given(arrays(np.bool_, MASK.shape))
def test_pixels_are_counted_in_each_unit(where):
    units = Units.in_mask(scan_mask(MASK, SCHEMA, Resolution.square(1.0)))
    expected = [int((where & (tissue == MASK)).sum()) for tissue in units.tissue]
    assert units.pixels_of(set_of(where)).tolist() == expected


@given(arrays(np.bool_, st.tuples(st.integers(1, 7), st.integers(1, 7))))
def test_an_odd_number_of_outlines_lies_around_every_pixel_of_the_set_and_no_other(where):
    rings = outlines(set_of(where), where.shape, (2.0, 3.0))
    for row, column in np.ndindex(where.shape):
        point = Point((column + 0.5) * 2, (row + 0.5) * 3)
        assert sum(Polygon(ring).contains(point) for ring in rings) % 2 == where[row, column]


def test_units_know_their_place_their_pixels_and_their_tissue(units):
    assert len(units.tissue) == 3
    for row, column in np.ndindex(MASK.shape):
        if MASK[row, column] == IGNORE:
            with pytest.raises(UsageError, match="no region is known"):
                units.at((row, column))
            continue
        unit = units.at((row, column))
        assert units.tissue[unit] == MASK[row, column]
        assert units.at(units.place(unit)) == unit
        np.testing.assert_array_equal(units.pixels(np.array([unit])).rows(0, *MASK.shape), units.tissue[unit] == MASK)
    for outside in ((-1, 0), (0, -1), (4, 0), (0, 6)):
        with pytest.raises(UsageError, match="outside the mask"):
            units.at(outside)


@pytest.mark.parametrize(
    ("rows", "columns", "glass", "expected"),
    [
        (slice(0, 3), slice(2, 5), None, {1}),
        (slice(0, 4), slice(0, 6), None, {0, 1, 2}),
        (slice(0, 4), slice(0, 6), 1, {0, 2}),
        # Five ninths of one, two fifths of another.
        (slice(0, 2), slice(1, 5), None, {1}),
        # Nothing for the most part: what fills most of it.
        (slice(0, 2), slice(1, 3), None, {0}),
        (slice(0, 3), slice(2, 5), 1, {1}),
        (slice(3, 4), slice(0, 1), None, set()),
    ],
)
def test_a_lasso_picks_what_lies_in_it_for_the_most_part(units, rows, columns, glass, expected):
    where = np.zeros(MASK.shape, dtype=bool)
    where[rows, columns] = True
    is_glass = units.tissue == (99 if glass is None else glass)
    assert {int(units.tissue[unit]) for unit in units.inside(set_of(where), is_glass)} == expected
