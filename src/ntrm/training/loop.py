"""The training loop: one step, one validation, and the rounds of steps that end with a validation.

A step is a pure function of the seed and its number, so that a training that was stopped resumes exactly. After SIGTERM
or Ctrl-C the training stops after the current step, where all processes agree.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from types import FrameType, TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ntrm.core.devices import choose_layout, keep_freed_memory
from ntrm.core.errors import NtrmError
from ntrm.data.augment import Filling
from ntrm.data.tensors import LoadedTiles
from ntrm.models.base import SegmentationModel, evaluating
from ntrm.training.batches import StepPlan, WindowStore, validation_batches
from ntrm.training.device import Forward, autocast, recorded, training_precision
from ntrm.training.distributed import share_gradients, summed, world_size
from ntrm.training.log import Recorder, Row
from ntrm.training.losses import Loss, SegmentationLoss
from ntrm.training.recipe import Recipe
from ntrm.training.schedule import Course, Rounds, learning_rate
from ntrm.training.validation import ScoreAccumulator, Scores

SIGNALS = (signal.SIGINT, signal.SIGTERM)

AGREE_EVERY = 5  # Steps after which several processes ask each other whether to stop: seldom enough to cost nothing


class Training:
    """A network, its loss, its optimiser and the progress of the training: what a checkpoint holds."""

    def __init__(self, network: SegmentationModel, recipe: Recipe, plan: StepPlan, device: torch.device) -> None:
        keep_freed_memory(device)
        self.network = network.train()
        self.recipe = recipe
        self.plan = plan
        self.device = device
        self.precision = training_precision(recipe, device)
        self.rounds = Rounds.of(recipe, plan.steps_per_epoch)
        self.augment = recipe.augmentation
        self.mean, self.std = (
            torch.tensor(values, device=device).view(1, 3, 1, 1) for values in (network.config.mean, network.config.std)
        )
        self.loss = SegmentationLoss(network.config.classes, recipe).to(device)
        self.network.to(device, memory_format=choose_layout(device))  # type: ignore[call-overload]
        # Several processes would wait for the gradient of a parameter that never gets one.
        for name in network.without_gradient():
            network.get_parameter(name).requires_grad_(False)
        if recipe.freeze_batch_norm:
            for layer in _batch_norms(network):
                layer.requires_grad_(False).eval()
        elif world_size() > 1 and device.type == "cuda":
            # One batch norm over the joined batch, so that the result does not depend on how many GPUs share it.
            nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        if recipe.compile:
            network.compile()
        learned = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        kind: type[torch.optim.Adam] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimiser]
        # The fused form unscales half-precision gradients by itself, which does not work with clipping.
        fused = device.type == "cuda" and self.precision != torch.float16
        self.optimiser = kind(learned, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=fused)
        self.scaler = torch.amp.GradScaler(enabled=self.precision == torch.float16)
        self._stateful: dict[str, Any] = {"network": network, "loss": self.loss}
        self._stateful |= {"optimiser": self.optimiser, "precision": self.scaler}
        self._forward: Forward = share_gradients(network, device)
        self._replay = device.type == "cuda" and recipe.replay and not recipe.compile and plan.world == 1
        self.steps_done = 0
        self.course = Course()
        self.rows: list[Row] = []
        """Losses of the steps of this round, as far as they were read."""
        self._fresh: list[Tensor] = []  # they stay on the device, so that no step waits

    # --- a step ---

    def step(self, number: int, tiles: LoadedTiles) -> Loss:
        """Augment, normalise, predict, compute the loss, update. Nothing here waits for the device."""
        plan = self.plan
        with autocast(self.precision, self.device):
            images, masks = self._augmented(number, tiles)
            x = self.normalise(images)
            if self._replay:  # on one GPU the network is recorded at its first batch
                self._forward, self._replay = recorded(self.network, x), False
            torch.manual_seed(plan.dropout_seed(number))  # not sooner: recording draws random numbers, too
            loss: Loss = self.loss(self._forward(x), masks)
        self.optimiser.zero_grad()
        self.scaler.scale(loss.total).backward()  # type: ignore[no-untyped-call]
        if self.recipe.gradient_clip is not None:
            self.scaler.unscale_(self.optimiser)
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.gradient_clip)
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(number)
        self.scaler.step(self.optimiser)
        self.scaler.update()
        coarse = torch.full_like(loss.final, math.nan) if loss.coarse is None else loss.coarse
        self._fresh.append(torch.stack([loss.total, loss.final, coarse]).detach())
        self.steps_done = number + 1
        return loss

    def _augmented(self, number: int, tiles: LoadedTiles) -> tuple[Tensor, Tensor]:
        """The windows of a step; those behind the plan's own take the place of glass in some of them."""
        plan, glass = self.plan, self.network.config.schema.background_index
        own, share = plan.batch // plan.world, {"rank": plan.rank, "world": plan.world}
        filling = None
        if plan.fill and glass is not None:
            places = torch.tensor([*plan.fillings(number)], dtype=torch.int64)
            filling = Filling(places, tiles.images[own:], tiles.masks[own:], glass)
        images, masks = tiles.images[:own], tiles.masks[:own]
        return self.augment(images, masks, plan.generator(number), filling=filling, **share)

    def normalise(self, images: Tensor) -> Tensor:
        """Bytes (B, 3, H, W) → what the network expects."""
        x = (images.float() / 255 - self.mean) / self.std
        return x.contiguous(memory_format=choose_layout(x.device))

    def rate(self, step: int) -> float:
        """Learning rate of a step."""
        return learning_rate(self.recipe, step, self.rounds.total, self.course.reductions)

    # --- a validation ---

    @torch.no_grad()
    def validate(self, windows: WindowStore) -> Scores:
        """Scores of the current network, over the windows of all processes."""
        config = self.network.config
        scores = ScoreAccumulator(config.classes)
        with evaluating(self.network, self.loss):
            for images, masks in windows.batches(validation_batches(len(windows), self.recipe.window, self.plan)):
                with autocast(self.precision, self.device):
                    scores.update(self.network(self.normalise(images)), masks)
            return scores.compute(self.loss, config.schema)

    def join_statistics(self) -> None:
        """Average the running statistics of batch norm over processes, each of which has seen its own windows."""
        for layer in _batch_norms(self.network) if world_size() > 1 else []:
            for statistic in ("running_mean", "running_var"):
                values = layer.get_buffer(statistic)
                dist.all_reduce(values)
                values.div_(self.plan.world)

    @torch.no_grad()
    def predict_masks(self, images: Tensor) -> Tensor:
        """Bytes (B, 3, H, W) → masks (B, H, W) uint8 on the CPU, with the running statistics of batch norm."""
        with evaluating(self.network):
            # Not through the compiled network: a few pictures do not pay for compiling it for their number.
            output = self.network.forward(self.normalise(images.to(self.device)), coarse=False)
        return output.final.argmax(dim=1).to(torch.uint8).cpu()

    # --- progress of the training ---

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.steps_done >= self.rounds.total or self.course.stops(self.recipe)

    @property
    def epochs(self) -> float:
        """Passes over the training windows so far."""
        return self.steps_done / self.rounds.per_epoch

    def round_losses(self) -> list[Row]:
        """Losses of the steps of this round, each the mean over processes; waits for the device."""
        fresh: list[Row] = torch.stack(self._fresh).tolist() if self._fresh else []
        self._fresh = []
        for step, (total, final, coarse) in enumerate(fresh, start=self.steps_done - len(fresh) + 1):
            if not math.isfinite(total):
                raise NtrmError(
                    f"the loss is not a number at step {step}",
                    got=f"total {total}, final {final}" + ("" if math.isnan(coarse) else f", coarse {coarse}"),
                    expected="a finite number, as at every step before",
                    hint="train again in a new folder with a lower learning_rate, gradient_clip=1 or precision=float32",
                )
        self.rows += fresh
        if world_size() == 1:
            return self.rows
        rows = torch.tensor(self.rows, dtype=torch.float64, device=self.device)
        mean: list[Row] = (summed(rows) / world_size()).tolist()
        return mean

    def state(self, rows: list[Row]) -> dict[str, Any]:
        """All that decides how the training continues; ``rows`` are the losses of a round that is not finished."""
        states = {name: component.state_dict() for name, component in self._stateful.items()}
        return {"step": self.steps_done, **states, "course": asdict(self.course), "rows": rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue where ``state`` was taken."""
        self.steps_done = int(state["step"])
        for name, component in self._stateful.items():
            if state[name]:  # that of a scaler is empty where the precision needed none
                component.load_state_dict(state[name])
        self.course = Course(**state["course"])
        self.rows = [list(row) for row in state["rows"]]


class InterruptedTrainingError(NtrmError):
    """A training was asked to stop and did; nothing is wrong."""

    exit_code = 130


class Interruption:
    """Remembers that a signal came. A second signal stops at once; the last checkpoint remains."""

    def __init__(self) -> None:
        self.name = ""
        """Name of the signal that came; empty before."""
        self._before: dict[signal.Signals, Any] = {}
        self._group: dist.ProcessGroup | None = None

    def __enter__(self) -> Self:
        # Signals come to the main thread only; a training in another thread is stopped by whoever runs it.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def connect(self) -> None:
        """Let several processes agree through the host, so that no device is waited for."""
        if world_size() > 1:
            self._group = dist.new_group(backend="gloo")

    def agreed(self, step: int) -> bool:
        """Whether to stop after ``step`` steps: the same answer in every process."""
        if world_size() == 1:
            return bool(self.name)
        if step % AGREE_EVERY:
            return False
        asked = torch.tensor(int(bool(self.name)))
        dist.all_reduce(asked, op=dist.ReduceOp.MAX, group=self._group)
        return bool(asked)

    def error(self, saved: int) -> InterruptedTrainingError:
        """What to raise, where a checkpoint of ``saved`` steps is on disk."""
        what = f"stopped by {self.name or 'another process'}; a checkpoint after step {saved} is written"
        return InterruptedTrainingError(what, hint="the same command with --resume continues")

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.name:
            raise InterruptedTrainingError(
                f"stopped at once by a second {signal.Signals(number).name}; the last checkpoint stands",
                hint="the same command with --resume continues",
            )
        self.name = signal.Signals(number).name


def run_rounds(
    training: Training,
    windows: WindowStore,
    validation: WindowStore | None,
    recorder: Recorder,
    interruption: Interruption,
) -> Iterator[int]:
    """Train to the end, round by round: steps, a validation where there is something to validate on, a checkpoint.

    Yields the number of steps done after each of them.
    """
    while not training.finished:
        begun, end, waited = time.monotonic(), training.rounds.end(training.steps_done), 0.0
        steps = range(training.steps_done, end)
        with closing(windows.batches([training.plan.windows(step) for step in steps])) as batches:
            for step in steps:
                asked = time.monotonic()
                tiles = next(batches)
                waited += time.monotonic() - asked
                training.step(step, tiles)
                yield step + 1
                if step + 1 < end and interruption.agreed(step + 1):
                    training.join_statistics()
                    recorder.checkpoint(training, training.round_losses())
                    raise interruption.error(step + 1)
        losses = training.round_losses()
        seconds = max(time.monotonic() - begun, 1e-9)
        speed = {"windows_per_second": len(steps) * training.recipe.batch / seconds, "waiting": waited / seconds}
        rate = training.rate(end - 1)  # before the validation may lower it
        training.join_statistics()
        scores = Scores() if validation is None else training.validate(validation)
        if scores.loss is not None:
            training.course = training.course.after(scores.loss, training.recipe)
        training.rows = []
        recorder.record(training, scores, losses, learning_rate=rate, **speed)
        if not training.finished and interruption.agreed(0):
            recorder.folder.wait()
            raise interruption.error(end)


def _batch_norms(network: nn.Module) -> list[nn.Module]:
    return [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d | nn.SyncBatchNorm)]
