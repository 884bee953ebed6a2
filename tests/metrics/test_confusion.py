"""Confusion counts against a literal loop and against torchmetrics."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.errors import DataError
from ntrm.metrics.confusion import confusion, confusion_tensor, scatter_pairs


def draw(random, classes, size=(2, 9, 7), dtype=np.uint8):
    truth = random.integers(classes, size=size).astype(dtype)
    truth[random.random(size) < 0.2] = 255
    return truth, random.integers(classes, size=size).astype(dtype)


def literal(truth, prediction, classes):
    table = np.zeros((classes, classes), dtype=np.int64)
    for true, predicted in zip(truth.ravel().tolist(), prediction.ravel().tolist(), strict=True):
        if true != 255:
            table[true, predicted] += 1
    return table


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.sampled_from([np.uint8, np.int16, np.int64]))
def test_counts_as_a_loop_does(seed, classes, dtype):
    truth, prediction = draw(np.random.default_rng(seed), classes, dtype=dtype)
    expected = literal(truth, prediction, classes)
    counted = confusion(truth, prediction, classes)
    assert counted.dtype == np.int64
    assert np.array_equal(counted, expected)
    tensor = confusion_tensor(torch.from_numpy(truth), torch.from_numpy(prediction), classes)
    assert tensor.dtype == torch.int64
    assert np.array_equal(tensor.numpy(), expected)
    # What an accelerator computes, on whatever device this is.
    vectors = (torch.from_numpy(each).flatten().long() for each in (truth, prediction))
    assert np.array_equal(scatter_pairs(*vectors, classes).numpy(), expected)


@pytest.mark.parametrize(("truth", "prediction"), [([3], [0]), ([-1], [0]), ([0], [3]), ([0], [-1]), ([0], [255])])
def test_values_that_are_no_class_are_refused(truth, prediction):
    with pytest.raises(DataError, match="no class"):
        confusion(np.array(truth), np.array(prediction), 3)
    with pytest.raises(DataError, match="no class"):
        confusion_tensor(torch.tensor(truth), torch.tensor(prediction), 3)
    with pytest.raises(RuntimeError, match="out of bounds"):
        scatter_pairs(torch.tensor(truth), torch.tensor(prediction), 3)


def test_no_value_is_read_back_from_the_device():
    # Tensors of the meta device have no values: reading one raises.
    mask = torch.zeros(8, 8, dtype=torch.uint8, device="meta")
    counts = confusion_tensor(mask, mask, 3)
    assert (counts.shape, counts.dtype, counts.device.type) == ((3, 3), torch.int64, "meta")
