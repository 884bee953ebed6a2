"""The loss against the literal oracle, PyTorch's own weighted mean, and itself over several processes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.loss_literal import soft_dice as literal_dice
from tests.reference.loss_literal import weighted_cross_entropy as literal

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE
from ntrm.metrics.confusion import confusion
from ntrm.metrics.overlap import overlap
from ntrm.models.base import Segmentation
from ntrm.models.config import schema_for
from ntrm.training.losses import ClassWeights, SegmentationLoss, class_counts, dice_of, dice_totals
from ntrm.training.recipe import load_recipe
from ntrm.training.validation import ScoreAccumulator

NOTHING_KNOWN = torch.full((2, 4, 4), 255, dtype=torch.uint8)

CASES = {**{name: {"weighting": name} for name in ("batch", "running")}, "dice": {"dice": 3.0}}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def draw(random, classes=5, size=(2, 6, 7), dtype=torch.float64):
    """Logits and a target that lacks some classes, whichever they are, and some pixels."""
    batch, height, width = size
    logits = torch.as_tensor(random.normal(scale=3, size=(batch, classes, height, width)), dtype=dtype)
    present = random.permutation(classes)[: random.integers(1, classes + 1)]
    target = random.choice(present, size=size).astype(np.uint8)
    target[random.random(size) < 0.3] = 255
    return logits, torch.from_numpy(target)


def loss_of(classes, **changes):
    return SegmentationLoss(classes, load_recipe("paper", changes))


def weighted_cross_entropy(logits, target):
    """The paper's loss of one head."""
    return loss_of(logits.shape[1])(Segmentation(logits), target).total


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 7), st.integers(1, 6), st.integers(1, 6))
def test_cross_entropy_and_dice_are_the_literal_ones(seed, batch, classes, height, width):
    logits, target = draw(np.random.default_rng(seed), classes, (batch, height, width))
    arrays = logits.numpy(), target.numpy().astype(int)
    assert weighted_cross_entropy(logits, target).item() == pytest.approx(literal(*arrays), rel=1e-6, abs=1e-12)
    assert dice(logits, target).item() == pytest.approx(literal_dice(*arrays), rel=1e-9, abs=1e-12)


@every_case
def test_nothing_known_is_no_loss_and_no_gradient(random, case):
    logits, _ = draw(random, classes=4, size=NOTHING_KNOWN.shape)
    logits.requires_grad_()
    loss = loss_of(4, **case)(Segmentation(logits, logits), NOTHING_KNOWN)
    loss.total.backward()
    assert [part.item() for part in loss] == [0, 0, 0]
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_running_weights_follow_an_exponential_average(random):
    running = ClassWeights("running", 3)
    average = np.ones(3)
    for counts in random.integers(100, 10_000, size=(8, 3)):
        average = 0.99 * average + 0.01 * counts
        found = running(torch.from_numpy(counts))
    assert found.tolist() == pytest.approx(average.sum() / (3 * average), rel=1e-5)
    before = running.state_dict()["shares"].clone()
    assert running.eval()(torch.tensor([1, 0, 0])).tolist() == found.tolist(), "validation uses what was learned"
    assert running.train()(torch.tensor([0, 0, 0])).tolist() == pytest.approx(found.tolist(), rel=1e-6)
    restored = ClassWeights("running", 3)
    restored.load_state_dict({"shares": before})
    assert restored.eval()(torch.zeros(3)).tolist() == found.tolist(), "a checkpoint carries the average"


def test_both_heads_are_weighed_and_dice_is_of_the_final_one_alone(random):
    (final, target), (coarse, _) = draw(random), draw(random)
    plain, heavy = (loss_of(5, dice=weight)(Segmentation(final, coarse), target) for weight in (0.0, 2.0))
    assert plain.final.item() == weighted_cross_entropy(final, target).item()
    assert plain.coarse.item() == heavy.coarse.item() == weighted_cross_entropy(coarse, target).item()
    assert plain.total.item() == pytest.approx(plain.final.item() + 0.4 * plain.coarse.item(), rel=1e-12)
    for more in (heavy.total - plain.total, heavy.final - plain.final):
        assert more.item() == pytest.approx(2 * dice(final, target).item(), rel=1e-9, abs=1e-12)
    alone = loss_of(5, dice=2.0)(Segmentation(final), target)
    assert alone.total.item() == alone.final.item() == heavy.final.item()
    assert alone.coarse is None


@every_case
def test_no_value_is_read_back_from_the_device(case):
    # Tensors of the meta device have no values: reading one raises.
    logits = torch.zeros(2, 4, 8, 8, device="meta", requires_grad=True)
    target = torch.zeros(2, 8, 8, dtype=torch.uint8, device="meta")
    loss = loss_of(4, **case).to("meta")(Segmentation(logits, logits), target)
    loss.total.backward()
    assert loss.total.shape == ()
    assert logits.grad.shape == logits.shape


def dice(logits, target):
    """Of one process."""
    own = dice_totals(logits, target)
    return dice_of(own, own.detach(), class_counts(target, logits.shape[1]))


def test_the_gradient_of_dice_is_its_own(random):
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


K = 4
SCHEMA = schema_for(K)


@pytest.fixture
def batches(random):
    """Batches whose classes are spread unevenly, one of them absent from the truth, with pixels ignored."""
    made = []
    for size in (3, 3, 1):
        target = torch.from_numpy(random.choice([0, 1, 2, IGNORE], (size, 8, 9), p=[0.6, 0.3, 0.05, 0.05]))
        logits = (torch.from_numpy(random.normal(0, 2, (size, K, 8, 9))).float() for _ in range(2))
        made.append((Segmentation(*logits), target.to(torch.uint8)))
    return made


def joined(batches):
    finals, initials = (torch.cat([getattr(output, head) for output, _ in batches]) for head in ("final", "coarse"))
    return Segmentation(finals, initials), torch.cat([target for _, target in batches])


def tally(batches):
    counted = ScoreAccumulator(K)
    for output, target in batches:
        counted.update(output, target)
    return counted


@pytest.mark.parametrize("more", [{}, {"balance": 0.25, "dice": 1.5}], ids=["the paper's", "balanced, with Dice"])
@pytest.mark.parametrize("weighting", ["batch", "running"])
def test_the_loss_is_that_of_the_whole_part_as_one_batch(batches, weighting, more):
    loss = loss_of(K, weighting=weighting, **more).eval()
    if weighting == "running":
        loss.weights.shares.copy_(torch.tensor([70.0, 20.0, 9.0, 1.0]))
    scores = tally(batches).compute(loss, SCHEMA)
    expected = loss(*joined(batches))
    assert scores.loss == pytest.approx(float(expected.total), rel=1e-5)
    assert scores.final == pytest.approx(float(expected.final), rel=1e-5)
    assert scores.coarse == pytest.approx(float(expected.coarse), rel=1e-5)


def test_scores_are_those_of_all_pixels_together(batches):
    output, target = joined(batches)
    expected = overlap(confusion(target.numpy(), output.final.argmax(dim=1).numpy(), K), SCHEMA)
    scores = tally(batches).compute(loss_of(K), SCHEMA)
    assert (scores.iou, scores.dice) == pytest.approx((expected.macro["iou"], expected.macro["dice"]))
    assert scores.accuracy == pytest.approx(expected.pixel_accuracy)


def test_only_ignored_pixels_are_refused(batches):
    unknown = [(output, torch.full_like(target, IGNORE)) for output, target in batches]
    with pytest.raises(DataError, match="no known pixel"):
        tally(unknown).compute(loss_of(K), SCHEMA)
