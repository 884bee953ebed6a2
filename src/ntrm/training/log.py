"""What a training writes while it runs: log, checkpoints, best weights, pictures. One process writes for all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ntrm.core.csv_text import rows_text
from ntrm.core.io import write_text
from ntrm.core.labels import pixel_counts
from ntrm.data.tensors import TileDataset
from ntrm.training.checkpoint import CheckpointFolder, State, on_host
from ntrm.training.schedule import is_better
from ntrm.training.validation import Scores

if TYPE_CHECKING:
    from ntrm.training.loop import Training

LOG, CURVES, EXAMPLES, CHECKPOINTS = "log.csv", "curves.png", "examples.png", "checkpoints"

COLUMNS = (
    "step", "epoch", "train_loss", "train_final", "train_coarse", "val_loss", "val_final", "val_coarse", "val_iou",
    "val_dice", "val_accuracy", "learning_rate", "seconds", "windows_per_second", "waiting",
)  # fmt: skip
"""``seconds`` since the run began, interruptions left out; ``waiting``: fraction of training time spent on data."""

LogRow = dict[str, float | None]
Row = list[float]  # Total, final and coarse loss of a step; the last is NaN for a network without a coarse head


class Recorder:
    """Writes the files of a run while it trains; of several processes, only the first writes."""

    def __init__(
        self, run: Path, *, leads: bool, state: State | None, examples: TileDataset | None, say: Callable[[str], None]
    ) -> None:
        self.run = run
        self.leads = leads
        self.say = say
        self.folder = CheckpointFolder(run / CHECKPOINTS)
        self.rows: list[LogRow] = [] if state is None else state["log"]
        self.kept: dict[str, Any] | None = None if state is None else state["kept"]
        self._earlier_s = 0.0 if state is None else state["seconds"]
        self._tiles = examples
        self._started = time.monotonic()
        self._ended: float | None = None
        if state is not None and leads:  # the log may lack a row that the checkpoint has, or have one more
            write_log(run / LOG, self.rows)

    @property
    def seconds(self) -> float:
        """Time that the run has taken so far, in all its sessions."""
        return self._earlier_s + (time.monotonic() if self._ended is None else self._ended) - self._started

    def record(self, training: Training, scores: Scores, losses: Sequence[Row] = (), **measured: float) -> None:
        """Log a round and its validation, keep its weights if they are the best so far, write a checkpoint.

        Without ``losses`` it is the start of a run that is logged: its weights may stay the best.
        """
        if not self.leads:
            return
        trained: LogRow = {}
        if losses:
            # Summed exactly, so that it does not matter where a round was interrupted.
            total, final, coarse = (math.fsum(column) / len(losses) for column in zip(*losses, strict=True))
            trained = {"train_loss": total, "train_final": final}
            trained |= {"train_coarse": None if math.isnan(coarse) else coarse, **measured}
        new = asdict(scores)
        better = is_better(training.recipe.keep, new, None if self.kept is None else self.kept["scores"])
        if better:
            scored = {"step": training.steps_done, "epoch": training.epochs, **new}
            self.kept = {"weights": on_host(training.network.state_dict()), "scores": scored}
        validated = {f"val_{key}": value for key, value in new.items()}
        row: LogRow = {"step": training.steps_done, "epoch": training.epochs, **trained, **validated}
        row["seconds"] = self.seconds
        self.rows.append(row)
        if losses:
            self.checkpoint(training, [], wait=False)
        write_log(self.run / LOG, self.rows)
        self.say(_sentence(row, training.rounds.total, better))

    def checkpoint(self, training: Training, losses: list[Row], *, wait: bool = True) -> None:
        """Write the state of the training; ``losses`` are those of a round that is not finished."""
        if self.leads:
            own = {"kept": self.kept, "log": self.rows, "seconds": self.seconds}
            self.folder.write(training.steps_done, {**training.state(losses), **own})
            if wait:
                self.folder.wait()

    def draw(self, training: Training) -> None:
        """Draw the pictures of the run: curves, and examples of the validation part."""
        from ntrm.report.charts import curves_figure
        from ntrm.report.drawing import write_figure
        from ntrm.report.picture_grids import Example, examples_figure

        write_figure(self.run / CURVES, curves_figure, self.rows)
        if (tiles := self._tiles) is None:
            return
        chosen = [(tiles.sources[index].case.name, tiles[index]) for index in choose_examples(tiles)]
        masks = training.predict_masks(torch.stack([tile.image for _, tile in chosen])).numpy()
        examples = [
            Example(name, tile.image.permute(1, 2, 0).numpy(), tile.mask.numpy(), {"prediction": mask})
            for (name, tile), mask in zip(chosen, masks, strict=True)
        ]
        write_figure(self.run / EXAMPLES, examples_figure, examples, tiles.schema)

    def close(self) -> None:
        """Stop the clock; wait for the files."""
        self._ended = time.monotonic()
        self.folder.close()


def _sentence(row: LogRow, total: int, better: bool) -> str:
    text = {key: "undefined" if value is None else f"{value:.4f}" for key, value in row.items()}
    begin = f"step {row['step']:,.0f} of {total:,}"
    begin += f" (epoch {row['epoch']:.1f}): training loss {text['train_loss']}" if row["step"] else ", the start:"
    if row["val_loss"] is None:
        return begin
    scores = f"validation loss {text['val_loss']}, IoU {text['val_iou']}, Dice {text['val_dice']}"
    comma = "," if row["step"] else ""
    return f"{begin}{comma} {scores}, accuracy {text['val_accuracy']}" + (" · kept" if better else "")


def choose_examples(tiles: TileDataset) -> list[int]:
    """Six windows with as many tissues as possible, each from another section as long as there are others."""

    def tissues(index: int) -> int:
        _, section, window = tiles.sources[index]
        return int(np.count_nonzero(pixel_counts(section.mask[window.slices], len(tiles.schema))[:-1]))

    order = sorted(range(len(tiles)), key=tissues, reverse=True)
    best = {tiles.sources[index].case.name: index for index in reversed(order)}.values()  # of each section
    return sorted(order, key=lambda index: index not in best)[:6]


def write_log(path: Path, rows: Sequence[LogRow]) -> None:
    """Write the whole table: a run that is killed never leaves half a row."""
    write_text(path, rows_text([COLUMNS, *([row.get(key) for key in COLUMNS] for row in rows)]))
