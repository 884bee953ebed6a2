"""What the random inputs promise to the tests that use them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.draws import coarse_prediction
from tests.reference.trm_literal import adjacent, region

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=10, deadline=None)
@given(SEEDS, st.integers(2, 12))
def test_random_predictions_are_float32_probabilities(seed, tissues):
    seen = coarse_prediction(np.random.default_rng(seed), tissues, 6, 4)
    assert seen.shape == (tissues, 6, 4)
    assert np.array_equal(seen, seen.astype(np.float32))
    assert seen.sum(axis=0) == pytest.approx(np.ones((6, 4)), abs=1e-6)


@settings(max_examples=2, deadline=None)
@given(SEEDS)
def test_random_predictions_show_every_kind_of_graph(seed):
    """Over fifty draws: absent tissues, touching pairs, pairs that stand apart, overlaps and uncovered pixels."""
    random = np.random.default_rng(seed)
    absent = touching = apart = overlapping = uncovered = 0
    for _ in range(50):
        masks = np.array([region(p_c, 0.5, grow=True) for p_c in coarse_prediction(random, 6, 16, 6)])
        present = masks.any(axis=(1, 2))
        edges = np.count_nonzero(adjacent(masks))
        absent += np.count_nonzero(~present)
        touching += edges
        apart += present.sum() * (present.sum() - 1) - edges
        overlapping += np.count_nonzero(masks.sum(axis=0) > 1)
        uncovered += np.count_nonzero(masks.sum(axis=0) == 0)
    assert min(absent, touching, apart, overlapping, uncovered) > 0
