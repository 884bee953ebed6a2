from collections import Counter

import numpy as np
import pytest

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.export import pyramid
from ntrm.export.pyramid import halve, label_pyramid


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


@pytest.mark.parametrize("band", [2, 6, 512])
def test_levels_are_the_same_however_rows_come_and_bands_are_cut(random, tmp_path, monkeypatch, band):
    monkeypatch.setattr(pyramid, "BAND", band)
    monkeypatch.setattr(pyramid, "SMALLEST", 8)
    mask = random.integers(0, 13, (53, 38)).astype(np.uint8)
    mask[mask == 12] = IGNORE
    expected = [np.where(mask == IGNORE, 0, mask + 1.0).astype(np.uint8)]
    while max(expected[-1].shape) > 8:
        expected.append(most_frequent(expected[-1]))
    cuts = np.split(mask, sorted(random.choice(np.arange(1, 53), 4, replace=False)))
    for rows in (mask, iter(cuts)):
        with label_pyramid(rows, SKIN, tmp_path) as levels:
            assert len(levels) == len(expected)
            for level, wanted in zip(levels, expected, strict=True):
                assert np.array_equal(np.concatenate([part for _, part in level.bands(7)]), wanted)
    assert list(tmp_path.iterdir()) == []


def test_unusable_rows_are_refused_and_leave_nothing(tmp_path):
    wrong = {
        "unusable rows": [np.zeros((2, 3), np.uint8), np.zeros((2, 4), np.uint8)],
        "schema does not know": [np.full((2, 3), 12, np.uint8)],
        "empty mask": [],
    }
    for message, rows in wrong.items():
        with pytest.raises(DataError, match=message), label_pyramid(rows, SKIN, tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []
