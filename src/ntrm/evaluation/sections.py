"""One section under a network: predicted in windows, counted on the device, kept as a result."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.data.cache import CachedSection, TileCache
from ntrm.data.dataset import Case
from ntrm.evaluation.interfaces import InterfaceCounts
from ntrm.inference.network_runner import Image
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Rows, Stitched, Stitching, most_probable, stitch
from ntrm.metrics.boundary import BoundaryAgreement
from ntrm.metrics.calibration import CalibrationCounts
from ntrm.metrics.cancer_rule import CancerFinding
from ntrm.metrics.confusion import Counts, confusion_tensor
from ntrm.metrics.graph_agreement import GraphAgreement

BINS = 15
"""Bins of confidence."""

Mask = NDArray[np.uint8]


class SectionAccumulator:
    """Confusion and calibration of one section, counted where its probabilities are while they are there.

    Handed to ``stitch`` as ``watch``. With ``calibration=False`` only confusions are counted.
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
        """(K, K) truth, prediction."""
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
    """(4, bins): pixels, correct ones, sums of confidence and of squared error, of (K, h, W) against (h, W)."""
    real = torch.float32 if probabilities.device.type == "mps" else torch.float64
    known = truth != IGNORE
    confidence, chosen = probabilities.max(dim=0)
    of_truth = probabilities.gather(0, truth.long().clamp(max=len(probabilities) - 1)[None])[0]
    # Σ_c (p_c − 1[c is true])² = Σ_c p_c² − 2·p_true + 1
    error = probabilities.square().sum(dim=0) - 2 * of_truth + 1
    place = (confidence.to(real) * BINS).long().clamp(max=BINS - 1)
    place = torch.where(known, place, BINS).flatten()  # one bin more takes what is ignored
    maps = (torch.ones_like(confidence), (chosen == truth).to(confidence), confidence, error)
    return torch.stack([_sum_by_place(place, each.flatten().to(real)) for each in maps])


def _sum_by_place(place: Tensor, values: Tensor) -> Tensor:
    """(bins,) sums of ``values`` by bin, the same in every run."""
    if place.device.type == "cpu":
        return torch.bincount(place, weights=values, minlength=BINS + 1)[:BINS]
    return _sum_bin_by_bin(place, values)


def _sum_bin_by_bin(place: Tensor, values: Tensor) -> Tensor:
    # On accelerators sums by place are atomic additions, whose order and so whose last digits vary.
    return torch.stack([torch.where(place == number, values, 0).sum() for number in range(BINS)])


def _total(tables: list[Tensor]) -> Counts:
    total: Counts = torch.stack(tables).sum(dim=0).cpu().numpy()
    return total


@dataclass(frozen=True, eq=False)
class SectionCounts:
    """What is counted of a section where it is predicted."""

    name: str
    patient: str
    cancer: str
    """Cancer type that the section was filed under, if any."""
    pixels: int
    """Of the section, ignored ones included."""
    seconds: float
    """Time its prediction took."""
    confusion: Counts
    """(K, K) truth, prediction."""
    coarse: Counts | None
    """The same of the coarse head, where there is one."""
    calibration: CalibrationCounts


@dataclass(frozen=True, eq=False)
class SectionResult(SectionCounts):
    """Everything counted and measured on one section; see ``Measures``."""

    boundary: BoundaryAgreement | None
    graph: GraphAgreement
    interfaces: InterfaceCounts
    cancers: tuple[CancerFinding, ...]
    true_cancers: tuple[CancerFinding, ...]


@dataclass(frozen=True, eq=False)
class PredictedSection:
    """A section, what the network says of it, and the counts."""

    case: Case
    section: CachedSection
    truth: Mask
    """In the network's classes."""
    stitched: Stitched
    tally: SectionAccumulator
    seconds: float
    """Time the prediction took."""

    def counts(self) -> SectionCounts:
        """What is worth keeping when the maps go."""
        return SectionCounts(
            name=self.case.name,
            patient=self.case.group,
            cancer=self.case.cancer,
            pixels=self.truth.size,
            seconds=self.seconds,
            confusion=self.tally.final,
            coarse=self.tally.coarse,
            calibration=self.tally.calibration,
        )


def predict_section(
    predictor: Predictor,
    case: Case,
    dataset_schema: LabelSchema,
    table: Mask,
    *,
    stitching: Stitching,
    cache: TileCache | None = None,
) -> PredictedSection:
    """Stitch one section of a dataset and count it against its truth, mapped by ``table`` to the network's classes."""
    section = (cache or TileCache()).open(case, dataset_schema)
    truth = table[section.mask]
    tally = SectionAccumulator(truth, predictor.config.classes)
    start = time.monotonic()
    stitched = stitch(predictor, section.image, stitching=stitching, coarse=True, watch=tally)
    return PredictedSection(case, section, truth, stitched, tally, time.monotonic() - start)


def confusion_of(predictor: Predictor, image: Image, truth: Mask, *, stitching: Stitching) -> Counts:
    """Only the confusion counts of a section: for images that are degraded on purpose."""
    if image.shape[:2] != truth.shape:
        raise DataError("image and truth differ in size", got=image.shape[:2], expected=truth.shape)
    tally = SectionAccumulator(truth, predictor.config.classes, calibration=False)
    stitch(predictor, image, stitching=stitching, watch=tally)
    return tally.final
