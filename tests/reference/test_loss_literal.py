"""The literal losses by hand, and cross-entropy against PyTorch's weighted mean times K_present / K."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.reference.loss_literal import soft_dice, weighted_cross_entropy
from torch.nn import functional as F


def test_by_hand():
    # Pixels of class 0, 0, 1 and one ignored; P = 3, K = 2: w_0 = 3 / (2·2), w_1 = 3 / (2·1).
    target = np.array([[[0, 0], [1, 255]]])
    logits = np.zeros((1, 2, 2, 2))
    logits[0, 0, 0, 0] = math.log(3)  # p(0) = 3/4 there, 1/2 elsewhere
    expected = (0.75 * math.log(4 / 3) + 0.75 * math.log(2) + 1.5 * math.log(2)) / 3
    assert weighted_cross_entropy(logits, target) == pytest.approx(expected, rel=1e-14)


def test_an_absent_class_has_no_weight_but_still_counts_in_k():
    target = np.zeros((1, 1, 2), dtype=int)
    # P = 2, K = 4: w_0 = 2 / (4·2) for both pixels, each with −log(1/4).
    assert weighted_cross_entropy(np.zeros((1, 4, 1, 2)), target) == pytest.approx(math.log(4) / 4, rel=1e-14)


def test_weights_are_counted_over_the_batch():
    # One pixel of class 0 in the first image, one of class 1 in the second: both weights are 2 / (2·1).
    target = np.array([[[0]], [[1]]])
    logits = np.array([[[[0.0]], [[0.0]]], [[[0.0]], [[math.log(3)]]]])
    expected = (math.log(2) + math.log(4 / 3)) / 2
    assert weighted_cross_entropy(logits, target) == pytest.approx(expected, rel=1e-14)


def test_soft_dice_by_hand():
    # Pixels of class 0, 0, 1 and one ignored: I_0 = 3/4 + 1/3, S_0 = 3/4 + 2/3 + 2; I_1 = 1/3, S_1 = 1/8 + 2/3 + 1;
    # class 2 has no pixel.
    target = np.array([[[0, 0], [1, 255]]])
    logits = np.zeros((1, 3, 2, 2))
    logits[0, 0, 0, 0] = math.log(6)  # 3/4, 1/8, 1/8 there, thirds elsewhere
    expected = 1 - ((13 / 12) / (41 / 12) + (1 / 3) / (43 / 24))
    assert soft_dice(logits, target) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("loss", [weighted_cross_entropy, soft_dice])
def test_nothing_known_is_no_loss(loss):
    assert loss(np.ones((2, 3, 2, 2)), np.full((2, 2, 2), 255)) == 0.0


def test_far_logits_stay_finite():
    logits = np.array([2000.0, 0.0]).reshape(1, 2, 1, 1)
    # P = 1, K = 2: w_1 = 1/2.
    assert weighted_cross_entropy(logits, np.array([[[1]]])) == pytest.approx(1000.0)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(2, 7), st.integers(1, 6), st.integers(1, 6))
def test_is_torchs_weighted_mean_times_the_fraction_of_present_classes(seed, batch, classes, height, width):
    random = np.random.default_rng(seed)
    logits = random.normal(scale=3, size=(batch, classes, height, width))
    target = random.integers(classes, size=(batch, height, width))
    target[random.random(target.shape) < 0.3] = 7
    known = target[target != 7]
    assume(known.size)
    counts = np.bincount(known, minlength=classes)
    weight = np.where(counts > 0, known.size / (classes * np.maximum(counts, 1)), 0.0)
    mean = F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(target), torch.from_numpy(weight), ignore_index=7)
    expected = mean.item() * np.count_nonzero(counts) / classes
    assert weighted_cross_entropy(logits, target, ignore=7) == pytest.approx(expected, rel=1e-12)
