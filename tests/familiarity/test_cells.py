import numpy as np
import pytest
import torch
from tests.reference.familiarity_cells import cells_of, sums_of

from ntrm.familiarity.cells import CELL, SUMS, ClassStatistics, block_sums, cell_statistics


def windows_of(random, count, side, classes=4):
    """Windows of tissue with glass and a flat stretch in them, and probabilities of blobs."""
    pixels = np.clip(random.normal(150, 45, (count, side, side, 3)), 0, 255).astype(np.uint8)
    pixels[:, : side // 4] = 250
    pixels[:, :, -CELL:] = (90, 40, 120)
    logits = np.repeat(np.repeat(random.normal(size=(count, classes, side // 8, side // 8)), 8, axis=2), 8, axis=3)
    logits = logits + random.normal(0, 0.3, (count, classes, side, side))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return pixels, shares.astype(np.float32)


@pytest.mark.parametrize(("side", "background"), [(64, 2), (32, None)])
def test_statistics_of_cells_are_those_of_loops_over_their_pixels(random, side, background):
    pixels, shares = windows_of(random, 2, side)
    found = cell_statistics(torch.from_numpy(pixels), torch.from_numpy(shares), background)
    for number in range(2):
        values, classes, counts = cells_of(pixels[number], shares[number], background)
        # Where all pixels are equal, single precision leaves a deviation of some 1e-4 in place of 0.
        np.testing.assert_allclose(
            found.values[number, ..., 3:].exp().numpy(), np.exp(values[..., 3:]), atol=6e-4, rtol=1e-3
        )
        np.testing.assert_allclose(found.values[number, ..., :3], values[..., :3], atol=1e-5)
        np.testing.assert_array_equal(found.classes[number], classes)
        np.testing.assert_array_equal(found.counts[number], counts)
        assert 0 < counts.mean() < 1


def test_glass_and_background_do_not_count_and_black_does():
    pixels = torch.full((1, 32, 32, 3), 255, dtype=torch.uint8)
    pixels[:, :, 8:] = 0
    shares = torch.zeros(1, 2, 32, 32)
    shares[:, 0] = 1
    shares[:, :, :, 24:] = shares[:, :, :, 24:].flip(1)  # the last column of cells is of class 1
    assert cell_statistics(pixels, shares, 1).counts[0].tolist() == [[False, True, True, False]] * 4
    assert cell_statistics(pixels, shares, None).counts[0].tolist() == [[False, True, True, True]] * 4


@pytest.mark.parametrize("side", [32, 64, 96, 128])
def test_sums_of_blocks_are_those_of_loops_over_cells(random, side):
    pixels, shares = windows_of(random, 2, side)
    means, whitening = random.normal(size=(4, 9)), random.normal(size=(4, 9, 9))
    known = ClassStatistics(torch.from_numpy(means).float(), torch.from_numpy(whitening).float())
    cells = cell_statistics(torch.from_numpy(pixels), torch.from_numpy(shares), 2)
    found = block_sums(cells, known)
    blocks = side // 64 if side % 64 == 0 else 1
    assert found.shape == (2, blocks, blocks, SUMS)
    for number in range(2):
        own = (cells.values[number].double().numpy(), cells.classes[number].numpy(), cells.counts[number].numpy())
        np.testing.assert_allclose(found[number], sums_of(*own, means, whitening), rtol=1e-4, atol=1e-2)
