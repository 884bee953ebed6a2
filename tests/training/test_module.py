import numpy as np
import pytest
import torch
from tests.training.small_data import Tiny, small_recipe, write_small

from ntrm.core.errors import NtrmError
from ntrm.data.cache import TileCache
from ntrm.data.layouts import open_dataset
from ntrm.data.tensors import TileDataset
from ntrm.models.registry import ARCHITECTURES, create
from ntrm.training.batches import StepPlan, TileStore
from ntrm.training.losses import DatasetWeights
from ntrm.training.module import RoundLoader, Step, TrainingModule, ValidationLoader

CPU = torch.device("cpu")


@pytest.fixture
def store(tmp_path, random):
    dataset = open_dataset(write_small(tmp_path / "data", random))
    tiles = TileDataset(dataset, size=64, cache=TileCache(tmp_path / "cache"))
    return TileStore(tiles, CPU, resident="yes", workers=0)


@pytest.fixture
def make(store, seed, monkeypatch):
    """A module by changes to the recipe; every one starts with the same weights."""
    monkeypatch.setitem(ARCHITECTURES, "tiny", Tiny)

    def make_module(rank=0, world=1, **changes):
        recipe = small_recipe(**changes)
        torch.manual_seed(seed)
        network = create("tiny", store.tiles.schema)
        plan = StepPlan(len(store), recipe.batch, seed, rank, world)
        return TrainingModule(network, recipe, plan, training=store, validation=store, frequencies=[1, 1, 1])

    return make_module


def batch_of(module, step):
    return next(iter(RoundLoader(module._stores[0], module.plan, step, step + 1)))


# --- loaders ---


def test_a_round_brings_its_steps(store, seed):
    plan = StepPlan(len(store), 4, seed)
    loader = RoundLoader(store, plan, 3, 8)
    assert len(loader) == 5
    steps = list(loader)
    assert [step.number for step in steps] == [3, 4, 5, 6, 7]
    for step in steps:
        expected = torch.stack([store.tiles[index].image for index in plan.indices(step.number)])
        assert torch.equal(step.tiles.images, expected)
    assert loader.waited > 0


@pytest.mark.parametrize(("world", "batch"), [(1, 5), (2, 3), (3, 4), (5, 1)])
def test_validation_windows_are_shared_without_gap_or_repetition(store, world, batch):
    loaders = [ValidationLoader(store, batch, rank, world) for rank in range(world)]
    own = [index for loader in loaders for chunk in loader.batches for index in chunk]
    assert sorted(own) == list(range(len(store)))
    assert [len(loader) for loader in loaders] == [sum(1 for _ in loader) for loader in loaders]
    assert all(len(chunk) <= batch for loader in loaders for chunk in loader.batches)


@pytest.mark.parametrize(
    ("window", "batch", "expected"), [(64, 2, 16), (256, 2, 16), (512, 2, 4), (1024, 1, 1), (2048, 1, 1), (512, 8, 8)]
)
def test_large_windows_are_validated_a_few_at_a_time(make, window, batch, expected, monkeypatch):
    seen = []
    monkeypatch.setattr("ntrm.training.module.ValidationLoader", lambda _store, count, *_: seen.append(count))
    make(window=window, batch=batch).val_dataloader()
    assert seen == [expected]


def test_the_rest_of_a_round_after_an_interruption(make):
    module = make(steps=10, validate_every=4)
    found = []
    for done in (0, 3, 4, 9, 10):
        module.steps_done = done
        found.append((module.train_dataloader().steps.start, module.train_dataloader().steps.stop))
    assert found == [(0, 4), (3, 4), (4, 8), (9, 10), (9, 10)]


# --- steps ---


