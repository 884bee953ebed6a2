from collections import Counter

import numpy as np
import pytest

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.export import pyramid
from ntrm.export.pyramid import check_mask, halve


def most_frequent(labels):
    """Pixel by pixel: the commonest of the four, the first of them in reading order if several are."""
    height, width = labels.shape
    out = np.empty((-(-height // 2), -(-width // 2)), np.uint8)
    for row, column in np.ndindex(out.shape):
        rows, columns = [2 * row, min(2 * row + 1, height - 1)], [2 * column, min(2 * column + 1, width - 1)]
        four = [int(labels[r, c]) for r in rows for c in columns]
        out[row, column] = max(Counter(four).items(), key=lambda item: (item[1], -four.index(item[0])))[0]
    return out


def test_a_coarser_pixel_is_the_most_frequent_of_its_four(random):
    for _ in range(20):
        labels = random.integers(0, 4, random.integers(1, 20, 2)).astype(np.uint8)
        assert np.array_equal(halve(labels), most_frequent(labels))


@pytest.mark.parametrize("pixels", [2, 200, 1 << 20])
@pytest.mark.parametrize("in_memory", [0, 1 << 20])
def test_levels_are_the_same_in_memory_and_on_disk(random, tmp_path, monkeypatch, pixels, in_memory):
    monkeypatch.setattr(pyramid, "BAND_PIXELS", pixels)
    monkeypatch.setattr(pyramid, "IN_MEMORY", in_memory)
    monkeypatch.setattr(pyramid, "SMALLEST", 8)
    mask = random.integers(0, 13, (53, 38)).astype(np.uint8)
    expected = [mask]
    while max(expected[-1].shape) > 8:
        expected.append(most_frequent(expected[-1]))
    levels = pyramid.pyramid(mask, halve, tmp_path)
    assert [level.tolist() for level in levels] == [level.tolist() for level in expected]
    assert list(tmp_path.iterdir()) == []


def test_classes_that_the_schema_lacks_are_refused():
    check_mask(np.array([[0, 11, IGNORE]], np.uint8), SKIN)
    with pytest.raises(DataError, match="schema does not know"):
        check_mask(np.full((600, 3), 12, np.uint8), SKIN)
