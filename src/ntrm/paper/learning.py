"""How the networks learned: mean IoU on the windows of the validation part, from the logs of their trainings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.wording import signed
from ntrm.paper.outcomes import PlanResults, Score
from ntrm.paper.plan import Variant
from ntrm.paper.result_tables import Cell, ResultTable
from ntrm.training.log import LOG

DIGITS = 3
QUARTERS = {"a quarter": 0.25, "half": 0.5, "three quarters": 0.75, "all": 1.0}  # Parts of a training
NOTE = (
    "Mean IoU on the windows of the validation part, mean ± standard deviation over training seeds, at the last "
    "validation within each part of a training. The last column is what the last validation gained over the best one "
    "before, in the seed that gained most. A learning rate that ends at zero makes every training flat at its end: a "
    "small gain does not say that a longer training would bring no more."
)


class Curve(NamedTuple):
    """A score over the steps of one training."""

    steps: NDArray[np.float64]
    scores: NDArray[np.float64]

    def at(self, fraction: float) -> float | None:
        """The score of the last validation within a part of the training; None before the first."""
        within = self.steps <= fraction * self.steps[-1]
        return float(self.scores[within][-1]) if within.any() else None


def curves_of(results: PlanResults, variant: Variant) -> list[Curve]:
    """One a seed; none of a training that validated nothing, or whose log is gone."""
    curves = []
    for outcome in results.done(variant):
        if (outcome.folder / LOG).is_file():
            scores = outcome.column(LOG, "step", "val_iou", "delete it: learning curves do without")
            known = [(float(step), score) for step, score in scores.items() if np.isfinite(score)]
            curves += [Curve(*np.array(known).T)] if known else []
    return curves


def learning_table(results: PlanResults) -> ResultTable | None:
    """The compared systems, and those from scratch, quarter by quarter; None without any curve."""
    rows: list[tuple[Cell, ...]] = []
    for variant in dict.fromkeys([*results.plan.compared, *results.plan.scratch]):
        if curves := curves_of(results, variant):
            scores = [[curve.at(fraction) for curve in curves] for fraction in QUARTERS.values()]
            known = [Score(tuple(each for each in row if each is not None), digits=DIGITS) for row in scores]
            # Negative where the last validation lost.
            gains = [curve.scores[-1] - curve.scores[:-1].max() for curve in curves if len(curve.scores) > 1]
            gain = signed(float(max(gains)), DIGITS) if gains else None
            steps = int(max(curve.steps[-1] for curve in curves))
            rows.append((variant.title, variant.init, steps, *(each if each else None for each in known), gain))
    header = ("system", "encoder init", "steps", *QUARTERS, "last gain, at most")
    return ResultTable("learning", "Learning curves", header, tuple(rows), NOTE) if rows else None
