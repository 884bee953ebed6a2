"""One section: predicted in windows, counted on the device, kept as a result."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ntrm.core.labels import IGNORE, Counts, LabelSchema, Mask
from ntrm.data.cache import CachedSection, SectionCache
from ntrm.data.dataset import Case
from ntrm.evaluation.measuring import Measures
from ntrm.metrics.calibration import CalibrationCounts
from ntrm.metrics.confusion import confusion_tensor
from ntrm.models.predictor import Predictor
from ntrm.models.windows import Image, Rows, Stitched, Stitching, most_probable, stitch

BINS = 15  # Bins of confidence


class SectionAccumulator:
    """Confusion and calibration of one section, counted on the device strip by strip; ``watch`` of ``stitch``.

    With ``calibration=False`` only confusions are counted.
    """

    def __init__(self, truth: Mask, classes: int, *, calibration: bool = True) -> None:
        self._truth, self._classes, self._calibrates = truth, classes, calibration
        self._final: list[Tensor] = []
        self._coarse: list[Tensor] = []
        self._bins: list[Tensor] = []

    def __call__(self, rows: Rows) -> None:
        """Count some rows."""
        truth = torch.from_numpy(self._truth[rows.slice]).to(rows.final.device)
        self._final.append(confusion_tensor(truth, most_probable(rows.final), self._classes))
        if rows.coarse is not None:
            self._coarse.append(confusion_tensor(truth, most_probable(rows.coarse), self._classes))
        if self._calibrates:
            self._bins.append(_calibration_sums(rows.final, truth))

    @property
    def final(self) -> Counts:
        """(K, K) ground truth, prediction."""
        return _total(self._final)

    @property
    def coarse(self) -> Counts | None:
        """(K, K) of the coarse head, where there is one."""
        return _total(self._coarse) if self._coarse else None

    @property
    def calibration(self) -> CalibrationCounts:
        """Confidence against accuracy."""
        if not self._bins:
            return CalibrationCounts.none(BINS)
        pixels, correct, confidence, squares = torch.stack(self._bins).double().cpu().numpy().sum(axis=0)
        return CalibrationCounts(
            pixels.round().astype(np.int64), correct.round().astype(np.int64), confidence, float(squares.sum())
        )


def _calibration_sums(probabilities: Tensor, truth: Tensor) -> Tensor:
    """(4, bins): pixels, correct ones, summed confidence and summed squared error, of (K, h, W) against (h, W)."""
    real = torch.float32 if probabilities.device.type == "mps" else torch.float64
    known = truth != IGNORE
    confidence, chosen = probabilities.max(dim=0)
    of_truth = probabilities.gather(0, truth.long().clamp(max=len(probabilities) - 1)[None])[0]
    # Σ_c (p_c − 1[c is true])² = Σ_c p_c² − 2·p_true + 1
    error = probabilities.square().sum(dim=0) - 2 * of_truth + 1
    bins = (confidence.to(real) * BINS).long().clamp(max=BINS - 1)
    bins = torch.where(known, bins, BINS).flatten()  # one bin more takes the ignored pixels
    values = (torch.ones_like(confidence), (chosen == truth).to(confidence), confidence, error)
    sums = _sum_on_cpu if bins.device.type == "cpu" else _sum_on_accelerator
    return torch.stack([sums(bins, value.flatten().to(real)) for value in values])


def _sum_on_cpu(bins: Tensor, values: Tensor) -> Tensor:
    """(bins,) sums of ``values`` by bin."""
    return torch.bincount(bins, weights=values, minlength=BINS + 1)[:BINS]


def _sum_on_accelerator(bins: Tensor, values: Tensor) -> Tensor:
    """The same in every run: there bincount adds atomically, in an order that varies, and so do its last digits."""
    return torch.stack([torch.where(bins == number, values, 0).sum() for number in range(BINS)])


def _total(tables: list[Tensor]) -> Counts:
    total: Counts = torch.stack(tables).sum(dim=0).cpu().numpy()
    return total


@dataclass(frozen=True, eq=False)
class SectionCounts:
    """What is counted of a section where it is predicted."""

    name: str
    patient: str
    cancer: str  # Cancer type that the section was filed under, if any
    pixels: int  # Of the section, with the ignored ones
    seconds: float  # Time its prediction took
    confusion: Counts  # (K, K) ground truth, prediction
    coarse: Counts | None  # The same of the coarse head, where there is one
    calibration: CalibrationCounts


@dataclass(frozen=True, eq=False)
class SectionResult(Measures, SectionCounts):
    """Everything counted and measured on one section."""


@dataclass(frozen=True, eq=False)
class PredictedSection:
    """A section, the network's prediction, and the counts."""

    section: CachedSection
    truth: Mask  # In the network's classes
    stitched: Stitched
    counts: SectionCounts


def predict_section(
    predictor: Predictor, case: Case, dataset_schema: LabelSchema, table: Mask, *, stitching: Stitching
) -> PredictedSection:
    """Predict one section and count it against its ground truth, mapped by ``table`` to the network's classes."""
    section = SectionCache().open(case, dataset_schema)
    truth = table[section.mask]
    counted = SectionAccumulator(truth, predictor.config.classes)
    start = time.monotonic()
    stitched = stitch(predictor, section.image, stitching=stitching, coarse=True, watch=counted)
    counts = SectionCounts(
        name=case.name,
        patient=case.group,
        cancer=case.cancer,
        pixels=truth.size,
        seconds=time.monotonic() - start,
        confusion=counted.final,
        coarse=counted.coarse,
        calibration=counted.calibration,
    )
    return PredictedSection(section, truth, stitched, counts)


def confusion_of(predictor: Predictor, image: Image, truth: Mask, *, stitching: Stitching) -> Counts:
    """Only the confusion counts of a section: for images that are degraded on purpose."""
    counted = SectionAccumulator(truth, predictor.config.classes, calibration=False)
    stitch(predictor, image, stitching=stitching, watch=counted)
    return counted.final
