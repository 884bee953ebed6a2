from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.labels import IGNORE
from ntrm.data.tiles import GLASS, Window, cut, foreground_windows, grid_positions, tile_windows


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 40), st.data())
def test_windows_cover_every_pixel_and_leave_the_section_nowhere(height, width, size, data):
    overlap = data.draw(st.integers(0, size - 1))
    covered = np.zeros((height, width), dtype=int)
    for window in tile_windows(height, width, size, overlap):
        rows, columns = window.slices
        assert 0 <= rows.start < rows.stop <= height
        assert 0 <= columns.start < columns.stop <= width
        assert window.tile_shape == (size, size)
        covered[rows, columns] += 1
    assert covered.all()
    positions = grid_positions(height, size, overlap)
    assert (positions[0], positions[-1]) == (0, max(0, height - size))
    assert all(0 < b - a <= size - overlap for a, b in pairwise(positions)), "a gap, or too little overlap"


def test_a_small_section_is_padded_below_and_to_the_right():
    (window,) = tile_windows(2, 3, size=4)
    assert window == Window(0, 0, 2, 3, pad_bottom=2, pad_right=1)
    image = cut(np.zeros((2, 3, 3), dtype=np.uint8), window, fill=GLASS)
    mask = cut(np.ones((2, 3), dtype=np.uint8), window, fill=IGNORE)
    np.testing.assert_array_equal(mask, [[1, 1, 1, 255], [1, 1, 1, 255], [255] * 4, [255] * 4])
    assert (image[mask == IGNORE] == GLASS).all()
    assert (image[mask == 1] == 0).all()


@pytest.mark.parametrize(("background", "kept"), [(8, ["tissue"]), (None, ["background", "tissue"])])
def test_windows_without_tissue_are_dropped(background, kept):
    mask = np.full((4, 12), 8, dtype=np.uint8)
    mask[:, 4:8] = IGNORE
    mask[3, 11] = 0
    names = dict(zip(tile_windows(4, 12, 4), ["background", "unknown", "tissue"], strict=True))
    assert [names[window] for window in foreground_windows(mask, names, background)] == kept
