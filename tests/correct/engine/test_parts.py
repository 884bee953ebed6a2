"""Parts of regions against a flood fill over pixels."""

import itertools

import numpy as np
import pytest

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.correct.engine.parts import MIXED, SLIVER, WHOLE, darker, parts_of

MPP = Resolution(x=4.0, y=10.0)


def flooded(keys):
    """Flood fill over the 4 neighbours: number of the component at each pixel, from 0 in reading order."""
    found, count = np.full(keys.shape, -1), 0
    for start in itertools.product(*map(range, keys.shape)):
        if found[start] >= 0 or keys[start] < 0:
            continue
        todo = [start]
        while todo:
            row, column = todo.pop()
            inside = 0 <= row < keys.shape[0] and 0 <= column < keys.shape[1]
            if inside and found[row, column] < 0 and keys[row, column] == keys[start]:
                found[row, column] = count
                todo += [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        count += 1
    return found


def cells_of_large_regions(mask, side):
    """A key for each pixel: its region, and its cell where the region is large."""
    regions = flooded(np.where(mask == IGNORE, -1, mask.astype(int)))
    keys = np.full(mask.shape, -1)
    for region in range(regions.max() + 1):
        rows, columns = np.nonzero(regions == region)
        large = max(np.ptp(rows), np.ptp(columns)) + 1 > WHOLE * side
        keys[rows, columns] = region * 10_000 + large * (rows // side * 100 + columns // side + 1)
    return keys


def blocks(random, shape=(5, 4), size=12):
    small = random.choice([0, 3, 8, IGNORE], size=shape)
    return np.kron(small, np.ones((size, size))).astype(np.uint8)


def test_parts_are_what_the_grid_leaves_of_regions(random):
    mask = blocks(random)
    parts = parts_of(mask, SKIN, MPP, side=8)
    literal = flooded(cells_of_large_regions(mask, 8))
    small = np.bincount(literal[literal >= 0]) < SLIVER * 64
    assert not small.any()  # blocks of 12 pixels leave at least 4 × 4: parts are exactly the cells
    assert (parts.runs.dense() == literal).all()
    assert parts.table.pixels.tolist() == np.bincount(literal[literal >= 0]).tolist()
    assert (mask.ravel()[parts.table.first] == parts.table.tissue).all()


def test_slivers_go_to_the_neighbour_in_their_region_with_the_longest_border():
    mask = np.zeros((16, 34), dtype=np.uint8)  # the third column of cells is 2 pixels wide
    parts = parts_of(mask, SKIN, MPP, side=16)
    assert parts.table.pixels.tolist() == [256, 256, 32]  # an eighth of a cell is no sliver
    parts = parts_of(mask[:, :32], SKIN, MPP, side=16)
    assert parts.table.pixels.tolist() == [256, 256]
    one_more = np.zeros((16, 33), dtype=np.uint8)
    one_more[1:, 32] = 3  # leaves one pixel of the first tissue in the last column
    parts = parts_of(one_more, SKIN, MPP, side=16)
    assert parts.table.pixels.tolist() == [256, 257, 15]


def test_a_mixed_cell_is_divided_into_its_darker_and_lighter_pixels():
    mask, density = np.zeros((16, 16), dtype=np.uint8), np.zeros((16, 16, 3), dtype=np.float32)
    density[:, 10:, 1] = 3 * MIXED
    parts = parts_of(mask, SKIN, MPP, lambda top, height: density[top : top + height], side=16)
    assert (parts.runs.dense() == (np.arange(16) >= 10)).all()
    assert len(parts.regions) == 1
    even = parts_of(mask, SKIN, MPP, lambda top, height: density[top : top + height] / 10, side=16)
    assert len(even.table) == 1


def test_darker_is_told_by_tissue_and_cell_in_the_colour_that_varies_most(random):
    labels, density = random.integers(0, 3, (8, 16)).astype(np.uint8), random.random((8, 16, 3)) * 0.12
    cells = np.broadcast_to(np.arange(16) // 8, (8, 16))
    found = darker(labels, cells, density)
    for cell, label in itertools.product((0, 1), (0, 1, 2)):
        own = (cells == cell) & (labels == label)
        values = density[own]
        colour = values.var(axis=0).argmax()
        mixed = values.std(axis=0).max() > MIXED
        assert (found[own] == (mixed & (values[:, colour] > values[:, colour].mean()))).all()


def test_cells_grow_until_there_are_few_enough_parts():
    mask = np.zeros((64, 64), dtype=np.uint8)
    assert len(parts_of(mask, SKIN, MPP, side=8).table) == 64
    few = parts_of(mask, SKIN, MPP, side=8, most=5)
    assert len(few.table) == 4


def test_a_mask_with_too_many_regions_is_refused():
    mask = (np.indices((8, 8)).sum(axis=0) % 2 * 3).astype(np.uint8)
    with pytest.raises(DataError, match="more regions than can be corrected"):
        parts_of(mask, SKIN, MPP, most=10)


@pytest.mark.parametrize("mask", [np.zeros((0, 0)), np.zeros((5, 0)), np.full((4, 4), IGNORE)])
def test_nothing_has_no_parts(mask):
    parts = parts_of(mask.astype(np.uint8), SKIN, MPP)
    assert len(parts.table) == len(parts.region) == 0


def test_a_part_knows_its_undivided_region(random):
    mask = blocks(random)
    parts, regions = parts_of(mask, SKIN, MPP, side=8), flooded(np.where(mask == IGNORE, -1, mask.astype(int)))
    assert (parts.region == regions.ravel()[parts.table.first]).all()
    assert (np.bincount(parts.region, parts.table.pixels) == parts.regions.pixels).all()
