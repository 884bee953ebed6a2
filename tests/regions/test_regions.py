"""Regions of strips, of pieces and of the whole mask; ``segment/test_region_numbers`` compares them with scipy's."""

import tracemalloc

import numpy as np
import pytest

from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.regions import regions as module
from ntrm.regions.region_table import BACKGROUND, NOTHING
from ntrm.regions.regions import PieceGrid, scan_mask

MPP = Resolution(x=4.0, y=10.0)
BKG, RET, SCC = SKIN.index("BKG"), SKIN.index("RET"), SKIN.index("SCC")
LABELS = [0, RET, BKG, SCC, SKIN.index("BCC"), SKIN.index("IEC"), IGNORE]


@pytest.fixture(params=range(3))
def random(request, seed):
    return np.random.default_rng((seed, request.param))


def draw(random, height=40, width=30):
    """Patches of several sizes, so that regions run through several strips, and specks."""
    mask = np.kron(random.choice(LABELS, (height // 4, width // 3)), np.ones((4, 3))).astype(np.uint8)
    for _ in range(3):
        row, column = random.integers(0, height), random.integers(0, width)
        mask[row : row + 2], mask[:, column] = random.choice(LABELS, 2)
    mask[random.random(mask.shape) < 0.05] = random.choice(LABELS)
    return mask


def scanned(mask, pieces, confidence):
    grid = PieceGrid(pieces, *map(np.arange, mask.shape))
    return scan_mask(mask, SKIN, MPP, confidence=confidence, full=255.0, pieces=grid)


def test_the_height_of_the_strips_does_not_matter(random, monkeypatch):
    mask, confidence = draw(random), random.integers(0, 256, (40, 30)).astype(np.uint8)
    pieces = np.kron([[0, 1], [2, 2]], np.ones((20, 15))).astype(np.uint16)
    at_once = scanned(mask, pieces, confidence)
    for rows in (1, *random.integers(2, 40, 2).tolist()):
        monkeypatch.setattr(module, "STRIP_PIXELS", rows * mask.shape[1])
        found = scanned(mask, pieces, confidence)
        np.testing.assert_array_equal(found.pixels, np.bincount(mask.ravel(), minlength=256))
        np.testing.assert_array_equal(found.region, at_once.region)
        for name in at_once.table.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(found.table, name), getattr(at_once.table, name), name)


def test_pieces_on_a_coarser_grid_are_those_of_the_pixels(random, monkeypatch):
    """Rows and columns of the coarse mask may repeat, and be left out."""
    monkeypatch.setattr(module, "STRIP_PIXELS", 300)
    numbers = random.integers(0, 3, (7, 9)).astype(np.uint16)
    rows, columns = (np.sort(random.integers(0, size, count)) for size, count in ((7, 40), (9, 30)))
    found = scan_mask(np.full((40, 30), RET, np.uint8), SKIN, MPP, pieces=PieceGrid(numbers, rows, columns))
    np.testing.assert_array_equal(found.runs.relabelled(found.piece).dense(), numbers[np.ix_(rows, columns)])


def test_a_piece_is_the_mask_without_all_others(random, monkeypatch):
    mask, confidence = draw(random), random.integers(0, 256, (40, 30)).astype(np.uint8)
    pieces = np.kron(random.permutation(np.arange(12) % 3).reshape(4, 3), np.ones((10, 10))).astype(np.uint16)
    monkeypatch.setattr(module, "STRIP_PIXELS", 17 * mask.shape[1])
    every = scanned(mask, pieces, confidence)
    for piece in range(3):
        rows, columns = (np.flatnonzero((pieces == piece).any(axis=axis)) for axis in (1, 0))
        top, left, height, width = rows[0], columns[0], np.ptp(rows) + 1, np.ptp(columns) + 1
        alone = np.where(pieces == piece, mask, np.uint8(IGNORE))
        shown = alone[top : top + height, left : left + width]
        found, expected = every.of_piece(piece, top, left, height, width), scan_mask(alone, SKIN, MPP)
        np.testing.assert_array_equal(found.runs.dense(), shown)
        assert (found.table.piece == piece).all()
        for name in ("tissue", "pixels", "first", "centroid", "box", "outline", "background", "nothing", "contacts"):
            np.testing.assert_array_equal(getattr(found.table, name), getattr(expected.table, name), name)
        np.testing.assert_array_equal(found.table.contact_sides, expected.table.contact_sides)
        chosen = random.random(len(found.table)) < 0.5
        np.testing.assert_array_equal(found.rim(chosen) + np.array([top, left]), expected.rim(chosen))
        (places, whose), (others, theirs) = found.borders(chosen), expected.borders(chosen)
        np.testing.assert_array_equal(places + np.array([top, left]), others)
        np.testing.assert_array_equal(whose, theirs)
        outside = np.repeat(found.region, found.runs.length).reshape(shown.shape)
        np.testing.assert_array_equal(outside == BACKGROUND, shown == BKG)
        np.testing.assert_array_equal(outside == NOTHING, shown == IGNORE)


def test_memory_does_not_grow_with_the_pixels(monkeypatch):
    """Always the same regions: sixteen times the pixels have four times the outlines."""
    monkeypatch.setattr(module, "STRIP_PIXELS", 1 << 15)

    def peak(enlarge):
        mask = np.full((64, 64), RET, dtype=np.uint8)
        mask[10:20, 10:50], mask[40:44, 5:60] = SCC, 0
        mask = mask.repeat(enlarge, axis=0).repeat(enlarge, axis=1)
        tracemalloc.start()
        try:
            scan_mask(mask, SKIN, MPP, confidence=mask)
            return tracemalloc.get_traced_memory()[1] / 2**20, mask.size / 2**20
        finally:
            tracemalloc.stop()

    (small, _), (large, pixels) = peak(8), peak(32)
    assert pixels == 4
    assert large < small + 1, (small, large)
