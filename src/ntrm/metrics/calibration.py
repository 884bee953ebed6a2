"""Whether probabilities mean what they say: expected calibration error, Brier score, reliability, temperature.

The confidence of a pixel is its largest probability. Counts of tiles add up, so that memory does not grow with the
number of tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from ntrm.core.errors import DataError, check_number
from ntrm.core.labels import IGNORE
from ntrm.metrics.confusion import Counts

Floats = NDArray[np.float64]

CLASS_AXIS = -3
"""Axis of the classes in (K, H, W) and in (B, K, H, W)."""

TEMPERATURES = (0.05, 20.0)
"""Range in which a temperature is sought; at its ends the logits are of no use as they are."""


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

    pixels: Counts
    """(bins,)"""
    correct: Counts
    """(bins,) pixels whose most probable class is the true one."""
    confidence: Floats
    """(bins,) sum of confidences."""
    squares: float
    """Sum of ``Σ_c (p_c − 1[c is true])²``."""

    @classmethod
    def none(cls, bins: int = 15) -> CalibrationCounts:
        """Counts of no pixel, to start a sum with."""
        check_number("number of bins", bins, 1, 10_000, whole=True)
        return cls(np.zeros(bins, np.int64), np.zeros(bins, np.int64), np.zeros(bins), 0.0)

    def __add__(self, other: CalibrationCounts) -> CalibrationCounts:
        if len(self.pixels) != len(other.pixels):
            raise DataError(
                "counts of different bins do not add up", got=len(other.pixels), expected=f"{len(self.pixels)} bins"
            )
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
        return tuple(
            ReliabilityRow(low, high, int(n), *((float(sure / n), float(right / n)) if n else (None, None)))
            for low, high, n, sure, right in zip(
                edges[:-1], edges[1:], self.pixels, self.confidence, self.correct, strict=True
            )
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, ready for JSON."""
        return {
            "pixels": self.total,
            "expected_calibration_error": self.expected_error,
            "brier": self.brier,
            "reliability": [row._asdict() for row in self.reliability()],
        }


def calibration_counts(
    probabilities: NDArray[np.floating],
    truth: NDArray[np.integer],
    *,
    bins: int = 15,
    ignore: int = IGNORE,
    axis: int = CLASS_AXIS,
) -> CalibrationCounts:
    """Counts of one tile, section or batch; ``axis`` is where the probabilities have their classes.

    >>> counts = calibration_counts(np.array([[0.75, 0.75], [0.25, 0.25]]), np.array([0, 1]), bins=2, axis=0)
    >>> counts.expected_error, counts.brier
    (0.25, 0.625)
    """
    pixels, labels = _known_pixels(probabilities, truth, ignore, axis)
    _check_probabilities(pixels)
    chosen = pixels.argmax(axis=0)
    sure, of_truth = _pick(pixels, chosen), _pick(pixels, labels)
    # Σ_c (p_c − 1[c is true])² = Σ_c p_c² − 2·p_true + 1
    squares = np.einsum("kn,kn->", pixels, pixels, dtype=np.float64) + np.sum(1 - 2 * of_truth)
    empty = CalibrationCounts.none(bins)
    place = np.minimum((sure * bins).astype(np.int64), bins - 1)
    return empty + CalibrationCounts(
        pixels=np.bincount(place, minlength=bins),
        correct=np.bincount(place[chosen == labels], minlength=bins),
        confidence=np.bincount(place, weights=sure, minlength=bins).astype(np.float64),
        squares=float(squares),
    )


def fit_temperature(
    logits: NDArray[np.floating], truth: NDArray[np.integer], *, ignore: int = IGNORE, axis: int = CLASS_AXIS
) -> float:
    """The temperature T for which ``softmax(logits / T)`` gives the truth the greatest likelihood.

    The negative log-likelihood is convex in 1/T, so that a bounded search finds its one minimum, the same each time.
    For a large split a sample of pixels, (K, N) with ``axis=0``, serves as well as all of them.
    """
    scores, labels = _known_pixels(logits, truth, ignore, axis)
    if labels.size == 0 or not np.isfinite(scores).all():
        raise DataError(
            "no temperature can be fitted",
            got="no known pixel" if labels.size == 0 else "logits that are not finite",
            expected="finite logits and at least one pixel that is not ignored",
        )
    # The softmax of logits less their largest is the same, and no exponential of it overflows.
    scores = scores.astype(np.float64) - scores.max(axis=0)
    of_truth = _pick(scores, labels).mean()

    def nll(log_temperature: float) -> float:
        sharpness = np.exp(-log_temperature)
        return float(np.log(np.exp(sharpness * scores).sum(axis=0)).mean() - sharpness * of_truth)

    low, high = np.log(TEMPERATURES)
    found = optimize.minimize_scalar(nll, bounds=(low, high), method="bounded", options={"xatol": 1e-7})
    return float(np.exp(found.x))


def _known_pixels(
    values: NDArray[np.floating], truth: NDArray[np.integer], ignore: int, axis: int
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Values (K, n) and labels (n,) of the pixels that are not ignored."""
    values, truth = np.asarray(values), np.asarray(truth)
    if not -values.ndim <= axis < values.ndim or np.moveaxis(values, axis, 0).shape[1:] != truth.shape:
        raise DataError(
            "truth does not fit the classes' maps",
            got=f"maps {values.shape} with classes on axis {axis}, truth {truth.shape}",
            expected="the size of the truth plus the axis of classes",
        )
    maps, known = np.moveaxis(values, axis, 0), truth != ignore
    labels = truth[known].astype(np.int64)
    if labels.size and not 0 <= labels.min() <= labels.max() < len(maps):
        raise DataError(
            "the truth holds values that are no class",
            got=f"values from {labels.min()} to {labels.max()}",
            expected=f"0 to {len(maps) - 1} or the ignore value",
            hint="read the truth with the label schema of the model",
        )
    return maps[:, known], labels


def _pick(values: NDArray[np.floating], classes: NDArray[np.int64]) -> Floats:
    """(n,) of values (K, n): at each pixel the value of the given class."""
    picked: Floats = np.take_along_axis(values, classes[None], axis=0)[0].astype(np.float64)
    return picked


def _check_probabilities(pixels: NDArray[np.floating]) -> None:
    sums = pixels.sum(axis=0, dtype=np.float64)
    # Wide enough for probabilities that were stored in bfloat16; also false for NaN.
    sound = pixels.min(initial=0) >= 0 and bool(np.all(np.abs(sums - 1) < 0.02))
    if not sound:
        raise DataError(
            "these are no probabilities",
            got=f"values from {pixels.min():.3g} to {pixels.max():.3g}, sums up to {sums.max():.3g}",
            expected="values from 0 that sum to 1 over the classes",
            hint="take the softmax of logits over the classes first",
        )
