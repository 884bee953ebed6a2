"""What a training writes while it runs: log, checkpoints, kept weights, pictures. One process does it for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ntrm.data.tensors import TileDataset
from ntrm.training.checkpoint import CheckpointFolder, State, on_host
from ntrm.training.log import EventFile, LogRow, Row, means, write_log
from ntrm.training.schedule import is_better
from ntrm.training.validation import Scores

if TYPE_CHECKING:
    from ntrm.training.loop import Training

PICTURES_EVERY_S = 300.0
"""Pictures are drawn anew at a better validation, but not more often than this; and at the end."""
EXAMPLES_SHOWN = 6

LOG, CURVES, EXAMPLES, CHECKPOINTS, EVENTS = "log.csv", "curves.png", "examples.png", "checkpoints", "tensorboard"


class Recorder:
    """Keeps the files of a run while it trains; of several processes, those that do not lead keep none."""

    def __init__(
        self,
        run: Path,
        *,
        leads: bool,
        state: State | None,
        examples: TileDataset | None,
        say: Callable[[str], None],
    ) -> None:
        self.run = run
        self.leads = leads
        self.say = say
        self.folder = CheckpointFolder(run / CHECKPOINTS)
        self.rows: list[dict[str, float | None]] = [] if state is None else state["log"]
        self.kept: dict[str, Any] | None = None if state is None else state["kept"]
        self._earlier_s = 0.0 if state is None else state["seconds"]
        self._tiles = examples
        self._events: EventFile | None = None
        self._started = self._pictures_at = time.monotonic()
        self._ended: float | None = None
        if state is not None and leads:  # the log may lack a row that the checkpoint has, or have one more
            write_log(run / LOG, self.rows)

    @property
    def seconds(self) -> float:
        """Time that the run has taken so far, in all its sessions."""
        return self._earlier_s + (time.monotonic() if self._ended is None else self._ended) - self._started

    def record_start(self, training: Training, scores: Scores) -> None:
        """What a run starts from may be the best it ever has; no checkpoint, which a new start would not need."""
        if not self.leads:
            return
        self.rows.append(self._row(training, scores))
        self._keep(training, scores)
        write_log(self.run / LOG, self.rows)
        self.say(_sentence(self.rows[0], training.rounds.total, True))

    def record(
        self, training: Training, scores: Scores, losses: list[Row], rate: float, speed: Mapping[str, float]
    ) -> None:
        """A round and its validation are over."""
        if not self.leads:
            return
        row = {**self._row(training, scores, losses, rate), **speed}
        self.rows.append(row)
        better = self._keep(training, scores)
        self.checkpoint(training, [], wait=False)
        write_log(self.run / LOG, self.rows)
        self._events = self._events or EventFile(self.run / EVENTS)
        self._events.write(training.steps_done, row)
        self.say(_sentence(row, training.rounds.total, better))
        if better and not training.finished and time.monotonic() - self._pictures_at > PICTURES_EVERY_S:
            self.draw(training)
            self._pictures_at = time.monotonic()

    def checkpoint(self, training: Training, losses: list[Row], *, wait: bool = True) -> None:
        """Write where the training stands; ``losses`` are those of a round that is not finished."""
        if self.leads:
            own = {"kept": self.kept, "log": self.rows, "seconds": self.seconds}
            self.folder.write(training.steps_done, {**training.state(losses), **own})
            if wait:
                self.folder.wait()

    def wait(self) -> None:
        """Until all files are on disk."""
        self.folder.wait()

    def draw(self, training: Training) -> None:
        """Draw the pictures of the run."""
        draw_curves(self.rows, self.run / CURVES)
        if self._tiles is not None:
            draw_examples(training.predict_masks, self._tiles, choose_examples(self._tiles), self.run / EXAMPLES)

    def close(self) -> None:
        """Stop the clock; wait for the files."""
        self._ended = time.monotonic()
        self.folder.close()

    def _row(
        self, training: Training, scores: Scores, losses: list[Row] | None = None, rate: float | None = None
    ) -> dict[str, float | None]:
        """What is known after a round, or before the first."""
        total, final, coarse = means(losses) if losses else (None, None, None)
        return {
            "step": training.steps_done,
            "epoch": training.epochs,
            "train_loss": total,
            "train_final": final,
            "train_coarse": coarse,
            **{f"val_{key}": value for key, value in scores.as_dict().items()},
            "learning_rate": rate,
            "seconds": self.seconds,
        }

    def _keep(self, training: Training, scores: Scores) -> bool:
        """Keep the weights if the recipe prefers them to those kept so far."""
        found = scores.as_dict()
        if not is_better(training.recipe.keep, found, None if self.kept is None else self.kept["scores"]):
            return False
        place = self.folder.keep(training.steps_done, on_host(training.network.state_dict()))
        self.kept = {**place, "scores": {"step": training.steps_done, "epoch": training.epochs, **found}}
        return True


def _sentence(row: dict[str, float | None], total: int, better: bool) -> str:
    found = {key: "undefined" if row[key] is None else f"{row[key]:.4f}" for key in row}
    trained = f" (epoch {row['epoch']:.1f}): training loss {found['train_loss']}," if row["step"] else ", the start:"
    return (
        f"step {row['step']:,.0f} of {total:,}{trained} "
        f"validation loss {found['val_loss']}, IoU {found['val_iou']}, Dice {found['val_dice']}, "
        f"accuracy {found['val_accuracy']}" + (" · kept" if better else "")
    )


# --- pictures ---


def choose_examples(tiles: TileDataset, count: int = EXAMPLES_SHOWN) -> list[int]:
    """Windows with as many tissues as possible, each from another section as long as there are others."""
    classes = len(tiles.schema)
    first: list[tuple[int, int]] = []
    best: dict[str, tuple[int, int]] = {}
    for index, (case, section, window) in enumerate(tiles.sources):
        known = np.bincount(np.asarray(section.mask[window.slices]).ravel(), minlength=classes)[:classes]
        found = (-int(np.count_nonzero(known)), index)
        best[case.name] = min(found, best.get(case.name, found))
        first.append(found)
    leading = sorted(best.values())[:count]
    rest = [found for found in sorted(first) if found not in leading]
    return [index for _, index in [*leading, *rest][:count]]


def draw_curves(rows: Sequence[LogRow], path: Path) -> None:
    """Write ``curves.png``."""
    from ntrm.report.charts import curves_figure
    from ntrm.report.drawing import write_figure

    write_figure(path, curves_figure, rows)


def draw_examples(predict: Callable[[Tensor], Tensor], tiles: TileDataset, indices: Sequence[int], path: Path) -> None:
    """Write ``examples.png``; ``predict`` takes bytes (B, 3, S, S) and returns masks (B, S, S)."""
    from ntrm.report.drawing import write_figure
    from ntrm.report.picture_grids import Example, examples_figure

    chosen = [tiles[index] for index in indices]
    masks = predict(torch.stack([tile.image for tile in chosen])).numpy()
    examples = [
        Example(
            tiles.sources[index].case.name, tile.image.permute(1, 2, 0).numpy(), tile.mask.numpy(), {"prediction": mask}
        )
        for index, tile, mask in zip(indices, chosen, masks, strict=True)
    ]
    write_figure(path, examples_figure, examples, tiles.schema)
