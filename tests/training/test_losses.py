"""The loss against the literal oracle, PyTorch's own weighted mean, and itself over several processes."""

import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from tests.reference.loss_literal import soft_dice as literal_dice
from tests.reference.loss_literal import weighted_cross_entropy as literal
from torch import multiprocessing

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE
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
def test_is_the_literal_loss(seed, batch, classes, height, width):
    logits, target = draw(np.random.default_rng(seed), classes, (batch, height, width))
    expected = literal(logits.numpy(), target.numpy().astype(int))
    assert weighted_cross_entropy(logits, target).item() == pytest.approx(expected, rel=1e-6, abs=1e-12)


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


def test_both_heads_are_weighed_and_reported(random):
    (final, target), (coarse, _) = draw(random), draw(random)
    loss = loss_of(5)(Segmentation(final, coarse), target)
    assert loss.final.item() == weighted_cross_entropy(final, target).item()
    assert loss.coarse.item() == weighted_cross_entropy(coarse, target).item()
    assert loss.total.item() == pytest.approx(loss.final.item() + 0.4 * loss.coarse.item(), rel=1e-12)
    alone = loss_of(5)(Segmentation(final), target)
    assert alone.total.item() == alone.final.item() == loss.final.item()
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


def average_gradients(model):
    """What distributed data parallelism does: the mean over processes."""
    if dist.is_initialized():
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def train_twice(case, model, batches):
    """Gradients and losses of two steps, as one process of however many sees them."""
    criterion = loss_of(4, **CASES[case])
    seen = []
    for images, target in batches:
        model.zero_grad()
        logits = model(images)
        total = criterion(Segmentation(logits, 0.5 * logits), target).total
        total.backward()
        average_gradients(model)
        seen.append((total.detach(), *(parameter.grad.clone() for parameter in model.parameters())))
    return seen


def one_of_two(rank, folder):
    """A process of two: its part of each batch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    weights, batches = torch.load(folder / "inputs.pt")
    mine = [tuple(part.tensor_split([3])[rank] for part in batch) for batch in batches]
    found = {}
    for case in CASES:
        model = torch.nn.Conv2d(3, 4, 1, dtype=torch.float64)
        model.load_state_dict(weights)
        found[case] = train_twice(case, model, mine)
    torch.save(found, folder / f"found-{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # the results are on disk; gloo's threads may abort an ordinary exit


def test_two_processes_have_the_gradient_of_the_joined_batch(random, tmp_path):
    model = torch.nn.Conv2d(3, 4, 1, dtype=torch.float64)
    batches = []
    for _ in range(2):
        images = torch.from_numpy(random.normal(size=(5, 3, 6, 6)))
        target = torch.from_numpy(random.integers(4, size=(5, 6, 6)).astype(np.uint8))
        target[:3][target[:3] == 0] = 255  # the first process lacks a class and has other counts than the second
        target[4] = 0
        batches.append((images, target))
    torch.save((model.state_dict(), batches), tmp_path / "inputs.pt")
    multiprocessing.spawn(one_of_two, args=(tmp_path,), nprocs=2)
    first, second = (torch.load(tmp_path / f"found-{rank}.pt") for rank in range(2))
    for case in CASES:
        steps = zip(train_twice(case, model, batches), first[case], second[case], strict=True)
        for (loss, *gradients), (left, *averaged), (right, *same) in steps:
            torch.testing.assert_close((left + right) / 2, loss, rtol=1e-6, atol=0)
            assert (left - right).abs() > 1e-6, "the halves differ, so the mean is worth testing"
            for expected, found, twin in zip(gradients, averaged, same, strict=True):
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-9)
                assert torch.equal(found, twin)


# --- soft Dice ---


def dice(logits, target):
    """Of one process."""
    own = dice_totals(logits, target)
    return dice_of(own, own.detach(), class_counts(target, logits.shape[1]))


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 7), st.integers(1, 6), st.integers(1, 6))
def test_dice_is_the_literal_loss(seed, batch, classes, height, width):
    logits, target = draw(np.random.default_rng(seed), classes, (batch, height, width))
    expected = literal_dice(logits.numpy(), target.numpy().astype(int))
    assert dice(logits, target).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


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


def test_the_final_head_alone_is_weighed_and_added(random):
    (final, target), (coarse, _) = draw(random), draw(random)
    output = Segmentation(final, coarse)
    plain, heavy = (loss_of(5, dice=weight)(output, target) for weight in (0.0, 2.0))
    expected = literal_dice(final.numpy(), target.numpy().astype(int))
    assert (heavy.total - plain.total).item() == pytest.approx(2 * expected, rel=1e-9, abs=1e-12)
    assert (heavy.final - plain.final).item() == pytest.approx(2 * expected, rel=1e-9, abs=1e-12)
    assert heavy.coarse.item() == plain.coarse.item()
    alone = loss_of(5, dice=2.0)(Segmentation(final), target)
    assert alone.total.item() == alone.final.item() == heavy.final.item()


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


def test_scores_are_counted_pixel_by_pixel(batches):
    output, target = joined(batches)
    truth, predicted = target.numpy().ravel(), output.final.argmax(dim=1).numpy().ravel()
    known = truth != IGNORE
    truth, predicted = truth[known], predicted[known]
    both = [np.sum((truth == c) & (predicted == c)) for c in range(K)]
    either = [np.sum((truth == c) | (predicted == c)) for c in range(K)]
    scores = tally(batches).compute(loss_of(K), SCHEMA)
    assert scores.iou == pytest.approx(np.mean([b / e for b, e in zip(both, either, strict=True) if e]))
    sizes = [np.sum(truth == c) + np.sum(predicted == c) for c in range(K)]
    assert scores.dice == pytest.approx(np.mean([2 * b / s for b, s in zip(both, sizes, strict=True) if s]))
    assert scores.accuracy == pytest.approx(np.mean(truth == predicted))


def test_only_ignored_pixels_are_refused(batches):
    unknown = [(output, torch.full_like(target, IGNORE)) for output, target in batches]
    with pytest.raises(DataError, match="no known pixel"):
        tally(unknown).compute(loss_of(K), SCHEMA)
