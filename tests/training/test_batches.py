import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.data.random_sections import write_random

from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import Dataset
from ntrm.data.tensors import TileDataset
from ntrm.training import batches as batches_module
from ntrm.training.batches import StepPlan, WindowStore, class_pixels, stack_tiles, validation_batches

CPU = torch.device("cpu")
SIZE = 32
SEEDS = st.integers(0, 2**63 - 1)


@given(st.integers(1, 60), st.integers(1, 12), SEEDS, st.integers(0, 5))
def test_an_epoch_holds_every_window_once_but_the_incomplete_batch(tiles, batch, seed, epoch):
    plan = StepPlan(tiles, batch, seed)
    first = epoch * plan.steps_per_epoch
    steps = [plan.indices(step) for step in range(first, first + plan.steps_per_epoch)]
    counts = Counter(index for step in steps for index in step)
    assert all(len(step) == batch for step in steps)
    assert set(counts) <= set(range(tiles))
    if tiles >= batch:
        assert plan.steps_per_epoch == tiles // batch
        assert max(counts.values()) == 1
        assert len(counts) == tiles - tiles % batch
    else:
        assert plan.steps_per_epoch == 1
        assert set(counts) == set(range(tiles))
        assert set(counts.values()) <= {math.floor(batch / tiles), math.ceil(batch / tiles)}


def test_a_batch_that_cannot_be_shared_is_refused():
    with pytest.raises(UsageError, match="multiple of 4"):
        StepPlan(10, 6, 0, world=4)


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    """Windows of three random sections, one of them smaller than a window."""
    folder, sizes = tmp_path_factory.mktemp("sections"), [(150, 170), (100, 70), (20, 25)]
    cases = tuple(case for case, *_ in write_random(folder, np.random.default_rng(3), *sizes))
    return TileDataset(Dataset(folder, "queensland", SKIN, cases), size=SIZE, cache=SectionCache(folder / "cache"))


@pytest.mark.parametrize(("resident", "workers"), [("yes", 1), ("no", 0), ("no", 2), ("auto", 0)])
def test_batches_are_the_windows_of_the_plan_however_they_come(tiles, random, resident, workers, monkeypatch):
    monkeypatch.setattr(batches_module, "_CHUNK", 7)
    expected = stack_tiles(list(tiles))
    plan = [random.integers(0, len(tiles), length).tolist() for length in (4, 4, 3, 1, 9)]
    store, before = WindowStore(tiles, CPU, resident=resident, workers=workers), torch.get_rng_state()
    assert store.resident == (resident != "no")
    batches = list(store.batches(plan))
    assert torch.equal(torch.get_rng_state(), before)  # nothing random is used up
    assert len(batches) == len(plan)
    for batch, indices in zip(batches, plan, strict=True):
        assert (batch.images.dtype, batch.masks.dtype) == (torch.uint8, torch.uint8)
        assert torch.equal(batch.images, expected.images[indices])
        assert torch.equal(batch.masks, expected.masks[indices])
    assert (expected.masks == IGNORE).any()  # the small section is padded


@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 4), SEEDS, st.integers(0, 2**40))
def test_processes_share_and_fill_a_batch_as_one_process_has_it(tiles, share, world, seed, step):
    whole = StepPlan(tiles, share * world, seed, fill=0.5)
    parts = [StepPlan(tiles, share * world, seed, rank, world, fill=0.5) for rank in range(world)]
    for rank, part in enumerate(parts):
        assert part.indices(step) == whole.indices(step)[rank::world]
        assert part.steps_per_epoch == whole.steps_per_epoch
        assert torch.equal(part.generator(step).get_state(), whole.generator(step).get_state())
    fillings = [part.fillings(step) for part in parts]
    joined = {world * place + rank: other for rank, own in enumerate(fillings) for place, other in own.items()}
    assert joined == whole.fillings(step)
    assert set(joined.values()) <= set(range(tiles))


def test_windows_are_filled_as_often_as_asked_from_all_windows_alike(seed):
    plan = StepPlan(20, 32, seed, fill=0.35)
    fillings = [plan.fillings(step) for step in range(200)]
    assert sum(map(len, fillings)) / 6400 == pytest.approx(0.35, abs=0.036)  # six standard deviations
    counts = Counter(other for each in fillings for other in each.values())
    assert len(counts) == 20
    assert max(counts.values()) < 2 * min(counts.values())
    assert len({tuple(each.items()) for each in fillings}) > 190


@pytest.mark.parametrize(("world", "batch"), [(1, 5), (2, 6), (3, 12), (5, 5)])
def test_validation_windows_are_shared_without_gap_or_repetition(world, batch):
    plans = [StepPlan(9, batch, 0, rank, world) for rank in range(world)]
    shares = [validation_batches(41, 2048, plan) for plan in plans]
    assert sorted(index for share in shares for chunk in share for index in chunk) == list(range(41))
    assert all(len(chunk) <= batch // world for share in shares for chunk in share)


def test_class_pixels_are_counted_by_section(tiles):
    masks = {place.case.name: np.asarray(place.section.mask) for place in tiles.sources}
    assert class_pixels(tiles) == [sum(float((mask == k).sum()) for mask in masks.values()) for k in range(len(SKIN))]
