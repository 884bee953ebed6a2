"""The soft Dice loss against the literal oracle, and in parts against the whole."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.loss_literal import soft_dice as literal
from tests.training.drawn_logits import draw

from ntrm.core.errors import UsageError
from ntrm.models.base import Segmentation
from ntrm.training.dice_loss import dice_of, dice_totals
from ntrm.training.losses import SegmentationLoss, class_counts


def dice(logits, target, ignore=255):
    """Of one process."""
    own = dice_totals(logits, target, ignore)
    return dice_of(own, own.detach(), class_counts(target, logits.shape[1], ignore))


@settings(max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 7), st.integers(1, 6), st.integers(1, 6))
def test_is_the_literal_loss(seed, batch, classes, height, width):
    logits, target = draw(np.random.default_rng(seed), classes, (batch, height, width))
    expected = literal(logits.numpy(), target.numpy().astype(int))
    assert dice(logits, target).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_class_can_be_ignored(random):
    logits, target = draw(random, classes=4)
    target = torch.where(target == 255, 1, target)
    expected = literal(logits.numpy(), target.numpy().astype(int), ignore=1)
    assert dice(logits, target, ignore=1).item() == pytest.approx(expected, rel=1e-9)


def test_the_gradient_is_the_losss(random):
    logits, target = draw(random, classes=4, size=(2, 2, 3))
    assert torch.autograd.gradcheck(lambda x: dice(x, target), logits.requires_grad_())


def test_the_mean_gradient_of_parts_is_that_of_the_whole(random):
    logits, target = draw(random, size=(5, 4, 4))
    target[1:3] = 255  # the second of the three knows nothing
    logits.requires_grad_()
    counts = class_counts(target, 5)
    whole = dice(logits, target)
    bounds = [slice(0, 1), slice(1, 3), slice(3, 5)]
    own = [dice_totals(logits[part], target[part]) for part in bounds]
    parts = [dice_of(each, sum(own).detach(), counts, processes=3) for each in own]
    assert [part.item() for part in parts] == pytest.approx([whole.item()] * 3, rel=1e-12)
    (expected,) = torch.autograd.grad(whole, logits)
    (found,) = torch.autograd.grad(sum(parts) / 3, logits)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-15)
    assert expected.abs().max() > 0


def test_nothing_known_is_no_loss_and_no_gradient(random):
    logits, target = draw(random)
    logits.requires_grad_()
    loss = dice(logits, torch.full_like(target, 255))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_ignored_pixels_have_no_gradient(random):
    logits, target = draw(random)
    target[0, 0, 0] = 255
    logits.requires_grad_()
    dice(logits, target).backward()
    ignored = (target == 255).unsqueeze(1).expand_as(logits)
    assert not logits.grad[ignored].any()


def test_all_right_costs_nothing_and_all_wrong_one(random):
    _, target = draw(random, classes=3)
    target[0, 0, 0] = 2
    right = 100.0 * (target.unsqueeze(1) == torch.arange(3).view(1, 3, 1, 1))
    assert dice(right, target).item() == pytest.approx(0, abs=1e-6)
    assert dice(right.roll(1, dims=1), target).item() == pytest.approx(1, abs=1e-6)


def test_half_precision_is_computed_in_single(random):
    logits, target = draw(random, dtype=torch.bfloat16)
    target[0, 0, 0] = 0
    expected = literal(logits.double().numpy(), target.numpy().astype(int))
    logits.requires_grad_()
    for half in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            loss = dice(logits, target)
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
        (gradient,) = torch.autograd.grad(loss, logits)
        assert gradient.dtype == torch.bfloat16
        assert gradient.isfinite().all()


def test_the_final_head_alone_is_weighed_and_added(random):
    (final, target), (initial, _) = draw(random), draw(random)
    output = Segmentation(final, initial)
    plain, heavy = (SegmentationLoss(5, dice=weight)(output, target) for weight in (0.0, 2.0))
    expected = literal(final.numpy(), target.numpy().astype(int))
    assert (heavy.total - plain.total).item() == pytest.approx(2 * expected, rel=1e-9, abs=1e-12)
    assert (heavy.final - plain.final).item() == pytest.approx(2 * expected, rel=1e-9, abs=1e-12)
    assert heavy.initial.item() == plain.initial.item()
    alone = SegmentationLoss(5, dice=2.0)(Segmentation(final), target)
    assert alone.total.item() == alone.final.item() == heavy.final.item()


def test_compiles_into_one_graph(random):
    torch.compiler.reset()
    criterion = SegmentationLoss(5, dice=2.0)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    for dtype in (torch.float32, torch.bfloat16):
        logits, target = draw(random, dtype=dtype)
        logits.requires_grad_()
        totals = [loss(Segmentation(logits), target).total for loss in (compiled, criterion)]
        torch.testing.assert_close(*totals)
        torch.testing.assert_close(*(torch.autograd.grad(total, logits)[0] for total in totals))


def test_no_value_is_read_back_from_the_device():
    # Tensors of the meta device have no values: reading one raises.
    logits = torch.zeros(2, 5, 8, 8, device="meta", requires_grad=True)
    target = torch.zeros(2, 8, 8, dtype=torch.uint8, device="meta")
    loss = SegmentationLoss(5, dice=2.0).to("meta")(Segmentation(logits), target)
    loss.total.backward()
    assert loss.total.shape == ()
    assert logits.grad.shape == logits.shape


@pytest.mark.parametrize("weight", [-0.1, 101, True, "much"])
def test_an_impossible_weight_is_refused(weight):
    with pytest.raises(UsageError, match="Dice"):
        SegmentationLoss(3, dice=weight)
