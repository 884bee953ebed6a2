import numpy as np
import pytest
from scipy import ndimage

from ntrm.wsi.quality.region_runs import RegionRuns

NEIGHBOURS = {True: np.ones((3, 3)), False: None}


def masks(random):
    """Ragged, smooth, full, empty, and of a single row or column."""
    yield random.random((37, 53)) < 0.5
    yield ndimage.gaussian_filter(random.standard_normal((60, 41)), 2) > 0
    yield np.ones((5, 7), dtype=bool)
    yield np.zeros((4, 3), dtype=bool)
    yield random.random((1, 40)) < 0.6
    yield random.random((40, 1)) < 0.6


@pytest.mark.parametrize("diagonal", [True, False])
def test_regions_are_those_of_scipy(random, diagonal):
    for mask in masks(random):
        found = RegionRuns.of(mask, diagonal=diagonal)
        labels, count = ndimage.label(mask, structure=NEIGHBOURS[diagonal])
        assert found.count == count
        kept = random.random(count) < 0.5
        painted = found.painted(kept)
        # Every region as a whole, and as many pixels as those of that many regions have.
        assert np.array_equal(np.isin(labels, np.unique(labels[painted])), painted)
        assert sorted(found.sizes) == sorted(np.bincount(labels.ravel(), minlength=1)[1:])
        assert painted.sum() == found.sizes[kept].sum()
        assert np.array_equal(found.painted(np.ones(count, dtype=bool)), mask)


@pytest.mark.parametrize("diagonal", [True, False])
def test_regions_at_the_edge_and_those_that_hold_something_are_found(random, diagonal):
    for mask in masks(random):
        found = RegionRuns.of(mask, diagonal=diagonal)
        labels, _ = ndimage.label(mask, structure=NEIGHBOURS[diagonal])
        rim = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
        assert np.array_equal(found.painted(found.at_edge()), np.isin(labels, rim) & mask)
        some = random.random(mask.shape) < 0.02
        assert np.array_equal(found.painted(found.holding(some)), np.isin(labels, labels[some]) & mask)


@pytest.mark.parametrize("band_pixels", [1, 100, 1 << 20])
def test_what_lies_within_keeps_its_region_whatever_the_bands(random, monkeypatch, band_pixels):
    monkeypatch.setattr("ntrm.wsi.quality.region_runs.BAND_PIXELS", band_pixels)
    for mask in masks(random):
        inside = mask & (random.random(mask.shape) < 0.7)
        labels, count = ndimage.label(mask, structure=NEIGHBOURS[True])
        found = RegionRuns.of(mask, diagonal=True).within(inside)
        numbers = found.painted(np.arange(1, count + 1))
        assert np.array_equal(numbers > 0, inside)
        assert np.array_equal(numbers[inside], labels[inside])
        for number, box in enumerate(found.boxes().tolist(), start=1):
            rows, columns = np.nonzero(numbers == number)
            if len(rows):
                assert box == [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]


def test_pixels_of_a_region_come_row_by_row(random):
    for mask in masks(random):
        found = RegionRuns.of(mask, diagonal=True)
        for region in range(found.count):
            painted = found.painted(np.arange(found.count) == region)
            assert np.array_equal(found.pixels(region), np.nonzero(painted))
