"""Learning rate, early stopping and model selection: all that validations decide in a training."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ntrm.training.recipe import Recipe


@dataclass(frozen=True)
class Rounds:
    """A training in rounds: the steps between two validations, each of which ends with a checkpoint."""

    total: int  # Steps of the whole training
    length: int  # Steps of a round; the last one may be shorter
    per_epoch: int  # Steps of a pass over the training windows

    @classmethod
    def of(cls, recipe: Recipe, per_epoch: int) -> Rounds:
        """The rounds of a recipe, where a pass over the data takes ``per_epoch`` steps."""
        total = recipe.steps if recipe.steps is not None else (recipe.epochs or 1) * per_epoch
        return cls(total, min(total, recipe.validate_every or per_epoch), per_epoch)

    def end(self, step: int) -> int:
        """Where the round ends that ``step`` (from 0) belongs to.

        >>> Rounds(total=10, length=4, per_epoch=5).end(4), Rounds(total=10, length=4, per_epoch=5).end(8)
        (8, 10)
        """
        return min(self.total, (step // self.length + 1) * self.length)


@dataclass(frozen=True)
class Course:
    """What the validations so far have decided. NaN is never better than another loss."""

    lowest: float = math.inf  # Lowest validation loss
    stale: int = 0  # Validations since then
    reductions: int = 0  # How often the learning rate was lowered
    patience: int = 0  # Validations since then or since the lowest loss, whichever is later

    def after(self, loss: float, recipe: Recipe) -> Course:
        """The course after one more validation."""
        if loss < self.lowest:
            return replace(self, lowest=loss, stale=0, patience=0)
        patience, reductions = self.patience + 1, self.reductions
        if recipe.schedule == "plateau" and patience >= recipe.plateau_patience:
            patience, reductions = 0, reductions + 1
        return replace(self, stale=self.stale + 1, patience=patience, reductions=reductions)

    def stops(self, recipe: Recipe) -> bool:
        """Whether the training ends early."""
        return recipe.early_stopping is not None and self.stale >= recipe.early_stopping


def learning_rate(recipe: Recipe, step: int, total: int, reductions: int = 0) -> float:
    """Learning rate of a step (from 0): a linear warm-up, then the schedule."""
    warm = math.ceil(recipe.warmup * total)
    if step < warm:
        return recipe.learning_rate * (step + 1) / warm
    if recipe.schedule == "cosine":
        return recipe.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))
    if recipe.schedule == "plateau":
        return recipe.learning_rate * recipe.plateau_factor**reductions
    return recipe.learning_rate


def is_better(keep: str, new: dict[str, Any], kept: dict[str, Any] | None) -> bool:
    """Whether the weights of a validation replace those kept so far: ``keep`` is ``loss``, ``iou`` or ``last``."""
    if kept is None or keep == "last":
        return True
    now, before = (math.nan if scores[keep] is None else float(scores[keep]) for scores in (new, kept))
    if math.isnan(now) or math.isnan(before):
        return not math.isnan(now)
    return now < before if keep == "loss" else now > before
