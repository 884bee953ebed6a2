import numpy as np
import pytest

from ntrm.core.errors import DataError, UsageError
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window, tile_windows
from ntrm.wsi.tissue_mask import windows_with_tissue


def brute_force(windows, tissue, thumb, model, margin_um):
    """Every pixel of tissue as a rectangle in µm against every window as one."""
    kept = []
    for w in windows:
        top, bottom = w.top * model.y - margin_um, (w.top + w.height) * model.y + margin_um
        left, right = w.left * model.x - margin_um, (w.left + w.width) * model.x + margin_um
        rows, columns = np.nonzero(tissue)
        meets = (rows * thumb.y < bottom) & ((rows + 1) * thumb.y > top)
        meets &= (columns * thumb.x < right) & ((columns + 1) * thumb.x > left)
        if meets.any():
            kept.append(w)
    return tuple(kept)


@pytest.mark.parametrize("margin", [0.0, 45.5])
def test_agrees_with_every_pixel_against_every_window(random, margin):
    thumb, model = Resolution(31.0, 26.3), Resolution(6.7, 7.3)
    shape = (620, 810)
    tissue = random.random((int(shape[0] * model.y / thumb.y) + 1, int(shape[1] * model.x / thumb.x) + 1)) < 0.003
    windows = tile_windows(*shape, size=64, overlap=16)
    kept = windows_with_tissue(windows, tissue, thumb, model, margin_um=margin)
    assert kept == brute_force(windows, tissue, thumb, model, margin)
    assert 0 < len(kept) < len(windows)


def test_no_place_of_tissue_loses_a_window(random):
    tissue = random.random((100, 100)) < 0.001
    windows = tile_windows(400, 400, size=64, overlap=16)
    kept = set(windows_with_tissue(windows, tissue, 13.4, 3.35))
    fine = tissue.repeat(4, axis=0).repeat(4, axis=1)
    assert all(window in kept for window in windows if fine[window.slices].any())


def test_glass_alone_needs_no_window_and_tissue_alone_needs_all():
    windows = tile_windows(300, 300, size=64, overlap=16)
    assert windows_with_tissue(windows, np.zeros((150, 150), dtype=bool), 13.4, 6.7) == ()
    assert windows_with_tissue(windows, np.ones((150, 150), dtype=bool), 13.4, 6.7) == windows
    assert windows_with_tissue((), np.ones((150, 150), dtype=bool), 13.4, 6.7) == ()


def test_a_section_smaller_than_the_window_is_one_window():
    windows = tile_windows(20, 30, size=64)
    tissue = np.zeros((10, 15), dtype=bool)
    tissue[9, 14] = True
    assert windows_with_tissue(windows, tissue, 13.4, 6.7) == windows


def test_a_window_beyond_a_thumbnail_that_ends_early_looks_at_its_last_pixel():
    tissue = np.zeros((10, 10), dtype=bool)
    tissue[9, 9] = True
    beyond = Window(205, 205, 10, 10)
    assert windows_with_tissue((beyond,), tissue, 20.0, 1.0, margin_um=0) == (beyond,)


def test_refuses_what_is_no_mask():
    windows = tile_windows(20, 30, size=64)
    with pytest.raises(DataError, match="no tissue mask"):
        windows_with_tissue(windows, np.zeros((4, 4), dtype=np.uint8), 13.4, 6.7)
    with pytest.raises(UsageError, match="margin"):
        windows_with_tissue(windows, np.zeros((4, 4), dtype=bool), 13.4, 6.7, margin_um=-1)
