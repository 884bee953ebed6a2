"""Trainings with whole sections: the same batches for all networks, two passes in validation, exact resumption."""

import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image
from tests.training.small_data import small_recipe

from ntrm.core.errors import UsageError
from ntrm.data.cache import TileCache
from ntrm.data.layouts import open_dataset
from ntrm.data.tensors import TileDataset
from ntrm.models.hub import load
from ntrm.models.registry import create
from ntrm.training.batches import StepPlan, TileStore
from ntrm.training.fit import class_contacts
from ntrm.training.interruption import InterruptedTrainingError
from ntrm.training.log import read_log
from ntrm.training.module import RoundLoader, TrainingModule
from ntrm.training.section_plan import SectionPlan, section_numbers, section_sizes

CHANGES = {"steps": 4, "batch": 4, "sections": 2, "validate_every": 2}
SMALL = {"width": 0.125, "dim": 8, "heads": 2}


@pytest.fixture
def store(data, tmp_path):
    tiles = TileDataset(open_dataset(data), size=64, cache=TileCache(tmp_path / "cache"))
    return TileStore(tiles, torch.device("cpu"), resident="yes", workers=0)


@pytest.fixture
def make(store, seed):
    def make_module(arch="ntrm-section", opened=True, rank=0, world=1, options=SMALL, **changes):
        recipe = small_recipe(**{**CHANGES, **changes})
        torch.manual_seed(seed)
        network = create(arch, store.tiles.schema, **options)
        if opened and arch == "ntrm-section":
            torch.nn.init.normal_(network.relation.readout.out.weight, std=2.0)
        sizes = section_sizes(store.tiles)
        plan = SectionPlan(len(store), recipe.batch, seed, rank, world, sizes, recipe.sections)
        return TrainingModule(network, recipe, plan, training=store, validation=store, frequencies=[1, 1, 1])

    return make_module


def batch_of(module, step=0):
    return next(iter(RoundLoader(module._stores[0], module.plan, step, step + 1)))


def test_the_network_is_told_which_windows_are_of_one_section(make, monkeypatch):
    module, seen = make(), []
    forward = module.network.forward
    monkeypatch.setattr(module.network, "forward", lambda x, **more: seen.append(more) or forward(x, **more))
    module.training_step(batch_of(module), 0)
    assert seen[0]["sections"].tolist() == [0, 0, 1, 1]


def test_all_networks_train_on_the_very_same_batches(make, monkeypatch):
    batches = []
    for arch, options in (("ntrm-section", SMALL), ("ntrm-control", {"width": 0.125})):
        module = make(arch, options=options)
        monkeypatch.setattr(
            module, "normalise", lambda images, keep=module.normalise: batches.append(images) or keep(images)
        )
        module.training_step(batch_of(module, 3), 0)
    assert torch.equal(*batches)


def test_windows_of_all_sections_alike_come_with_a_memory_of_each(make, store, seed):
    whole = make()
    assert whole.memory is None
    plan = StepPlan(len(store), 4, seed)
    module = TrainingModule(whole.network, whole.recipe, plan, training=store, validation=store, frequencies=[1, 1, 1])
    for step in range(3):
        module.training_step(batch_of(module, step), step)
    visited = [{section_numbers(store.tiles)[index] for index in plan.indices(step)} for step in range(3)]
    assert module.memory.visits.tolist() == [sum(number in each for each in visited) for number in range(4)]
    control = make("ntrm-control", options={"width": 0.125})
    assert TrainingModule(control.network, whole.recipe, plan, training=store, validation=store).memory is None


def validate(module):
    module.eval()
    module.on_validation_epoch_start()
    for index, batch in enumerate(module.val_dataloader()):
        with torch.no_grad():
            module.validation_step(batch, index)
    module.on_validation_epoch_end()
    return module.validated


