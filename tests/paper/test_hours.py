import pytest
from tests.paper.synthetic import tiny_plan

from ntrm.paper.facts import Facts
from ntrm.paper.hours import TimeLeft, makespan, predict_seconds, rounds_of
from ntrm.paper.plan import Job
from ntrm.training.recipe import load_recipe


def facts_of(windows, *, sections=44, megapixels=33):
    """A dataset with as many validation windows as a fifth of the training windows."""
    counts = {"train": 203, "val": 43, "test": sections}
    pixels = {"train": 0, "val": 0, "test": megapixels * 10**6}
    return Facts("10x", 6.7, "f", counts, counts, pixels, {"train": windows, "val": windows // 5, "test": 0}, False)


def job_of(arch, recipe, **changes):
    variant = next(variant for variant in tiny_plan().variants if variant.arch == arch)
    return Job(variant, 0, load_recipe(recipe, changes), "f")


def test_a_training_by_fast_takes_what_was_measured_on_the_gpu():
    # 2,000 steps of 25.4 ms, ten validations of 1,000 windows at a third of 25.4 / 32 ms, 44 sections of 0.75 Mpx.
    seconds = predict_seconds(job_of("ntrm-paper", "fast"), facts_of(5000))
    by_hand = 30 + 2000 * 0.0254 + 10 * 1000 * 0.0254 / 32 / 3 + 44 * 0.85 + 33 * 0.085
    assert seconds == pytest.approx(by_hand)


def test_small_batches_cost_what_was_measured_for_them():
    # 13.9 ms for four windows: 287 windows a second.
    long = predict_seconds(job_of("ntrm-paper", "fast", batch=4, steps=100_000), facts_of(5000))
    short = predict_seconds(job_of("ntrm-paper", "fast", batch=4, steps=50_000), facts_of(5000))
    validation = 250 * 1000 * 0.0254 / 32 / 3
    assert (long - short - validation) / 50_000 == pytest.approx(0.0139, rel=0.02)


def test_the_length_of_a_training_is_in_steps_or_in_passes():
    assert rounds_of(load_recipe("fast"), 5000).total == 2000
    assert rounds_of(load_recipe("paper"), 3603).total == 150 * 900
    assert rounds_of(load_recipe("paper"), 3).total == 150


def test_slower_networks_are_expected_to_take_longer():
    archs = ("deeplabv3plus", "unet-resnet18", "ntrm-control", "ntrm-paper", "unet-vgg16", "mit-b2", "attention-unet")
    seconds = [predict_seconds(job_of(arch, "fast"), facts_of(5000)) for arch in archs]
    assert seconds == sorted(seconds)


def test_runs_share_out_over_gpus():
    runs = [5.0, 4.0, 3.0, 3.0, 3.0]
    assert makespan(runs, 1) == 18
    assert makespan(runs, 2) == 10  # 5 + 3 beside 4 + 3 + 3
    assert makespan(runs, 8) == 5


def test_the_time_left_follows_the_runs_that_were_done():
    left = TimeLeft({"a": 10.0, "b": 20.0, "c": 30.0, "d": 10.0}, slots=1)
    assert left.seconds is None
    left.done("a", 40.0)
    assert left.seconds == pytest.approx(60 * 4)
    left.done("d", None)  # by another command, which will do half of the rest as well
    assert left.seconds == pytest.approx(50 * 4 / 2)
    left.done("b", 20.0)
    assert left.seconds == pytest.approx(30 * 60 / 30 * 30 / 40)
    left.done("c", 30.0)
    assert left.seconds == 0
