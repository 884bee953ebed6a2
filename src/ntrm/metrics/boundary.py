"""How well boundaries are found: boundary F1, surface Dice and Hausdorff distance per tissue, in µm.

Definitions, for one tissue with true pixels T and predicted pixels P:

- The *surface* of T are its inner boundary pixels: pixels of T with a 4-neighbour that is not of T. The image border
  and ignored pixels of the ground truth make no boundary, and an ignored pixel belongs to no surface, predicted or
  true. (A prediction of ignore elsewhere is of no tissue.)
- The *distance* of a surface pixel is the Euclidean one, in µm, to the nearest pixel centre of the other surface.
  A pixel is a *hit* at tolerance t if that distance is at most t.
- *Precision* is the fraction of hits on the predicted surface, *recall* on the true one, *boundary F1* their
  harmonic mean. *Surface Dice* is all hits over all surface pixels of both; every pixel weighs the same.
- *Hausdorff distance* at 95 %: for each surface the 95th percentile of its distances (linear interpolation), and
  the larger of the two.

A tissue with no surface on either side is left out (None). With a surface on one side only, boundary F1 and surface
Dice are 0 and no distance exists (None).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, Counts, IndexMask, LabelSchema, pixel_counts
from ntrm.core.mpp import Resolution

TOLERANCES_UM = (10.0, 25.0, 50.0)
"""Default tolerances: one pixel, diagonals included, at 10x (6.7 µm/px), and about four and seven."""

ROUNDING = 1 + 1e-9  # Three pixels of 6.7 µm lie within 20.1 µm, whatever the last bit says.

Points = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BoundaryAgreement:
    """Surface pixels and hits of one section or, added up, of many; scores follow from them."""

    schema: LabelSchema
    tolerances_um: tuple[float, ...]
    true_pixels: Counts  # Pixels of the true surfaces: (K,)
    predicted_pixels: Counts  # Pixels of the predicted surfaces: (K,)
    true_hits: Counts  # True surface pixels within each tolerance of the predicted surface: (tolerances, K)
    predicted_hits: Counts  # Predicted surface pixels within each tolerance of the true surface: (tolerances, K)
    hausdorff_um: tuple[float | None, ...]
    """95 % Hausdorff distance per tissue; over several sections its mean where it exists."""

    @classmethod
    def total(cls, sections: Sequence[BoundaryAgreement]) -> BoundaryAgreement:
        """Sections together: pixels and hits are added, Hausdorff distances averaged over sections that have one."""
        counted = ("true_pixels", "predicted_pixels", "true_hits", "predicted_hits")
        return cls(
            schema=sections[0].schema,
            tolerances_um=sections[0].tolerances_um,
            hausdorff_um=tuple(map(mean_of, zip(*(section.hausdorff_um for section in sections), strict=True))),
            **{name: np.sum([getattr(section, name) for section in sections], axis=0) for name in counted},
        )

    def boundary_f1(self, tolerance_um: float) -> tuple[float | None, ...]:
        """Harmonic mean of precision and recall, per tissue."""
        row = self.tolerances_um.index(tolerance_um)
        precisions = _ratios(self.predicted_hits[row], self.predicted_pixels)
        return tuple(map(harmonic_mean, precisions, _ratios(self.true_hits[row], self.true_pixels)))

    def surface_dice(self, tolerance_um: float) -> tuple[float | None, ...]:
        """Hits on both surfaces over the pixels of both surfaces, per tissue."""
        row = self.tolerances_um.index(tolerance_um)
        return _ratios(self.true_hits[row] + self.predicted_hits[row], self.true_pixels + self.predicted_pixels)

    def as_dict(self) -> dict[str, Any]:
        """Scores as a JSON document: by tolerance, then by tissue name, with the mean over the tissues present."""
        return {
            "hausdorff95_um": self._by_name(self.hausdorff_um),
            "boundary_f1": {f"{t:g} µm": self._by_name(self.boundary_f1(t)) for t in self.tolerances_um},
            "surface_dice": {f"{t:g} µm": self._by_name(self.surface_dice(t)) for t in self.tolerances_um},
        }

    def _by_name(self, values: Sequence[float | None]) -> dict[str, Any]:
        return {"mean": mean_of(values), "tissues": dict(zip(self.schema.names, values, strict=True))}


def boundary_agreement(
    truth: IndexMask,
    prediction: IndexMask,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    tolerances_um: Sequence[float] = TOLERANCES_UM,
) -> BoundaryAgreement:
    """Compare the surfaces of every tissue in two masks of one section.

    >>> from ntrm.core.labels import SKIN
    >>> truth = np.repeat([[0, 0, 3, 3, 3]], 4, axis=0)
    >>> prediction = np.repeat([[0, 0, 0, 3, 3]], 4, axis=0)
    >>> agreement = boundary_agreement(truth, prediction, SKIN, Resolution(10, 10), tolerances_um=(5, 10))
    >>> agreement.surface_dice(5)[0], agreement.surface_dice(10)[0], agreement.hausdorff_um[0]
    (0.0, 1.0, 10.0)
    """
    check_masks(truth, prediction, schema)
    tolerances = tuple(float(value) for value in tolerances_um)
    if not tolerances or not all(math.isfinite(value) and value >= 0 for value in tolerances):
        raise UsageError("impossible tolerances", got=tolerances, expected="one or more lengths in µm, 0 or larger")
    surfaces: list[list[Points]] = []  # (y, x) in µm, of each class
    for mask in (truth, prediction):
        rows, columns = np.nonzero(surface_of(mask, truth != IGNORE))
        points = np.stack([rows * resolution.y, columns * resolution.x], axis=1)
        surfaces.append([points[mask[rows, columns] == label] for label in range(len(schema))])
    true, predicted = surfaces
    from_true = [surface_distances(*pair) for pair in zip(true, predicted, strict=True)]
    from_predicted = [surface_distances(*pair) for pair in zip(predicted, true, strict=True)]
    return BoundaryAgreement(
        schema=schema,
        tolerances_um=tolerances,
        true_pixels=np.array([len(surface) for surface in true]),
        predicted_pixels=np.array([len(surface) for surface in predicted]),
        true_hits=_hits(from_true, tolerances),
        predicted_hits=_hits(from_predicted, tolerances),
        hausdorff_um=tuple(map(hausdorff_distance, from_true, from_predicted)),
    )


def surface_of(mask: IndexMask, known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pixels with a known 4-neighbour of another label, among the ``known`` ones: all surfaces of a mask at once.

    >>> surface_of(np.array([[1, 1, 0, 0, 2]]), np.array([[True, True, True, True, False]])).tolist()
    [[False, True, True, False, False]]
    """
    surface = np.zeros(mask.shape, dtype=bool)
    across = (mask[:, 1:] != mask[:, :-1]) & known[:, 1:] & known[:, :-1]
    down = (mask[1:] != mask[:-1]) & known[1:] & known[:-1]
    surface[:, 1:] |= across
    surface[:, :-1] |= across
    surface[1:] |= down
    surface[:-1] |= down
    return surface


