"""Runs and regions against scipy's labels and against loops over pixels."""

import tracemalloc

import numpy as np
import pytest
from scipy import ndimage

from ntrm.analysis import regions as module
from ntrm.analysis.regions import (
    BACKGROUND,
    CONNECTIVITY,
    NOTHING,
    RegionScanner,
    components,
    runs_of,
    scan_mask,
    sides_of,
)
from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution

MPP = Resolution(x=4.0, y=10.0)
BKG, RET, SCC = SKIN.index("BKG"), SKIN.index("RET"), SKIN.index("SCC")
LABELS = [0, RET, BKG, SCC, SKIN.index("BCC"), SKIN.index("IEC"), IGNORE]
FOUR = ndimage.generate_binary_structure(2, 1)


@pytest.fixture(params=range(5))
def random(request, seed):
    return np.random.default_rng((seed, request.param))


@pytest.fixture
def mask(random):
    """Patches of 4 values; now and then a single row or column, or one value only."""
    shape = tuple(int(n) for n in random.integers(1, 24, 2))
    coarse = random.integers(0, 4, shape)
    return np.kron(coarse, np.ones((2, 1))).astype(np.uint8)[: shape[0] + 1]


def test_runs_are_the_mask(mask):
    runs = runs_of(mask)
    np.testing.assert_array_equal(runs.dense(), mask)
    np.testing.assert_array_equal(mask[runs.row, runs.left], runs.value)
    assert runs.length.sum() == mask.size
    same_row = runs.row[1:] == runs.row[:-1]
    assert (runs.value[1:][same_row] != runs.value[:-1][same_row]).all()
    odd = runs.relabelled(runs.value % 2)
    np.testing.assert_array_equal(odd.dense(), mask % 2)
    np.testing.assert_array_equal(odd.start, runs_of(mask % 2).start)
    places = np.arange(mask.size)
    np.testing.assert_array_equal(runs.value[runs.at(places)], mask.ravel())


def test_a_window_of_the_runs_is_one_of_the_mask(mask, random):
    top, left = (int(random.integers(0, size)) for size in mask.shape)
    height, width = (int(random.integers(1, size - at + 1)) for size, at in zip(mask.shape, (top, left), strict=True))
    stride = int(random.integers(1, 5))
    expected = mask[top : top + height, left : left + width][::stride, ::stride]
    found = runs_of(mask).window(top, left, height, width, stride)
    np.testing.assert_array_equal(found.dense(), expected)
    np.testing.assert_array_equal(found.start, runs_of(expected).start)


def test_overlaps_are_those_of_the_pixels(mask, random):
    runs = runs_of(mask)
    number = np.repeat(np.arange(len(runs)), runs.length).reshape(mask.shape)
    top = int(random.integers(1, len(mask) + 1))
    for first, last in ((1, len(mask)), (top, len(mask)), (1, top)):
        found = module.overlaps(runs, first, last)
        pixels = module.stretched(found.start, found.length)
        np.testing.assert_array_equal(pixels, np.arange(first * mask.shape[1], last * mask.shape[1]))
        np.testing.assert_array_equal(np.repeat(found.above, found.length), number[first - 1 : last - 1].ravel())
        np.testing.assert_array_equal(np.repeat(found.below, found.length), number[first:last].ravel())


def test_components_are_those_of_scipy_in_reading_order(mask, monkeypatch):
    monkeypatch.setattr(module, "STRIP_RUNS", 20)
    assert FOUR.sum() == CONNECTIVITY + 1
    runs = runs_of(mask)
    part, count = components(runs, runs.value != 0)
    found = np.repeat(part, runs.length).reshape(mask.shape)
    assert (found[mask == 0] == -1).all()
    total = 0
    for value in (1, 2, 3):
        expected, number = ndimage.label(mask == value, FOUR)
        total += number
        pairs = {*zip(found[mask == value].tolist(), expected[mask == value].tolist(), strict=True)}
        assert len(pairs) == number == len({one for one, _ in pairs})
    assert count == total
    first = [int(np.flatnonzero(found.ravel() == part)[0]) for part in range(count)]
    assert first == sorted(first)


def test_sides_are_those_of_every_pixel(mask):
    runs = runs_of(mask)
    framed, expected = np.pad(mask, 1), []
    for row, column in np.argwhere(mask):
        for down, right in ((0, -1), (0, 1), (-1, 0), (1, 0)):
            if framed[row + 1 + down, column + 1 + right] != mask[row, column]:
                expected.append((int(row * mask.shape[1] + column), down, right))
    pixels, ways = sides_of(runs, runs.value)
    assert sorted(zip(pixels.tolist(), *ways.T.tolist(), strict=True)) == sorted(expected)


def draw(random, height=40, width=30):
    """Patches of several sizes, so that regions run through several strips, and specks."""
    mask = np.kron(random.choice(LABELS, (height // 4, width // 3)), np.ones((4, 3))).astype(np.uint8)
    for _ in range(3):
        row, column = random.integers(0, height), random.integers(0, width)
        mask[row : row + 2], mask[:, column] = random.choice(LABELS, 2)
    mask[random.random(mask.shape) < 0.05] = random.choice(LABELS)
    return mask


def scanned(mask, pieces, confidence, heights):
    scanner, top = RegionScanner(mask.shape[1], [BKG]), 0
    for height in heights:
        strip = np.s_[top : top + height]
        scanner.add(mask[strip], pieces[strip], confidence[strip])
        top += height
    return scanner.regions(MPP, 255.0)


def test_the_strips_have_no_say(random):
    mask, confidence = draw(random), random.integers(0, 256, (40, 30)).astype(np.uint8)
    pieces = np.kron([[0, 1], [2, 2]], np.ones((20, 15))).astype(np.uint16)
    whole = scanned(mask, pieces, confidence, [len(mask)])
    cuts = np.sort(random.choice(np.arange(1, len(mask)), 6, replace=False))
    for heights in ([1] * len(mask), np.diff([0, *cuts, len(mask)]).tolist()):
        found = scanned(mask, pieces, confidence, heights)
        np.testing.assert_array_equal(found.pixels, np.bincount(mask.ravel(), minlength=256))
        np.testing.assert_array_equal(found.region, whole.region)
        for name in whole.table.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(found.table, name), getattr(whole.table, name), name)


def test_a_piece_is_the_mask_without_all_others(random):
    mask, confidence = draw(random), random.integers(0, 256, (40, 30)).astype(np.uint8)
    pieces = np.kron(random.permutation(np.arange(12) % 3).reshape(4, 3), np.ones((10, 10))).astype(np.uint16)
    every = scanned(mask, pieces, confidence, [17, 23])
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


def test_the_rim_is_what_an_erosion_takes_away(random):
    mask = draw(random)
    regions = scan_mask(mask, SKIN, MPP)
    chosen = random.random(len(regions.table)) < 0.5
    within = np.repeat(np.append(chosen, [False, False])[regions.region], regions.runs.length).reshape(mask.shape)
    np.testing.assert_array_equal(regions.rim(chosen), np.argwhere(within & ~ndimage.binary_erosion(within, FOUR)))


def test_unknown_labels_are_refused():
    with pytest.raises(DataError, match="does not know"):
        scan_mask(np.full((3, 4), len(SKIN), dtype=np.uint8), SKIN, MPP)


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
