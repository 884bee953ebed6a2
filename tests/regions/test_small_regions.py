"""Small regions are relabelled as from the whole mask in memory, however it is read."""

import numpy as np
from scipy import ndimage
from skimage.measure import label
from tests.evaluation.small import NAMES
from tests.segment.small import BKG

from ntrm.core.labels import IGNORE
from ntrm.regions.small_regions import reach_of, remove_small_regions


def in_small(mask, smallest):
    """Pixels of regions that are too small, by an independent labelling; and the regions."""
    regions = label(mask.astype(int), background=IGNORE, connectivity=1)
    return (np.bincount(regions.ravel()) < smallest)[regions] & (regions > 0), regions


def literally(mask, smallest):
    """Every pixel of a small region compared with every other pixel; also how many regions and pixels changed."""
    small, regions = in_small(mask, smallest)
    rows, columns = np.nonzero(~small & (mask != IGNORE))
    cleaned, changed = mask.copy(), np.zeros(mask.shape, dtype=bool)
    for row, column in zip(*np.nonzero(small), strict=True):
        squared = (rows - row) ** 2 + (columns - column) ** 2
        if len(squared) and squared.min() <= reach_of(smallest) ** 2:
            # The first of equally near ones in reading order.
            at = int(squared.argmin())
            cleaned[row, column], changed[row, column] = mask[rows[at], columns[at]], True
    return cleaned, (len(np.unique(regions[changed])), int(changed.sum()))


def random_mask(random):
    """Anything from noise to large patches, with ignored rectangles."""
    height, width = (int(n) for n in random.integers(1, 60, 2))
    scale = random.uniform(0, 3)
    fields = [ndimage.gaussian_filter(random.normal(size=(height, width)), scale) for _ in range(4)]
    mask = np.argmax(fields, axis=0).astype(np.uint8)
    noise = random.random((height, width)) < random.choice([0, 0.02, 0.2])
    mask[noise] = random.integers(0, 4, noise.sum())
    for _ in range(int(random.integers(0, 3))):
        top, left = random.integers(0, height), random.integers(0, width)
        mask[top : top + random.integers(1, 25), left : left + random.integers(1, 25)] = IGNORE
    return mask


def cleaned(mask, smallest):
    found = mask.copy()
    return found, remove_small_regions(found, smallest)


def test_in_bands_of_any_height_it_is_the_mask_in_memory(random, monkeypatch):
    changed = 0
    for _ in range(12):
        mask, smallest = random_mask(random), float(random.choice([1.5, 2, 5, 9, 16, 40.5]))
        expected, numbers = literally(mask, smallest)
        for _ in range(2):
            monkeypatch.setattr("ntrm.regions.regions.STRIP_PIXELS", int(random.integers(1, 3000)))
            found, removed = cleaned(mask, smallest)
            np.testing.assert_array_equal(found, expected)
            assert removed == numbers
        changed += removed[1]
    assert changed


def test_nothing_small_is_left_where_small_regions_lie_apart():
    mask = np.full((40, 50), BKG, dtype=np.uint8)
    mask[10:30, 10:40] = NAMES.index("RET")
    mask[15:18, 15:20] = NAMES.index("SCC")  # 15 pixels
    mask[20:24, 20:24] = NAMES.index("SCC")  # 16
    mask[26, 30:33] = BKG  # a hole
    mask[2, 2] = NAMES.index("EPI")  # on glass
    mask[[35, 36, 37], [5, 6, 7]] = NAMES.index("EPI")  # three regions: corners do not join
    expected = mask.copy()
    expected[15:18, 15:20] = expected[26, 30:33] = NAMES.index("RET")
    expected[expected == NAMES.index("EPI")] = BKG
    found, removed = cleaned(mask, 16)
    np.testing.assert_array_equal(found, expected)
    assert removed == (6, 15 + 3 + 1 + 3)


def test_what_was_not_looked_at_neither_gives_nor_takes():
    mask = np.full((30, 60), IGNORE, dtype=np.uint8)
    mask[5:25, 5:25] = 1
    mask[10, 40] = 2  # alone, and too far from all tissue
    mask[10, 27] = 3  # alone, but near
    mask[12:14, 25] = 2  # at the edge of the tissue
    expected = mask.copy()
    expected[10, 27] = expected[12:14, 25] = 1
    found, removed = cleaned(mask, 9)
    np.testing.assert_array_equal(found, expected)
    assert removed == (2, 3)
