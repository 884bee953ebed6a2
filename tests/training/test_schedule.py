import math
from dataclasses import asdict

import pytest
import torch
from tests.training.small_data import small_recipe

from ntrm.training.schedule import Course, Rounds, is_better, learning_rate

# --- rounds ---


def test_every_step_lies_in_one_round(random):
    for _ in range(50):
        total, length = (int(n) for n in random.integers(1, 40, 2))
        rounds = Rounds(total, min(total, length), per_epoch=7)
        step, ends = 0, []
        while step < total:
            step = rounds.end(step)
            ends.append(step)
        assert ends == [*range(rounds.length, total, rounds.length), total]


# --- learning rate ---


def torchs_rates(scheduler_of, total):
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    scheduler = scheduler_of(optimiser)
    rates = []
    for _ in range(total):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        scheduler.step()
    return rates


def test_warm_up_and_cosine_are_torchs_own():
    total, warm = 50, 10
    recipe = small_recipe(schedule="cosine", warmup=warm / total, learning_rate=0.1)
    lrs = torch.optim.lr_scheduler

    def scheduler(optimiser):
        rise = lrs.LinearLR(optimiser, start_factor=1 / warm, total_iters=warm - 1)
        return lrs.SequentialLR(optimiser, [rise, lrs.CosineAnnealingLR(optimiser, total - warm)], [warm])

    expected = torchs_rates(scheduler, total)
    assert [learning_rate(recipe, step, total) for step in range(total)] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("patience", [1, 2, 5])
def test_plateau_is_torchs_own(random, patience):
    recipe = small_recipe(
        schedule="plateau", warmup=0, learning_rate=0.1, plateau_factor=0.5, plateau_patience=patience
    )
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    # Torch lowers the rate after *more* than its patience; ours is the number of validations itself.
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, factor=0.5, patience=patience - 1, threshold=0, eps=0
    )
    course = Course()
    for loss in random.integers(0, 30, 60) / 10.0:
        theirs.step(loss)
        course = course.after(float(loss), recipe)
        assert learning_rate(recipe, 0, 60, course.reductions) == pytest.approx(optimiser.param_groups[0]["lr"])
    assert course.reductions > 0


# --- stopping and keeping ---


def test_stops_after_so_many_validations_without_a_better_loss():
    recipe = small_recipe(early_stopping=3)
    course, stops = Course(), []
    for loss in [2.0, 1.0, 1.0, 1.5, 0.5, 0.6, math.nan, 0.5]:
        course = course.after(loss, recipe)
        stops.append(course.stops(recipe))
    assert stops == [False] * 7 + [True]
    assert course.lowest == 0.5
    assert not course.stops(small_recipe(early_stopping=None))
    assert Course(**asdict(course)) == course


@pytest.mark.parametrize(
    ("keep", "new", "kept", "expected"),
    [
        ("loss", {"loss": 1.0}, None, True),
        ("loss", {"loss": 1.0}, {"loss": 2.0}, True),
        ("loss", {"loss": 2.0}, {"loss": 2.0}, False),
        ("loss", {"loss": math.nan}, {"loss": 2.0}, False),
        ("loss", {"loss": 3.0}, {"loss": math.nan}, True),
        ("iou", {"iou": 0.5}, {"iou": 0.4}, True),
        ("iou", {"iou": 0.4}, {"iou": 0.5}, False),
        ("iou", {"iou": None}, {"iou": 0.5}, False),
        ("iou", {"iou": 0.1}, {"iou": None}, True),
        ("last", {"loss": 9.0, "iou": 0.0}, {"loss": 1.0, "iou": 1.0}, True),
    ],
)
def test_which_weights_are_kept(keep, new, kept, expected):
    assert is_better(keep, new, kept) is expected
