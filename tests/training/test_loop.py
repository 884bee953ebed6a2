import math
import os
import signal

import pytest
import torch
from tests.training.small_data import small_recipe

from ntrm.data.layouts import open_dataset
from ntrm.data.tensors import TileDataset
from ntrm.models.registry import create
from ntrm.training.batches import StepPlan, WindowStore
from ntrm.training.loop import SIGNALS, InterruptedTrainingError, Interruption, Training
from ntrm.training.losses import SegmentationLoss
from ntrm.training.schedule import Course, is_better, learning_rate

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def store(data, tiny_network):
    return WindowStore(TileDataset(open_dataset(data), size=64), CPU, resident="yes", workers=0)


@pytest.fixture
def make(store, seed):
    """A training by changes to the recipe; every one starts with the same weights."""

    def make_training(**changes):
        recipe = small_recipe(**changes)
        torch.manual_seed(seed)
        return Training(create("tiny", store.tiles.schema), recipe, StepPlan(len(store), recipe.batch, seed), CPU)

    return make_training


@pytest.fixture
def tiles_of(store):
    """The windows of a step of a training."""
    return lambda training, step: next(store.batches([training.plan.windows(step)]))


def test_some_windows_of_a_step_show_another_one_where_they_had_glass(data_with_background, seed):
    windows = TileDataset(open_dataset(data_with_background), size=64)
    plan = StepPlan(len(windows), 8, seed, fill=0.5)
    training = Training(create("tiny", windows.schema), small_recipe(batch=8, augment="none"), plan, CPU)
    (tiles,) = WindowStore(windows, CPU, resident="yes", workers=0).batches([plan.windows(0)])
    images, masks = training._augmented(0, tiles)
    fillings = plan.fillings(0)
    assert len(tiles.images) == 8 + len(fillings)
    for place, index in enumerate(plan.indices(0)):
        own, other = windows[index], windows[fillings.get(place, 0)]
        glass = (own.mask == 2) & (place in fillings)
        assert torch.equal(masks[place], torch.where(glass, other.mask, own.mask))
        assert torch.equal(images[place], torch.where(glass, other.image, own.image))


def test_classes_without_a_background_have_nothing_to_fill(train):
    filled, plain = (train(f"{fill}", changes={"steps": 2, "fill": fill}) for fill in (0.5, 0))
    assert filled.best == plain.best


def test_the_loss_is_the_specified_one(make, tiles_of):
    training = make(augment="none", weighting="batch", coarse=0.7, balance=0.5, dice=2)
    training.network.eval()
    images, masks = tiles_of(training, 0)
    expected = SegmentationLoss(3, training.recipe)(training.network(training.normalise(images)), masks)
    assert torch.equal(training.step(0, tiles_of(training, 0)).total, expected.total)


def test_validation_scores_all_windows_and_changes_nothing(make, store):
    training = make(weighting="batch")
    training.network.body[1].eval()
    before = training.state([])
    first, second = (training.validate(store) for _ in range(2))
    assert first == second  # the second does not add to the first
    assert [layer.training for layer in training.network.body] == [True, False, True, True]
    assert training.loss.training
    assert all(torch.equal(value, before["network"][key]) for key, value in training.network.state_dict().items())
    images = torch.stack([store.tiles[index].image for index in range(len(store))])
    masks = torch.stack([store.tiles[index].mask for index in range(len(store))])
    output = training.network.eval()(training.normalise(images))
    assert first.loss == pytest.approx(training.loss(output, masks).total.item(), rel=1e-5)
    known = masks != 255
    right = (output.final.argmax(dim=1) == masks)[known].double().mean()
    assert first.accuracy == pytest.approx(float(right))


@pytest.mark.parametrize("frozen", [True, False])
def test_batch_norm_moves_unless_it_is_frozen(make, tiles_of, frozen):
    training = make(freeze_batch_norm=frozen)
    layer = training.network.body[1]
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    training.step(0, tiles_of(training, 0))
    assert layer.training is not frozen
    assert training.network.body[0].training
    assert {key for key, value in layer.state_dict().items() if torch.equal(value, before[key])} == (
        {*before} if frozen else set()
    )


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_remembered_and_stops_nothing(number):
    with Interruption() as interruption:
        assert not interruption.agreed(1)
        os.kill(os.getpid(), number)
        assert interruption.agreed(1)
    error = interruption.error(saved=17)
    assert error.exit_code == 130
    assert number.name in error.what
    assert "after step 17" in error.what
    assert "--resume" in error.hint


def test_a_second_signal_stops_at_once():
    with Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGINT)
        assert interruption.name == "SIGINT"
        with pytest.raises(InterruptedTrainingError, match="at once by a second SIGTERM"):
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")  # said once by newer releases
@pytest.mark.parametrize("resident", ["yes", "no"])
@pytest.mark.parametrize("arch", ["ntrm-paper", "mit-b0", "unet-resnet18"])
def test_no_step_waits_for_the_gpu(seed, arch, resident, data_with_background):
    """Batch, augmentation, network, loss, gradients and optimiser: torch raises where the host has to wait."""
    device = torch.device("cuda")
    recipe = small_recipe(batch=8, steps=40, precision="bfloat16", gradient_clip=1)
    if arch.startswith("mit"):
        pytest.importorskip("transformers")
    tiles = TileDataset(open_dataset(data_with_background), size=64)
    network = create(arch, tiles.schema, width=0.25)
    own = WindowStore(tiles, device, resident=resident, workers=0)
    training = Training(network, recipe, StepPlan(len(own), recipe.batch, seed, fill=0.35), device)
    try:
        for step, tiles in enumerate(own.batches([training.plan.windows(step) for step in range(40)])):
            training.step(step, tiles)
            # The first steps choose kernels and fill the caches of the allocators.
            torch.cuda.set_sync_debug_mode("error" if step >= 2 else "default")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(training.round_losses()) == 40


def test_warm_up_and_cosine_are_torchs_own():
    total, warm, lrs = 50, 10, torch.optim.lr_scheduler
    recipe = small_recipe(schedule="cosine", warmup=warm / total, learning_rate=0.1)
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    rise = lrs.LinearLR(optimiser, start_factor=1 / warm, total_iters=warm - 1)
    scheduler = lrs.SequentialLR(optimiser, [rise, lrs.CosineAnnealingLR(optimiser, total - warm)], [warm])
    for step in range(total):
        assert learning_rate(recipe, step, total) == pytest.approx(optimiser.param_groups[0]["lr"], rel=1e-9)
        optimiser.step()
        scheduler.step()


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
