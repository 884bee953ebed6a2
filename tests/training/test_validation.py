import numpy as np
import pytest
import torch

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE
from ntrm.models.base import Segmentation
from ntrm.models.config import schema_for
from ntrm.training.losses import SegmentationLoss
from ntrm.training.validation import ScoreAccumulator

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
@pytest.mark.parametrize("weighting", ["batch", "dataset", "running"])
def test_the_loss_is_that_of_the_whole_part_as_one_batch(batches, weighting, more):
    loss = SegmentationLoss(K, weighting=weighting, frequencies=[5, 3, 1, 1], **more).eval()
    if weighting == "running":
        loss.weights.shares.copy_(torch.tensor([70.0, 20.0, 9.0, 1.0]))
    scores = tally(batches).compute(loss, SCHEMA)
    expected = loss(*joined(batches))
    assert scores.loss == pytest.approx(float(expected.total), rel=1e-5)
    assert scores.final == pytest.approx(float(expected.final), rel=1e-5)
    assert scores.coarse == pytest.approx(float(expected.coarse), rel=1e-5)


def test_it_is_not_the_mean_of_the_batches_losses():
    """Drawn batches may come close to it by chance: here one has right pixels alone, the other a single wrong one."""
    logits = torch.tensor([2.0, 0, 0, 0]).view(1, K, 1, 1).expand(1, K, 8, 9)
    right, wrong = torch.zeros(1, 8, 9, dtype=torch.uint8), torch.full((1, 8, 9), IGNORE, dtype=torch.uint8)
    wrong[0, 0, 0] = 0
    wrong[0, 0, 1] = 1
    made = [(Segmentation(logits, logits), target) for target in (right, wrong)]
    loss = SegmentationLoss(K).eval()
    mean = np.mean([float(loss(*batch).total) for batch in made])
    assert abs(tally(made).compute(loss, SCHEMA).loss - mean) > 0.1


def test_scores_are_counted_pixel_by_pixel(batches):
    output, target = joined(batches)
    truth, predicted = target.numpy().ravel(), output.final.argmax(dim=1).numpy().ravel()
    known = truth != IGNORE
    truth, predicted = truth[known], predicted[known]
    both = [np.sum((truth == c) & (predicted == c)) for c in range(K)]
    either = [np.sum((truth == c) | (predicted == c)) for c in range(K)]
    scores = tally(batches).compute(SegmentationLoss(K), SCHEMA)
    assert scores.iou == pytest.approx(np.mean([b / e for b, e in zip(both, either, strict=True) if e]))
    sizes = [np.sum(truth == c) + np.sum(predicted == c) for c in range(K)]
    assert scores.dice == pytest.approx(np.mean([2 * b / s for b, s in zip(both, sizes, strict=True) if s]))
    assert scores.accuracy == pytest.approx(np.mean(truth == predicted))


def test_only_ignored_pixels_are_refused(batches):
    unknown = [(output, torch.full_like(target, IGNORE)) for output, target in batches]
    with pytest.raises(DataError, match="no known pixel"):
        tally(unknown).compute(SegmentationLoss(K), SCHEMA)
