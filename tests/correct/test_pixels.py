"""Sets of pixels against Python's own sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.errors import DataError
from ntrm.correct.pixels import PixelSet, union

SIZE = 40
indices = st.sets(st.integers(0, SIZE - 1))


def of(pixels, width=SIZE):
    """The set of these flattened indices."""
    inside = np.isin(np.arange(SIZE), sorted(pixels)).reshape(-1, width)
    return PixelSet.of_window(inside, 0, 0, width)


def members(pixels):
    return {index for start, stop in zip(pixels.start, pixels.stop, strict=True) for index in range(start, stop)}


@given(indices, indices)
def test_union_intersection_and_difference_are_those_of_sets(one, other):
    results = {
        of(one) | of(other): one | other,
        of(one) & of(other): one & other,
        of(one) - of(other): one - other,
        union([of(one), of(other), of(one)]): one | other,
    }
    for found, expected in results.items():
        assert members(found) == expected
        assert (found.pixels, bool(found)) == (len(expected), bool(expected))
        # In order; they neither overlap nor touch.
        assert (found.length > 0).all()
        assert (found.start[1:] > found.stop[:-1]).all()


@given(indices)
def test_a_text_is_read_back_as_it_was(pixels):
    found = PixelSet.parse(of(pixels).text, SIZE)
    assert members(found) == pixels
    assert found.text == of(pixels).text


@given(indices, st.sampled_from([1, 4, 5, 8, 40]), st.data())
def test_rows_and_single_pixels_are_found(pixels, width, data):
    height = SIZE // width
    top = data.draw(st.integers(0, height - 1))
    rows = data.draw(st.integers(1, height - top))
    expected = np.isin(np.arange(SIZE), sorted(pixels)).reshape(height, width)
    np.testing.assert_array_equal(of(pixels, width).rows(top, rows, width), expected[top : top + rows])
    np.testing.assert_array_equal(of(pixels).holds(np.arange(SIZE).reshape(height, width)), expected)


@given(indices, st.integers(0, 3), st.integers(0, 3))
def test_a_window_lies_where_it_lies_in_the_mask(pixels, top, left):
    inside = np.isin(np.arange(SIZE), sorted(pixels)).reshape(5, 8)
    whole = np.zeros((5 + top, 8 + left + 2), dtype=bool)
    whole[top:, left : left + 8] = inside
    found = PixelSet.of_window(inside, top, left, whole.shape[1])
    assert members(found) == {*np.flatnonzero(whole).tolist()}


@pytest.mark.parametrize(
    "text", ["3", "1+", "a+b", "1+2 ", "-1+2", "1+2,3+4", "1+0", "38+3", "5+1 0+2", "9" * 15 + "+1"]
)
def test_what_is_no_set_of_this_mask_is_refused(text):
    with pytest.raises(DataError):
        PixelSet.parse(text, SIZE)
