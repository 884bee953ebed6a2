"""What happens around the steps: logs, checkpoints, kept weights, stopping. One process does it for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ntrm.core.progress import Progress
from ntrm.data.tensors import TileDataset
from ntrm.training.checkpoints import CheckpointFolder, State, on_host
from ntrm.training.engine import pl
from ntrm.training.interruption import Interruption
from ntrm.training.log import EventFile, write_log
from ntrm.training.module import Step, TrainingModule
from ntrm.training.pictures import choose_examples, draw_curves, draw_examples
from ntrm.training.schedule import is_better
from ntrm.training.ticking import Ticker
from ntrm.training.watch import means

PICTURES_EVERY_S = 300.0
"""Pictures are drawn anew at a better validation, but not more often than this; and at the end."""

LOG, CURVES, EXAMPLES, CHECKPOINTS, EVENTS = "log.csv", "curves.png", "examples.png", "checkpoints", "tensorboard"


class RunKeeper(pl.Callback):
    """Keeps a run's files, and stops it when it is done or asked to."""

    def __init__(
        self,
        run: Path,
        module: TrainingModule,
        interruption: Interruption,
        *,
        leads: bool,
        resumed: State | None,
        examples: TileDataset | None,
        progress: Progress,
        say: Callable[[str], None],
    ) -> None:
        self.run = run
        self.module = module
        self.interruption = interruption
        self.leads = leads
        self.resumed = resumed
        self.progress = progress
        self.say = say
        self.rows: list[dict[str, float | None]] = []
        self.kept: dict[str, Any] | None = None
        self.folder = CheckpointFolder(run / CHECKPOINTS)
        self._tiles = examples
        self._ticker: Ticker | None = None
        self._events: EventFile | None = None
        self._earlier_s = 0.0
        self._started = self._round_started = time.monotonic()
        self._ended = 0.0
        self._pictures_at = time.monotonic()
        self._round: dict[str, float] = {}
        self._losses: list[list[float]] = []

    # --- begin ---

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Go on where the leading process found the run, in every process."""
        self.interruption.connect()
        state = trainer.strategy.broadcast(self.resumed)
        self.resumed = None
        if state is not None:
            self.module.restore(state)
            self.rows, self.kept, self._earlier_s = state["log"], state["kept"], state["seconds"]
            trainer.num_sanity_val_steps = 0  # the start was looked at when the run began
            self.say(f"going on after step {self.module.steps_done:,}")
            if self.leads:  # the log may lack a row that the checkpoint has, or have one more
                write_log(self.run / LOG, self.rows)
        trainer.should_stop = self.module.finished
        if self.leads and not self.module.finished:
            self._ticker = Ticker(self.progress, self.module.rounds.total - self.module.steps_done, "training steps")
            self._events = EventFile(self.run / EVENTS)

    def on_sanity_check_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The start of a run is about to be validated."""
        self.interruption.listen()
        self._started = time.monotonic()

    def on_sanity_check_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """What a run starts from may be the best it ever has; no checkpoint, which a new start would not need."""
        self._earlier_s, self._started = self.seconds, time.monotonic()
        if self.leads:
            self.rows.append(self._row())
            self._keep()
            write_log(self.run / LOG, self.rows)
            self.say(_sentence(self.rows[0], self.module.rounds.total, True))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Take the signals back, which Lightning has just taken."""
        self.interruption.listen()
        self._started = time.monotonic()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A round begins."""
        self._round_started = time.monotonic()

    # --- steps ---

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Step, batch_idx: int
    ) -> None:
        """One more step is done; stop here if that was asked for and more of the round is to come."""
        step = self.module.steps_done = batch.number + 1
        if self._ticker is not None:
            self._ticker.tick()
        if step == self.module.rounds.end(batch.number) or not self.interruption.agreed(step):
            return
        losses = self._joined(trainer)
        if self.leads:
            self._checkpoint(losses)
            self.folder.wait()
        raise self.interruption.error(step)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The steps of the round are over: wait for them, and take the time."""
        if trainer.sanity_checking:
            return
        self._losses = self._joined(trainer)
        seconds = max(time.monotonic() - self._round_started, 1e-9)
        loader = self.module.loader
        steps, waited = (0, 0.0) if loader is None else (len(loader), loader.waited)
        self._round = {"windows_per_second": steps * self.module.recipe.batch / seconds, "waiting": waited / seconds}

    def _joined(self, trainer: pl.Trainer) -> list[list[float]]:
        """Losses of the steps of this round, each the mean over processes."""
        module = self.module
        rows = module.watch.collect()
        if module.plan.world == 1:
            return rows
        joined: list[list[float]] = trainer.strategy.reduce(
            torch.tensor(rows, dtype=torch.float64, device=module.device), reduce_op="mean"
        ).tolist()
        return joined

    # --- rounds ---

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A round and its validation are over."""
        module, rate = self.module, self.module.last_rate
        module.course = module.course.after(module.validated.loss, module.recipe)
        trainer.should_stop = module.finished
        if self.leads:
            self._record(rate)
        if self.interruption.agreed(0) and not module.finished:
            self.folder.wait()
            raise self.interruption.error(module.steps_done)

    def _record(self, rate: float) -> None:
        module = self.module
        row = self._row(rate)
        self.rows.append(row)
        better = self._keep()
        self._checkpoint([])
        write_log(self.run / LOG, self.rows)
        if self._events is not None:
            self._events.write(module.steps_done, row)
        self.say(_sentence(row, module.rounds.total, better))
        if better and not module.finished and time.monotonic() - self._pictures_at > PICTURES_EVERY_S:
            self.draw()
            self._pictures_at = time.monotonic()

    def _row(self, rate: float | None = None) -> dict[str, float | None]:
        """What is known after a round, or before the first."""
        module = self.module
        total, final, initial = means(self._losses) if self._losses else (None, None, None)
        return {
            "step": module.steps_done,
            "epoch": module.steps_done / module.rounds.per_epoch,
            "train_loss": total,
            "train_final": final,
            "train_initial": initial,
            **{f"val_{key}": value for key, value in module.validated.as_dict().items()},
            "learning_rate": rate,
            "seconds": self.seconds,
            **self._round,
        }

    def _keep(self) -> bool:
        module = self.module
        found = module.validated.as_dict()
        if not is_better(module.recipe.keep, found, None if self.kept is None else self.kept["scores"]):
            return False
        place = self.folder.keep(module.steps_done, on_host(module.network.state_dict()))
        epoch = module.steps_done / module.rounds.per_epoch
        self.kept = {**place, "scores": {"step": module.steps_done, "epoch": epoch, **found}}
        return True

    def _checkpoint(self, losses: list[list[float]]) -> None:
        module = self.module
        own = {"kept": self.kept, "log": self.rows, "seconds": self.seconds}
        self.folder.write(module.steps_done, {**module.state(losses), **own})

    @property
    def seconds(self) -> float:
        """Time that the run has taken so far, in all its sessions."""
        return self._earlier_s + (self._ended or time.monotonic()) - self._started

    # --- end ---

    def draw(self) -> None:
        """Draw the pictures of the run."""
        draw_curves(self.rows, self.run / CURVES)
        if self._tiles is not None:
            indices = choose_examples(self._tiles)
            draw_examples(self.module.predict_masks, self._tiles, indices, self.run / EXAMPLES)

    def close(self) -> None:
        """End the bar; wait for the files."""
        self._ended = time.monotonic()
        if self._ticker is not None:
            self._ticker.close()
        self.folder.close()


def _sentence(row: dict[str, float | None], total: int, better: bool) -> str:
    found = {key: "undefined" if row[key] is None else f"{row[key]:.4f}" for key in row}
    trained = f" (epoch {row['epoch']:.1f}): training loss {found['train_loss']}," if row["step"] else ", the start:"
    return (
        f"step {row['step']:,.0f} of {total:,}{trained} "
        f"validation loss {found['val_loss']}, IoU {found['val_iou']}, Dice {found['val_dice']}, "
        f"accuracy {found['val_accuracy']}" + (" · kept" if better else "")
    )
