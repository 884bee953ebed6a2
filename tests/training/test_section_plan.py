import pickle
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.errors import UsageError
from ntrm.training.section_plan import SectionPlan, section_numbers, section_sizes

SEEDS = st.integers(0, 2**63)
SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=8).map(tuple)


def plan_of(sizes, sections, windows, seed, **where):
    return SectionPlan(sum(sizes), sections * windows, seed, **where, sizes=sizes, sections=sections)


def owner(sizes):
    """The section of each window."""
    return np.repeat(np.arange(len(sizes)), sizes)


@given(SIZES, st.integers(1, 4), st.integers(1, 9), SEEDS, st.integers(0, 40))
def test_a_step_is_made_of_whole_sections(sizes, sections, windows, seed, step):
    plan = plan_of(sizes, sections, windows, seed)
    groups = owner(sizes)[plan.indices(step)].reshape(sections, windows)
    assert (groups == groups[:, :1]).all()
    assert plan.groups == tuple(np.repeat(np.arange(sections), windows))


@given(SIZES, st.integers(1, 4), st.integers(1, 9), SEEDS, st.integers(0, 3))
def test_an_epoch_is_balanced_over_windows(sizes, sections, windows, seed, epoch):
    plan = plan_of(sizes, sections, windows, seed)
    visits = [-(-size // windows) for size in sizes]
    assert plan.steps_per_epoch == max(1, sum(visits) // sections)
    first = epoch * plan.steps_per_epoch
    seen = [plan.indices(step) for step in range(first, first + plan.steps_per_epoch)]
    counts = Counter(index for step in seen for index in step)
    if sum(visits) % sections == 0:  # nothing was left out: every window comes, none more than once too often
        assert set(counts) == set(range(sum(sizes)))
        for size, visit, start in zip(sizes, visits, np.cumsum((0, *sizes)), strict=False):
            times = [counts[int(start) + index] for index in range(size)]
            assert sum(times) == visit * windows
            assert max(times) - min(times) <= 1
    elif sum(visits) > sections:
        left_out = sum(visits) % sections
        assert sum(counts.values()) == (sum(visits) - left_out) * windows


@given(SIZES, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), SEEDS, st.integers(0, 40))
def test_processes_share_sections_as_one_process_has_them(sizes, share, windows, world, seed, step):
    whole = plan_of(sizes, share * world, windows, seed)
    joined = np.array(whole.indices(step)).reshape(share * world, windows)
    for rank in range(world):
        part = plan_of(sizes, share * world, windows, seed, rank=rank, world=world)
        assert part.indices(step) == joined[rank::world].ravel().tolist()
        assert part.groups == tuple(np.repeat(np.arange(share), windows))
        assert part.steps_per_epoch == whole.steps_per_epoch
        assert torch.equal(part.generator(step).get_state(), whole.generator(step).get_state())


def test_a_step_is_the_same_whenever_and_wherever_it_is_asked_for(seed):
    plan = plan_of((9, 4, 1, 17), 2, 4, seed)
    forward = [plan.indices(step) for step in range(60)]
    again = pickle.loads(pickle.dumps(plan))
    for step in np.random.default_rng(seed).permutation(60):
        assert again.indices(int(step)) == forward[step]
    assert forward != [replace(plan, seed=seed + 1).indices(step) for step in range(60)]


def test_all_windows_come_in_the_long_run_however_few_the_steps(seed):
    plan = plan_of((7, 3, 11), 2, 4, seed)  # 6 groups, three steps
    counts = Counter(index for step in range(150) for index in plan.indices(step))
    assert set(counts) == set(range(21))
    with_more = plan_of((7, 3, 11), 4, 4, seed)  # one step of four of the six groups
    assert len(Counter(i for step in range(100) for i in with_more.indices(step))) == 21


def test_few_windows_are_repeated_evenly(seed):
    plan = plan_of((3,), 1, 8, seed)
    assert sorted(Counter(plan.indices(5)).values()) == [2, 3, 3]
    lonely = plan_of((1,), 4, 2, seed)
    assert lonely.indices(0) == [0] * 8


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch": 7}, "cannot be shared evenly"),
        ({"world": 2, "sections": 3, "batch": 12}, "cannot be shared evenly"),
        ({"sections": 0}, "sections of a step"),
        ({"sizes": ()}, "do not fit"),
        ({"sizes": (5, 4)}, "do not fit"),
        ({"sizes": (10, 0)}, "do not fit"),
    ],
)
def test_impossible_plans_are_refused(changes, words):
    with pytest.raises(UsageError, match=words):
        SectionPlan(**{"tiles": 10, "batch": 8, "seed": 0, "sizes": (6, 4), "sections": 2, **changes})


def test_sections_are_numbered_in_the_order_of_their_windows():
    places = [SimpleNamespace(case=SimpleNamespace(name=name)) for name in "bbbaac"]
    assert section_numbers(SimpleNamespace(places=places)) == [0, 0, 0, 1, 1, 2]
    assert section_sizes(SimpleNamespace(places=places)) == (3, 2, 1)
