"""Whether probabilities mean what they say: expected calibration error, Brier score, reliability, temperature.

The confidence of a pixel is its largest probability. Counts of tiles add up, so that memory does not grow with the
number of tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from ntrm.core.arrays import Floats
from ntrm.core.errors import DataError
from ntrm.core.labels import Counts
from ntrm.core.wording import short_repr

TEMPERATURES = (0.05, 20.0)
"""Range in which a temperature is sought; at its ends the logits are of little use as they are."""


class ReliabilityRow(NamedTuple):
    """The pixels whose confidence lies in one bin; None for the means of an empty bin."""

    low: float
    high: float
    pixels: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True, eq=False)
class CalibrationCounts:
    """Sums over pixels, in equal-width bins of confidence (the last one includes 1)."""

    pixels: Counts  # (bins,)
    correct: Counts  # (bins,) pixels whose most probable class is the true one
    confidence: Floats  # (bins,) sum of confidences
    squares: float  # Sum of ``Σ_c (p_c − 1[c is true])²``

    __repr__ = short_repr

    @classmethod
    def none(cls, bins: int = 15) -> CalibrationCounts:
        """Counts of no pixel, to start a sum with."""
        return cls(np.zeros(bins, np.int64), np.zeros(bins, np.int64), np.zeros(bins), 0.0)

    def __add__(self, other: CalibrationCounts) -> CalibrationCounts:
        return CalibrationCounts(
            self.pixels + other.pixels,
            self.correct + other.correct,
            self.confidence + other.confidence,
            self.squares + other.squares,
        )

    @property
    def total(self) -> int:
        """Pixels counted."""
        return int(self.pixels.sum())

    @property
    def expected_error(self) -> float | None:
        """Expected calibration error ``Σ_b n_b/N · |accuracy_b − confidence_b|``; None without a pixel."""
        # The bin's n cancels against the means' denominators.
        return float(np.abs(self.correct - self.confidence).sum() / self.total) if self.total else None

    @property
    def brier(self) -> float | None:
        """Brier score over all classes, 0 (certain and right) to 2 (certain and wrong); None without a pixel."""
        return self.squares / self.total if self.total else None

    def reliability(self) -> tuple[ReliabilityRow, ...]:
        """Confidence and accuracy bin by bin."""
        edges = np.linspace(0, 1, len(self.pixels) + 1).tolist()
        bins = zip(pairwise(edges), self.pixels, self.confidence, self.correct, strict=True)
        return tuple(
            ReliabilityRow(low, high, int(n), *((float(sure / n), float(right / n)) if n else (None, None)))
            for (low, high), n, sure, right in bins
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            "pixels": self.total,
            "expected_calibration_error": self.expected_error,
            "brier": self.brier,
            "reliability": [row._asdict() for row in self.reliability()],
        }


def fit_temperature(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> float:
    """The temperature T for which ``softmax(logits / T)`` gives the true classes the greatest likelihood.

    Logits (K, N) and labels (N,) are of a sample of pixels, none of them ignored. The negative log-likelihood is convex
    in 1/T, so that a bounded search finds its one minimum, the same each time. Where the likelihood is no smaller at an
    end of the range ``TEMPERATURES``, that end is the temperature.
    """
    logits, labels = np.asarray(logits), np.asarray(labels).astype(np.int64)
    if labels.size == 0 or not np.isfinite(logits).all():
        raise DataError(
            "no temperature can be fitted",
            got="no known pixel" if labels.size == 0 else "logits that are not finite",
            expected="finite logits and at least one pixel that is not ignored",
        )
    # The softmax of logits less their largest is the same, and no exponential of it overflows.
    scores = logits.astype(np.float64) - logits.max(axis=0)
    of_truth = np.take_along_axis(scores, labels[None], axis=0).mean()

    def nll(log_temperature: float) -> float:
        sharpness = np.exp(-log_temperature)
        return float(np.log(np.exp(sharpness * scores).sum(axis=0)).mean() - sharpness * of_truth)

    low, high = np.log(TEMPERATURES)
    best = optimize.minimize_scalar(nll, bounds=(low, high), method="bounded", options={"xatol": 1e-7})
    return float(np.exp(min((low, high, best.x), key=nll)))
