"""How the networks learned: mean IoU on the windows of the validation part, from the logs of their trainings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.wording import signed
from ntrm.paper.outcomes import JobOutcome, PlanResults, Score
from ntrm.paper.plan import Variant
from ntrm.paper.result_tables import Cell, ResultTable

DIGITS = 3
QUARTERS = {"a quarter": 0.25, "half": 0.5, "three quarters": 0.75, "all": 1.0}
"""Parts of a training, with their fractions."""
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

    @property
    def last_gain(self) -> float | None:
        """What the last validation gained over the best before, negative where it lost; None for a single one."""
        return float(self.scores[-1] - self.scores[:-1].max()) if len(self.scores) > 1 else None


def curve_of(outcome: JobOutcome) -> Curve | None:
    """None where the training validated nothing, or its log is gone."""
    rows = [(row.get("step"), row.get("val_iou")) for row in outcome.log]
    known = np.array([row for row in rows if None not in row], dtype=np.float64).reshape(-1, 2)
    known = known[np.isfinite(known).all(axis=1)]
    return Curve(known[:, 0], known[:, 1]) if len(known) else None


def curves_of(results: PlanResults, variant: Variant) -> list[Curve]:
    """One a seed, where there is one."""
    return [curve for outcome in results.done(variant) if (curve := curve_of(outcome)) is not None]


def learning_table(results: PlanResults) -> ResultTable | None:
    """The compared systems, and those from scratch, quarter by quarter; None without any curve."""
    rows = tuple(_rows(results))
    header = ("system", "encoder init", "steps", *QUARTERS, "last gain, at most")
    return ResultTable("learning", "Learning curves", header, rows, NOTE) if rows else None


def _rows(results: PlanResults) -> Iterator[tuple[Cell, ...]]:
    for variant in dict.fromkeys([*results.plan.compared, *results.plan.scratch]):
        curves = curves_of(results, variant)
        if curves:
            scores = [[curve.at(fraction) for curve in curves] for fraction in QUARTERS.values()]
            known = [Score(tuple(each for each in row if each is not None), digits=DIGITS) for row in scores]
            gains = [curve.last_gain for curve in curves if curve.last_gain is not None]
            steps = int(max(curve.steps[-1] for curve in curves))
            gain = signed(max(gains), DIGITS) if gains else None
            yield (variant.title, variant.init, steps, *(each if each else None for each in known), gain)