@pytest.mark.parametrize("options", [{}, {"rounds": 2}], ids=["one round", "two rounds"])
def test_validation_sees_whole_sections_however_the_batches_fall(make, store, options, monkeypatch):
    module = make(options={**SMALL, **options})
    monkeypatch.setattr("ntrm.training.module.VALIDATION_BATCH", 5)  # sections of six windows
    found = validate(module)
    images = torch.stack([store.tiles[index].image for index in range(len(store))])
    masks = torch.stack([store.tiles[index].mask for index in range(len(store))])
    with torch.no_grad():
        sections = torch.tensor(section_numbers(store.tiles))
        whole = module.network(module.normalise(images), sections=sections)
        alone = module.network(module.normalise(images))
    # Seen in 56 runs: at most 2e-7 from the one, and mostly much further from the other.
    assert found.loss == pytest.approx(module.loss(whole, masks).total.item(), rel=2e-6)
    assert not torch.allclose(whole.final, alone.final)
    assert validate(module).loss == found.loss  # the second does not add to the first


def test_a_control_is_validated_window_by_window(make, store):
    module = make("ntrm-control", options={"width": 0.125})
    images = torch.stack([store.tiles[index].image for index in range(len(store))])
    masks = torch.stack([store.tiles[index].mask for index in range(len(store))])
    found = validate(module)
    with torch.no_grad():
        expected = module.loss(module.network(module.normalise(images)), masks).total
    assert found.loss == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"scope": "window"}, {"nodes": "tokens", "graph": "none"}], ids=str)
def test_a_training_with_sections_comes_to_an_end(train, options):
    result = train(arch="ntrm-section", options={**SMALL, **options}, changes=CHANGES)
    assert (result.steps, result.epochs) == (4, 4 / 3)  # two sections of six windows make six groups of two
    assert all(np.isfinite(row["val_loss"]) for row in read_log(result.folder / "log.csv"))
    assert load(result.model).config.options["dim"] == 8


def test_a_prior_starts_at_the_contacts_of_the_training_masks(train, data):
    frozen = {**CHANGES, "steps": 1, "learning_rate": 1e-9, "weight_decay": 0.0}
    result = train(arch="ntrm-section", options={**SMALL, "prior": True}, changes=frozen)
    masks = [np.asarray(Image.open(data / "Masks" / f"{name}.png")) for name in "ab"]
    counts = np.zeros((3, 3))
    for mask in masks:
        for one, two in ((mask[:, 1:], mask[:, :-1]), (mask[1:], mask[:-1])):
            for i, j in zip(one.ravel(), two.ravel(), strict=True):
                if i != j and 255 not in (i, j):
                    counts[i, j] += 1
                    counts[j, i] += 1
    shares = counts / (counts.sum(axis=1, keepdims=True) + 1e-6)
    found = load(result.model).relation.biases[0].prior.detach().numpy()
    np.testing.assert_allclose(found, np.broadcast_to(np.log1p(100 * shares) / np.log(101), found.shape), atol=1e-6)


def test_contacts_are_counted_by_section(store, data):
    once = class_contacts(store.tiles)
    assert np.array_equal(once, once.T)
    overlapping = TileDataset(open_dataset(data), size=64, overlap=32)
    assert np.array_equal(class_contacts(overlapping), once)


@pytest.mark.parametrize("sections", [2, None], ids=["whole sections", "a memory of sections"])
def test_interrupted_it_goes_on_exactly(train, tmp_path, sections):
    settings = {"arch": "ntrm-section", "options": SMALL, "changes": {**CHANGES, "steps": 6, "sections": sections}}
    train("never", **settings)

    def stop(text):
        if text.startswith("step 2 "):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(InterruptedTrainingError):
        train("run", say=stop, **settings)
    train("run", resume=True, **settings)
    models = [(tmp_path / out / "model" / "model.safetensors").read_bytes() for out in ("never", "run")]
    assert models[0] == models[1]


def test_sections_that_processes_cannot_share_are_refused(train, monkeypatch):
    for key, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="cannot be shared evenly"):
        train(changes={**CHANGES, "sections": 1})
