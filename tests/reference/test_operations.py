"""The written-out operations against PyTorch's, in float64, on random inputs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.operations import (
    batch_norm,
    convolve,
    layer_norm,
    leaky_relu,
    max_pool,
    pixels,
    sigmoid,
    softmax,
    total,
    window,
)
from torch.nn import functional as F

SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)
SIDES = st.integers(1, 7)
WIDTHS = st.integers(1, 5)
few = settings(max_examples=25, deadline=None)


def assert_same(ours, theirs):
    np.testing.assert_allclose(ours, theirs.squeeze(0).numpy(), rtol=1e-12, atol=1e-12)


def batch_of_one(array):
    return torch.from_numpy(array)[None]


@few
@given(SEEDS, SIDES, SIDES)
def test_max_pool(random, height, width):
    # Negative everywhere: padding by zero instead of nothing would show.
    image = -random.uniform(1, 2, size=(height, width))
    assert_same(max_pool(image), F.max_pool2d(torch.from_numpy(image)[None], kernel_size=3, stride=1, padding=1))


@few
@given(SEEDS, WIDTHS, WIDTHS, SIDES, SIDES)
def test_convolution(random, channels, out, height, width):
    image, weight = random.normal(size=(channels, height, width)), random.normal(size=(out, channels, 3, 3))
    assert_same(convolve(image, weight), F.conv2d(batch_of_one(image), torch.from_numpy(weight), padding=1))


@few
@given(SEEDS, WIDTHS, SIDES, SIDES)
def test_batch_norm(random, channels, height, width):
    image = random.normal(size=(channels, height, width))
    mean, weight, bias = random.normal(size=(3, channels))
    var = random.uniform(1e-6, 2, size=channels)
    ours = batch_norm(image, {"bn_mean": mean, "bn_var": var, "bn_weight": weight, "bn_bias": bias})
    assert_same(ours, F.batch_norm(batch_of_one(image), *map(torch.from_numpy, (mean, var, weight, bias)), eps=1e-5))


@few
@given(SEEDS, st.integers(1, 9))
def test_layer_norm(random, width):
    vector, weight, bias = random.normal(size=(3, width))
    theirs = F.layer_norm(batch_of_one(vector), (width,), torch.from_numpy(weight), torch.from_numpy(bias), eps=1e-5)
    assert_same(layer_norm(vector, weight, bias), theirs)


@few
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=8))
def test_softmax_sums_to_one(scores):
    probabilities = softmax(scores)
    assert sum(probabilities) == pytest.approx(1, abs=1e-12)
    assert_same(probabilities, torch.softmax(torch.tensor([scores], dtype=torch.float64), dim=1))


def test_softmax_of_nothing_is_nothing():
    assert softmax([]) == []


@few
@given(st.floats(-1e4, 1e4))
def test_leaky_relu_and_sigmoid(value):
    tensor = torch.tensor(value, dtype=torch.float64)
    assert leaky_relu(value) == F.leaky_relu(tensor, 0.2).item()
    assert sigmoid(value) == pytest.approx(torch.sigmoid(tensor).item(), rel=1e-12, abs=1e-300)


def test_the_window_is_cut_at_the_border():
    grid = np.zeros((3, 4))
    assert list(window(0, 0, grid)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len(list(window(1, 1, grid))) == 9
    assert len(list(window(2, 1, grid))) == 6


def test_every_pixel_is_walked_once():
    grid = np.arange(6.0).reshape(2, 3)
    assert [grid[pixel] for pixel in pixels(grid)] == [0, 1, 2, 3, 4, 5]
    assert total(grid) == 15
