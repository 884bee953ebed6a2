import json
from collections import Counter

import numpy as np
import pytest
from bench.phantom_realism import REAL_BOUNDARY, REAL_SHARE, REAL_SHARE_LARGE
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.helpers import real_data

from ntrm.core.labels import IGNORE, SKIN, boundary_counts, pixel_counts
from ntrm.data.image_files import write_indexed_mask
from ntrm.data.layouts import open_dataset
from ntrm.data.stats import dataset_stats, tissues_per_tile

K = 4
MASKS = hnp.arrays(
    np.uint8, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.sampled_from([0, 1, 2, 3, IGNORE])
)


def slow_boundaries(mask):
    counts = [[0] * K for _ in range(K)]
    height, width = mask.shape
    for y in range(height):
        for x in range(width):
            for dy, dx in ((0, 1), (0, -1), (1, 0), (-1, 0)):
                if 0 <= y + dy < height and 0 <= x + dx < width:
                    here, there = int(mask[y, x]), int(mask[y + dy, x + dx])
                    if here != there and IGNORE not in (here, there):
                        counts[here][there] += 1
    return counts


@given(MASKS)
def test_counts_equal_a_walk_over_all_pixels_and_neighbours(mask):
    counts, count = boundary_counts(mask, K), Counter(mask.ravel().tolist())
    assert counts.tolist() == slow_boundaries(mask)
    assert counts.dtype == np.int64
    assert np.array_equal(boundary_counts(mask, K, 2, 2), 2 * counts)
    assert pixel_counts(mask, K).tolist() == [*(count[index] for index in range(K)), count[IGNORE]]


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_tissues_per_tile_equal_sets_over_blocks(rows, columns, size, seed):
    mask = np.random.default_rng(seed).choice(np.array([0, 1, 2, 3, IGNORE], np.uint8), (rows * size, columns * size))
    blocks = mask.reshape(rows, size, columns, size).swapaxes(1, 2).reshape(-1, size * size)
    expected = Counter(len(set(block.tolist()) - {IGNORE}) for block in blocks)
    assert tissues_per_tile(mask, K, size).tolist() == [expected[number] for number in range(K + 1)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_dataset_stats_add_up_what_the_masks_hold(tmp_path, random, jobs):
    values = np.array([*range(len(SKIN)), IGNORE], dtype=np.uint8)
    masks = [random.choice(values, (40 + 3 * index, 40)) for index in range(5)]
    SKIN.write_csv(tmp_path / "classes.csv")
    for index, mask in enumerate(masks):
        write_indexed_mask(tmp_path / f"BCC_{index // 2 + 1}_{index:04}.png", mask, SKIN)
    stats = dataset_stats(open_dataset(tmp_path), tile=16, jobs=jobs)
    known = np.concatenate([mask[mask != IGNORE] for mask in masks])
    assert stats.pixel_share == pytest.approx([np.mean(known == index) for index in range(len(SKIN))])
    assert np.array_equal(stats.counts.pairs, sum(boundary_counts(mask, len(SKIN)) for mask in masks))
    document = json.loads(json.dumps(stats.as_dict(), allow_nan=False))
    assert (document["sections"], document["masks"], document["cancers"]) == (3, 5, {"BCC": 3})
    assert document["ignored_pixels"] == sum(mask.size for mask in masks) - known.size
    assert document["sizes"]["height"] == {"min": 40, "median": 46, "max": 52}
    assert document["tissues_per_tile"]["tiles"] == sum(document["tissues_per_tile"]["histogram"].values())


def test_real_masks_give_the_published_measurements():
    stats = dataset_stats(open_dataset(real_data("skin-masks")))
    np.testing.assert_allclose(stats.pixel_share, list(REAL_SHARE.values()), atol=2e-4)
    np.testing.assert_allclose(stats.pixel_share, list(REAL_SHARE_LARGE.values()), atol=0.02)
    np.testing.assert_allclose(stats.boundary_share, REAL_BOUNDARY, atol=1e-4)
    assert stats.tissues_per_tile["mean"] == pytest.approx(4.4, abs=0.15)
    assert stats.tissues_per_tile["max"] == 11