def test_images_are_normalised_as_the_config_says(make, random):
    module = make()
    images = torch.from_numpy(random.integers(0, 256, (2, 3, 5, 6), dtype=np.uint8))
    config = module.network.config
    expected = (images.numpy() / 255 - np.reshape(config.mean, (3, 1, 1))) / np.reshape(config.std, (3, 1, 1))
    np.testing.assert_allclose(module.normalise(images).numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_step_is_a_function_of_seed_and_step(make, random):
    module, other = make(), make()
    first = module.training_step(batch_of(module, 5), 0)
    torch.manual_seed(int(random.integers(1000)))  # whatever was drawn before does not matter
    torch.rand(7)
    other.training_step(batch_of(other, 2), 0)
    other.network.load_state_dict(module.network.state_dict())
    other.loss.load_state_dict(make().loss.state_dict())
    again = other.training_step(batch_of(other, 5), 0)
    assert torch.equal(first, again)


def test_steps_differ_in_dropout_even_for_the_same_windows(make):
    module = make(augment="none", weighting="batch")
    tiles = batch_of(module, 0).tiles
    losses = {module.training_step(Step(step, tiles), 0).item() for step in (1, 2, 2, 3)}
    assert len(losses) == 3


def test_processes_differ_in_dropout(make):
    module, other = make(rank=0, world=2, augment="none"), make(rank=1, world=2, augment="none")
    tiles = batch_of(module, 0).tiles
    assert module.training_step(Step(0, tiles), 0).item() != other.training_step(Step(0, tiles), 0).item()


def test_the_loss_is_the_specified_one(make):
    from ntrm.training.losses import SegmentationLoss

    module = make(augment="none", weighting="batch", coarse=0.7, balance=0.5, dice=2)
    module.network.eval()
    images, masks = batch_of(module, 0).tiles
    expected = SegmentationLoss(3, coarse=0.7, balance=0.5, dice=2)(module.network(module.normalise(images)), masks)
    assert torch.equal(module.training_step(Step(0, batch_of(module, 0).tiles), 0), expected.total)


def test_validation_scores_what_was_counted(make, store):
    module = make(weighting="batch")
    module.eval()
    with pytest.raises(NtrmError, match="nothing was validated"):
        module.validated  # noqa: B018
    for _ in range(2):  # the second does not add to the first
        module.on_validation_epoch_start()
        for index, tiles in enumerate(module.val_dataloader()):
            module.validation_step(tiles, index)
        module.on_validation_epoch_end()
    images = torch.stack([store.tiles[index].image for index in range(len(store))])
    masks = torch.stack([store.tiles[index].mask for index in range(len(store))])
    output = module.network(module.normalise(images))
    assert module.validated.loss == pytest.approx(module.loss(output, masks).total.item(), rel=1e-5)
    known = masks != 255
    right = (output.final.argmax(dim=1) == masks)[known].double().mean()
    assert module.validated.accuracy == pytest.approx(float(right))


def test_predictions_leave_the_modes_of_layers_as_they_were(make, random):
    module = make()
    module.train()
    module.network.body[1].eval()
    images = torch.from_numpy(random.integers(0, 256, (2, 3, 32, 32), dtype=np.uint8))
    before = {key: value.clone() for key, value in module.network.state_dict().items()}
    masks = module.predict_masks(images)
    assert [layer.training for layer in module.network.body] == [True, False, True, True]
    assert all(torch.equal(value, before[key]) for key, value in module.network.state_dict().items())
    module.network.eval()
    assert torch.equal(masks, module.network(module.normalise(images)).final.argmax(dim=1).to(torch.uint8))


# --- what is learned ---


def test_parameters_without_gradient_are_not_learned(make):
    module = make()
    assert not module.network.unused.requires_grad
    assert all(p.requires_grad for name, p in module.network.named_parameters() if name != "unused")


def test_every_other_parameter_gets_a_gradient(make):
    module = make()
    module.training_step(batch_of(module, 0), 0).backward()
    without = [name for name, p in module.network.named_parameters() if p.grad is None]
    assert without == ["unused"]


def test_frozen_batch_norm_does_not_move(make):
    module = make(freeze_batch_norm=True)
    module.train()
    module.on_train_epoch_start()
    layer = module.network.body[1]
    before = [value.clone() for value in layer.state_dict().values()]
    module.training_step(batch_of(module, 0), 0).backward()
    assert not layer.training
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    assert all(torch.equal(one, two) for one, two in zip(before, layer.state_dict().values(), strict=True))
    assert module.network.body[0].training


def test_free_batch_norm_moves(make):
    module = make()
    module.train()
    module.on_train_epoch_start()
    before = module.network.body[1].running_mean.clone()
    module.training_step(batch_of(module, 0), 0)
    assert not torch.equal(before, module.network.body[1].running_mean)


def test_the_rate_is_that_of_the_step(make):
    module = make(steps=100, warmup=0.1, learning_rate=0.01, schedule="constant")
    assert module.learning_rate == pytest.approx(0.001)
    module.steps_done = 5
    assert module.learning_rate == pytest.approx(0.006)
    assert module.last_rate == pytest.approx(0.005)
    optimiser = torch.optim.SGD(module.network.parameters(), lr=7)
    module.on_before_optimizer_step(optimiser)
    assert optimiser.param_groups[0]["lr"] == module.learning_rate


def test_finished_by_steps_or_by_early_stopping(make):
    module = make(steps=10, early_stopping=1)
    assert not module.finished
    module.steps_done = 10
    assert module.finished
    module.steps_done = 4
    module.course = module.course.after(1.0, module.recipe).after(2.0, module.recipe)
    assert module.finished


# --- on a GPU ---

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@gpu
@pytest.mark.parametrize("resident", ["yes", "no"])
@pytest.mark.parametrize("arch", ["ntrm-paper", "mit-b0", "unet-resnet18"])
def test_no_step_waits_for_the_gpu(store, seed, arch, resident):
    """Batch, augmentation, network, loss, gradients and optimiser: torch raises where the host has to wait."""
    device = torch.device("cuda")
    recipe = small_recipe(batch=8, steps=40)
    if arch.startswith("mit"):
        pytest.importorskip("transformers")
    network = create(arch, store.tiles.schema, width=0.25).to(device, memory_format=torch.channels_last)
    own = TileStore(store.tiles, device, resident=resident, workers=0)
    plan = StepPlan(len(own), recipe.batch, seed)
    module = TrainingModule(network, recipe, plan, training=own, validation=own).to(device).train()
    learned = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(learned, fused=True)
    module.watch.begin(0)
    batches = iter(RoundLoader(own, plan, 0, 40))
    try:
        for step in range(40):
            # The first steps choose kernels and fill the caches of the allocators.
            torch.cuda.set_sync_debug_mode("error" if step >= 3 else "default")
            batch = next(batches)
            with torch.autocast("cuda", torch.bfloat16):
                loss = module.training_step(batch, step)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(learned, 1.0)
            module.on_before_optimizer_step(optimiser)
            optimiser.step()
            optimiser.zero_grad()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(module.watch.collect()) == 40


def test_the_loss_is_the_recipes(make):
    loss = make(balance=0.25, dice=0.5, coarse=0.75, weighting="dataset").loss
    assert (loss.balance, loss.dice, loss.coarse) == (0.25, 0.5, 0.75)
    assert isinstance(loss.weights, DatasetWeights)