def surface_distances(surface: Points, other: Points) -> NDArray[np.float64]:
    """Distance of each point of ``surface`` to the nearest of ``other``; infinite where there is no other.

    A tree needs time and memory for the surface pixels alone, a distance transform for the whole area.
    """
    if not len(surface) or not len(other):
        return np.full(len(surface), np.inf)
    distances: NDArray[np.float64] = KDTree(other, balanced_tree=False, compact_nodes=False).query(surface)[0]
    return distances


def hausdorff_distance(one: NDArray[np.float64], other: NDArray[np.float64], percentile: float = 95.0) -> float | None:
    """The larger percentile of two sets of surface distances; None where a surface is missing.

    >>> hausdorff_distance(np.array([0.0, 2.0]), np.array([1.0]), percentile=100)
    2.0
    """
    if not one.size or not other.size:
        return None
    return float(max(np.percentile(one, percentile), np.percentile(other, percentile)))


def harmonic_mean(precision: float | None, recall: float | None) -> float | None:
    """F1 of a precision and a recall: None where neither is defined, 0 where one is not.

    >>> harmonic_mean(0.5, 1.0), harmonic_mean(None, 0.0), harmonic_mean(None, None)
    (0.6666666666666666, 0.0, None)
    """
    if precision is None and recall is None:
        return None
    if not precision or not recall:
        return 0.0
    return 2 * precision * recall / (precision + recall)


def mean_of(values: Sequence[float | None]) -> float | None:
    """Mean of the values that exist, or None.

    >>> mean_of([1.0, None, 2.0]), mean_of([None])
    (1.5, None)
    """
    present = [value for value in values if value is not None]
    return math.fsum(present) / len(present) if present else None


def check_masks(truth: IndexMask, prediction: IndexMask, schema: LabelSchema) -> None:
    """Refuse masks that cannot be compared: of different sizes, or with indices the schema does not know."""
    if truth.shape != prediction.shape or truth.ndim != 2:
        raise DataError(
            "ground truth and prediction are not masks of one section",
            got=f"{truth.shape} and {prediction.shape}",
            expected="two (height, width) arrays of one size",
        )
    for mask in (truth, prediction):
        pixel_counts(mask, len(schema))


def _hits(distances: Sequence[NDArray[np.float64]], tolerances: Sequence[float]) -> Counts:
    """Distances within each tolerance: (tolerances, K)."""
    counts = [[np.count_nonzero(surface <= limit * ROUNDING) for surface in distances] for limit in tolerances]
    return np.array(counts, dtype=np.int64)


def _ratios(hits: Counts, pixels: Counts) -> tuple[float | None, ...]:
    return tuple(int(hit) / int(count) if count else None for hit, count in zip(hits, pixels, strict=True))
