"""One training step and one validation step, and everything they need to be a pure function of (seed, step)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ntrm.core.devices import choose_layout, fast_gradients
from ntrm.core.errors import NtrmError
from ntrm.data.tensors import LoadedTiles
from ntrm.data.tiles import TILE_SIZE
from ntrm.models.base import SegmentationModel
from ntrm.training.batches import StepPlan, TileStore
from ntrm.training.engine import pl
from ntrm.training.losses import Loss, SegmentationLoss
from ntrm.training.recipe import Recipe
from ntrm.training.replay import Forward, recorded
from ntrm.training.schedule import Course, Rounds, learning_rate
from ntrm.training.validation import Scores, Tally
from ntrm.training.watch import LossWatch

VALIDATION_BATCH = 16
"""Windows at a time in validation, if the training's own batch is not larger: without gradients that fits. Of windows
larger than usual there are fewer, as many as have the same pixels."""

_DROP = 2  # what a seed is used for, beside order and augmentation


class Step(NamedTuple):
    """What the training step gets."""

    number: int
    """Steps before this one, over the whole training."""
    tiles: LoadedTiles


class RoundLoader:
    """The batches of the steps from ``start`` to ``stop``; remembers how long was waited for them."""

    def __init__(self, store: TileStore, plan: StepPlan, start: int, stop: int) -> None:
        self.store = store
        self.plan = plan
        self.steps = range(start, stop)
        self.waited = 0.0

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        with closing(self.store.batches([self.plan.indices(step) for step in self.steps])) as batches:  # type: ignore[type-var]
            for step in self.steps:
                begun = time.perf_counter()
                tiles = next(batches)
                self.waited += time.perf_counter() - begun
                yield Step(step, tiles)


class ValidationLoader:
    """The validation windows of one of ``world`` processes, always in the same batches."""

    def __init__(self, store: TileStore, batch: int, rank: int, world: int) -> None:
        self.store = store
        own = range(rank, len(store), world)
        self.batches = [list(own[start : start + batch]) for start in range(0, len(own), batch)]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[LoadedTiles]:
        return self.store.batches(self.batches)


class TrainingModule(pl.LightningModule):
    """A network, its loss, its optimiser, and where the training stands.

    The state of a training is what ``state`` returns; Lightning's own counters start anew in every process and
    decide nothing.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        network: SegmentationModel,
        recipe: Recipe,
        plan: StepPlan,
        *,
        training: TileStore,
        validation: TileStore,
        frequencies: Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.recipe = recipe
        self.plan = plan
        self.rounds = Rounds.of(recipe, plan.steps_per_epoch)
        self.loss = SegmentationLoss(
            network.config.classes,
            weighting=recipe.weighting,
            balance=recipe.balance,
            frequencies=frequencies,
            coarse=recipe.coarse,
            dice=recipe.dice,
        )
        self.augment = recipe.augmentation
        self.watch = LossWatch()
        self.tally = Tally(network.config.classes)
        self.steps_done = 0
        self.course = Course()
        self.scores: Scores | None = None
        self.loader: RoundLoader | None = None
        self._recorded: Forward | None = None
        self._stores = training, validation
        self._saved_rows: list[list[float]] = []
        for name, values in (("mean", network.config.mean), ("std", network.config.std)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)
        # What never gets a gradient would make several processes wait for it.
        for name in network.without_gradient():
            network.get_parameter(name).requires_grad_(False)
        if recipe.freeze_batch_norm:
            for layer in _batch_norms(network):
                layer.requires_grad_(False)

    # --- data ---

    def train_dataloader(self) -> RoundLoader:
        """The rest of the round that the training stands in."""
        start = min(self.steps_done, self.rounds.total - 1)  # at the very end one that is not used, but not empty
        self.loader = RoundLoader(self._stores[0], self.plan, start, self.rounds.end(start))
        return self.loader

    def val_dataloader(self) -> ValidationLoader:
        """The validation windows of this process."""
        plan = self.plan
        fits = min(VALIDATION_BATCH, max(1, VALIDATION_BATCH * TILE_SIZE**2 // self.recipe.window**2))
        return ValidationLoader(self._stores[1], max(fits, plan.batch // plan.world), plan.rank, plan.world)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Batches come on the device."""
        return batch

    def normalise(self, images: Tensor) -> Tensor:
        """Bytes (B, 3, H, W) → what the network expects."""
        x = (images.float() / 255 - self.mean) / self.std
        return x.contiguous(memory_format=choose_layout(x.device))

    # --- steps ---

    def on_train_epoch_start(self) -> None:
        """A round begins."""
        self.watch.begin(self.steps_done, self._saved_rows)
        self._saved_rows = []
        if self.recipe.freeze_batch_norm:
            for layer in _batch_norms(self.network):
                layer.eval()

    def training_step(self, batch: Step, batch_idx: int) -> Tensor:
        """Augment, normalise, predict, compare. Nothing here waits for the device."""
        plan, step = self.plan, batch.number
        images, masks = self.augment(*batch.tiles, plan.generator(step), rank=plan.rank, world=plan.world)
        x = self.normalise(images)
        forward = self._forward(x)
        seed_dropout(_drop_seed(plan, step), self.device)  # not sooner: recording draws as well
        loss: Loss = self.loss(forward(x), masks)
        self.watch.add(loss)
        return loss.total

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Gradients of a step."""
        with fast_gradients(self.network):
            super().backward(loss, *args, **kwargs)

    def _forward(self, x: Tensor) -> Forward:
        recipe = self.recipe
        if x.device.type != "cuda" or not recipe.replay or recipe.compile or self.plan.world > 1:
            return self.network
        if self._recorded is None:  # not sooner: only now is the network in the mode in which it trains
            self._recorded = recorded(self.network, x)
        return self._recorded

    def on_validation_epoch_start(self) -> None:
        """Forget the last validation."""
        self.tally = Tally(self.network.config.classes)
        if self.plan.world > 1:
            self._join_statistics()

    def validation_step(self, batch: LoadedTiles, batch_idx: int) -> None:
        """Predict and count."""
        self.tally.add(self.network(self.normalise(batch.images)), batch.masks)

    def on_validation_epoch_end(self) -> None:
        """Score what was counted."""
        self.scores = self.tally.scores(self.loss, self.network.config.schema)

    def _join_statistics(self) -> None:
        """Average the running statistics of batch norm over processes, each of which has seen its own windows."""
        for layer in _batch_norms(self.network):
            for statistic in ("running_mean", "running_var"):
                values = layer.get_buffer(statistic)
                dist.all_reduce(values)
                values.div_(self.plan.world)

    @torch.no_grad()
    def predict_masks(self, images: Tensor) -> Tensor:
        """Bytes (B, 3, H, W) → masks (B, H, W) uint8 on the CPU, with the running statistics of batch norm."""
        modes = {layer: layer.training for layer in self.network.modules()}
        self.network.eval()
        # Not through the compiled network: a few pictures do not pay for compiling it for their number.
        output = self.network.forward(self.normalise(images.to(self.mean.device)), initial=False)
        for layer, mode in modes.items():
            layer.training = mode
        return output.final.argmax(dim=1).to(torch.uint8).cpu()

    # --- optimiser ---

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam or AdamW over what is to be learned."""
        recipe = self.recipe
        learned = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        kind: type[torch.optim.Adam] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimiser]
        # The fused form unscales half-precision gradients by itself, which does not go together with clipping.
        fused = self.device.type == "cuda" and self.trainer.precision != "16-mixed"
        return kind(learned, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=fused)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the norm of all gradients: Lightning itself refuses to do so with a fused optimiser."""
        if gradient_clip_val is not None:
            nn.utils.clip_grad_norm_(self.network.parameters(), gradient_clip_val)

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the learning rate of this step."""
        for group in optimizer.param_groups:
            group["lr"] = self.learning_rate

    @property
    def learning_rate(self) -> float:
        """Learning rate of the next step."""
        return learning_rate(self.recipe, self.steps_done, self.rounds.total, self.course.reductions)

    @property
    def last_rate(self) -> float:
        """Learning rate of the step before."""
        return learning_rate(self.recipe, max(0, self.steps_done - 1), self.rounds.total, self.course.reductions)

    # --- where the training stands ---

    @property
    def validated(self) -> Scores:
        """Scores of the last validation."""
        if self.scores is None:
            raise NtrmError("nothing was validated yet", got=f"step {self.steps_done}")
        return self.scores

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.steps_done >= self.rounds.total or self.course.stops(self.recipe)

    def state(self, rows: list[list[float]]) -> dict[str, Any]:
        """All that decides how the training goes on; ``rows`` are the losses of a round that is not finished."""
        return {
            "step": self.steps_done,
            "network": self.network.state_dict(),
            "loss": self.loss.state_dict(),
            "optimiser": self.trainer.optimizers[0].state_dict(),
            "precision": self.trainer.precision_plugin.state_dict(),
            "course": self.course.as_dict(),
            "rows": rows,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where ``state`` was taken."""
        self.steps_done = int(state["step"])
        self.network.load_state_dict(state["network"])
        self.loss.load_state_dict(state["loss"])
        self.trainer.optimizers[0].load_state_dict(state["optimiser"])
        self.trainer.precision_plugin.load_state_dict(state["precision"])
        self.course = Course(**state["course"])
        self._saved_rows = [list(row) for row in state["rows"]]


def _batch_norms(network: nn.Module) -> list[nn.Module]:
    return [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d | nn.SyncBatchNorm)]


def seed_dropout(seed: int, device: torch.device) -> None:
    """Seed what layers draw from: on this device alone, which is cheap enough for every step."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def _drop_seed(plan: StepPlan, step: int) -> int:
    """What dropout draws from in a step: other windows of the batch, in another process, are dropped otherwise."""
    return int(np.random.SeedSequence([plan.seed, _DROP, step, plan.rank]).generate_state(1, np.uint64)[0] >> 1)
