import math
from statistics import fmean

import pytest
import torch

from ntrm.core.errors import NtrmError
from ntrm.training.losses import Loss
from ntrm.training.watch import INTERVAL, LossWatch, means


def losses(random, count):
    parts = torch.from_numpy(random.uniform(0, 3, (count, 2))).float()
    return [Loss(final + 0.4 * initial, final, initial) for final, initial in parts]


def add_all(watch, given):
    for loss in given:
        watch.add(loss)


def test_all_losses_arrive_in_order(random):
    given = losses(random, int(random.integers(1, 4 * INTERVAL)))
    watch = LossWatch()
    watch.begin(0)
    add_all(watch, given)
    assert watch.collect() == [[float(part) for part in loss] for loss in given]
    assert watch.collect() == watch.rows  # nothing comes twice


def test_the_mean_does_not_depend_on_where_a_round_was_interrupted(random):
    given = losses(random, 50)
    whole, first, second = LossWatch(), LossWatch(), LossWatch()
    whole.begin(0)
    for loss in given:
        whole.add(loss)
    cut = int(random.integers(1, 50))
    first.begin(0)
    for loss in given[:cut]:
        first.add(loss)
    second.begin(cut, first.collect())
    for loss in given[cut:]:
        second.add(loss)
    assert means(second.collect()) == means(whole.collect())
    assert means(whole.rows)[0] == pytest.approx(fmean(float(loss.total) for loss in given))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_bad_step_is_named(random, bad):
    start, place = 1000, int(random.integers(0, 3 * INTERVAL))
    given = losses(random, 5 * INTERVAL)
    for index in (place, place + 1, place + 30):  # those after it are bad as well
        given[index] = Loss(torch.tensor(bad), torch.tensor(bad), torch.tensor(1.0))
    watch = LossWatch()
    watch.begin(start)
    with pytest.raises(NtrmError) as caught:
        add_all(watch, given[: place + 2 * INTERVAL + 1])  # it is met soon
    assert caught.value.what.endswith(f"at step {start + place + 1}")
    assert "learning_rate" in caught.value.mend
    assert str(bad) in str(caught.value.got)


def test_without_a_coarse_head(random):
    watch = LossWatch()
    watch.begin(0)
    for value in (1.0, 2.0):
        watch.add(Loss(torch.tensor(value), torch.tensor(value)))
    assert means(watch.collect()) == (1.5, 1.5, None)


def test_a_new_round_forgets_the_last(random):
    watch = LossWatch()
    watch.begin(0)
    for loss in losses(random, 3):
        watch.add(loss)
    watch.begin(3)
    assert watch.collect() == []


def test_gradients_are_not_held():
    watch = LossWatch()
    watch.begin(0)
    value = torch.tensor(1.0, requires_grad=True) * 2
    watch.add(Loss(value, value))
    assert not watch._fresh[0].requires_grad
