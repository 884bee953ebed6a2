import numpy as np
import pytest
import torch

from ntrm.core.labels import IGNORE
from ntrm.models.base import Segmentation
from ntrm.training.graph_loss import graph_loss
from ntrm.training.losses import SegmentationLoss


def literal(p, q):
    """Both (K, h, w): the sum over tissues of half the distance of their shares, and how many tissues."""

    def pairs(m):
        table = np.zeros((len(m), len(m)))
        _, height, width = m.shape
        for y in range(height):
            for x in range(width):
                for v, u in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                    if 0 <= v < height and 0 <= u < width:
                        table += np.outer(m[:, y, x], m[:, v, u])
        np.fill_diagonal(table, 0)
        return table

    predicted, true = pairs(p), pairs(q)
    total, number = 0.0, 0
    for mine, real in zip(predicted, true, strict=True):
        if real.sum() >= 1:
            number += 1
            total += np.abs(mine / (mine.sum() + 1e-6) - real / (real.sum() + 1e-6)).sum() / 2
    return total, number


def means(maps):
    """8 × 8 cells of (K, H, W)."""
    classes, height, width = maps.shape
    return maps.reshape(classes, height // 8, 8, width // 8, 8).mean(axis=(2, 4))


def test_the_loss_is_its_definition(random):
    logits = random.normal(0, 3, (2, 4, 32, 40))
    target = np.kron(random.integers(0, 4, (2, 4, 5)), np.ones((8, 8), dtype=int)).astype(np.uint8)
    target[random.random(target.shape) < 0.2] = IGNORE
    found, tissues = graph_loss(torch.from_numpy(logits), torch.from_numpy(target))
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) * (target != IGNORE)[:, None]
    truth = (target[:, None] == np.arange(4)[:, None, None]).astype(float)
    expected = [literal(means(p), means(q)) for p, q in zip(shares, truth, strict=True)]
    assert tissues.item() == sum(number for _, number in expected)
    assert found.item() == pytest.approx(sum(total for total, _ in expected), rel=1e-6)


def test_right_borders_cost_nothing_and_wrong_ones_one_each():
    target = torch.zeros(1, 16, 32, dtype=torch.uint8)
    target[:, :, 16:] = 1
    right = 100.0 * torch.nn.functional.one_hot(target.long(), 4).permute(0, 3, 1, 2).float()
    assert [each.item() for each in graph_loss(right, target)] == [pytest.approx(0, abs=1e-6), 2]
    strange = right.roll(2, dims=1)  # tissues 2 and 3 where 0 and 1 are: neither borders on anything any more
    assert graph_loss(strange, target)[0].item() == pytest.approx(1.0)  # ½·|0 − 1| each
    assert graph_loss(right, torch.full_like(target, IGNORE))[1].item() == 0


def test_the_weight_of_the_graph_is_added_and_has_a_gradient(seed):
    torch.manual_seed(seed)
    logits = torch.randn(2, 3, 32, 32, requires_grad=True)
    target = torch.randint(0, 3, (2, 4, 4)).repeat_interleave(8, 1).repeat_interleave(8, 2).to(torch.uint8)
    plain, heavy = (SegmentationLoss(3, graph=weight)(Segmentation(logits), target) for weight in (0.0, 2.0))
    total, tissues = graph_loss(logits, target)
    assert (heavy.total - plain.total).item() == pytest.approx(2 * (total / tissues).item(), rel=1e-4)
    assert heavy.final.item() == heavy.total.item()
    (gradient,) = torch.autograd.grad(heavy.total - plain.total, logits)
    assert gradient.abs().max() > 0
