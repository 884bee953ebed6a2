"""How familiar a slide, a piece or a part of one is to a model: three scores, their p-values, and reasons. No torch.

- *colours* and *texture*: the mean z of its cells (``ntrm.familiarity.cells``), as Mahalanobis distance among the
  means of training sections;
- *anatomy*: which fraction of the tissue each class makes up, and over which length each two classes border on each
  other for each mm² of tissue, both as square roots, as Mahalanobis distance among training sections.

A p-value says how often a held-out section of the model's own kind, of about the same size, has a score as high. The
three are combined by a weighted Bonferroni correction: the smallest of p over its aspect's weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ntrm.core.arrays import Floats
from ntrm.core.labels import LabelSchema
from ntrm.familiarity.reference import COLOURS, LEVELS, STATISTICS, Reference, ReferenceNumbers
from ntrm.regions.graph import TissueGraph
from ntrm.results.familiarity import ASPECTS, FAMILIAR, TOO_SMALL, UNFAMILIAR, UNFAMILIAR_BELOW, Familiarity

LEAST_CELLS = 12  # Fewer cells tell nothing
WEIGHTS = {"colours": 0.45, "texture": 0.45, "anatomy": 0.1}
"""Shares of the chance of a false alarm, together 1. The anatomy of sections has a long tail, and gets little of it."""
REASONS = 3  # Most sentences about one aspect
LEAST_SEEN = 0.02  # Optical density that is worth a word
TEXTURE_NAMES = (
    "contrast in red light", "contrast in green light", "contrast in blue light", "variation from red to green",
    "variation from blue to green", "fine detail",
)  # fmt: skip
"""Of the six deviations of a cell."""


@dataclass(frozen=True, eq=False)
class Unit:
    """A section, a piece or a part of one, as it is judged."""

    sums: Floats  # (1 + 2·D,) cells, their z, their deviations from the class means: summed
    areas_mm2: Floats  # (K,) by class; 0 for the background
    borders_mm: Floats  # (K, K) between classes, symmetric

    @classmethod
    def of(cls, sums: Floats, graph: TissueGraph) -> Unit:
        """Of one piece."""
        return cls(np.asarray(sums, dtype=np.float64), graph.areas_mm2, graph.boundary_mm[:-1, :-1])

    @property
    def cells(self) -> float:
        """Cells that count."""
        return float(self.sums[0])

    @property
    def area_mm2(self) -> float:
        """Of the tissue."""
        return float(self.areas_mm2.sum())

    @property
    def mean_z(self) -> Floats:
        """(D,)."""
        return np.asarray(self.sums[1 : 1 + STATISTICS] / max(self.cells, 1.0))

    @property
    def mean_deviation(self) -> Floats:
        """(D,) in the units of the statistics."""
        return np.asarray(self.sums[1 + STATISTICS :] / max(self.cells, 1.0))

    @property
    def anatomy(self) -> Floats:
        """(A,) square roots of fractions, then of border densities in 1/mm."""
        area = max(self.area_mm2, 1e-12)
        upper = np.triu_indices(len(self.areas_mm2), 1)
        return np.asarray(np.sqrt(np.concatenate([self.areas_mm2 / area, self.borders_mm[upper] / area])))


def scores(unit: Unit, numbers: ReferenceNumbers) -> Floats:
    """(3,) by aspect: logarithms of mean squared distances."""
    anatomy = _distance(unit.anatomy - numbers.anatomy_mean, numbers.anatomy_covariance)
    return np.array([*look_scores(unit.mean_z, numbers), anatomy])


def look_scores(mean_z: Floats, numbers: ReferenceNumbers) -> Floats:
    """(…, D) → (…, 2) of colours and texture."""
    away = mean_z - numbers.unit_mean
    blocks = (slice(0, COLOURS), slice(COLOURS, STATISTICS))
    return np.stack([_distance(away[..., block], numbers.unit_covariance[block, block]) for block in blocks], axis=-1)


def _distance(away: Floats, covariance: Floats) -> Floats:
    """(…, n) → (…)."""
    squared = (away * np.linalg.solve(covariance, away.T).T).sum(axis=-1)
    return np.asarray(np.log(squared / away.shape[-1] + 1e-6))


def p_values(found: Floats, area_mm2: Floats | float, numbers: ReferenceNumbers) -> Floats:
    """Scores (…, 3), or (…, 2) without the anatomy, of units of some size (…) → how often held-out ones score as high.

    Between two sizes the quantiles are interpolated; outside the known sizes the nearest one is used.
    """
    at = np.log(np.maximum(area_mm2, 1e-12))
    return np.stack([_as_high(found[..., aspect], aspect, at, numbers) for aspect in range(found.shape[-1])], axis=-1)


def _as_high(score: Floats, aspect: int, at: Floats, numbers: ReferenceNumbers) -> Floats:
    """Of one aspect: 1 below the lowest quantile, linear between quantiles, an exponential tail above the highest."""
    columns = [np.interp(at, numbers.log_areas, column) for column in numbers.quantiles[aspect].T]
    tail = np.maximum(np.interp(at, numbers.log_areas, numbers.tails[aspect]), 1e-3)
    above = (1 - LEVELS[-1]) * np.exp(-np.maximum(score - columns[-1], 0) / tail)
    below = np.where(score < columns[0], 1.0, 1 - LEVELS[0])
    for low, high, step in zip(columns, columns[1:], np.diff(LEVELS), strict=False):
        below = below - step * np.clip((score - low) / np.maximum(high - low, 1e-12), 0, 1)
    return np.where(score >= columns[-1], above, below)


def judge(unit: Unit, reference: Reference, schema: LabelSchema) -> Familiarity:
    """Whether a slide or a piece is like what the model knows."""
    numbers, why_not = reference.numbers, ""
    if unit.area_mm2 < (least := float(numbers.smallest_mm2[0])):
        why_not = f"{unit.area_mm2:.2g} mm² of tissue; it takes {least:.2g} to compare it with training sections"
    elif unit.cells < LEAST_CELLS:
        why_not = f"only {unit.cells:.0f} small squares show stained tissue; it takes {LEAST_CELLS} to compare them"
    if why_not:
        return Familiarity(TOO_SMALL, None, {}, (why_not,))
    by_aspect = dict(zip(ASPECTS, p_values(scores(unit, numbers), unit.area_mm2, numbers).tolist(), strict=True))
    weighted = {name: value / WEIGHTS[name] for name, value in by_aspect.items()}
    p = min(1.0, *weighted.values())
    aspects = {name: _rounded(value) for name, value in by_aspect.items()}
    if p >= UNFAMILIAR_BELOW:
        return Familiarity(FAMILIAR, _rounded(p), aspects, ())
    explain = {"colours": _colours, "texture": _texture, "anatomy": _anatomy}
    unlike = [name for name in sorted(ASPECTS, key=weighted.__getitem__) if weighted[name] < UNFAMILIAR_BELOW]
    return Familiarity(UNFAMILIAR, _rounded(p), aspects, tuple(explain[name](unit, numbers, schema) for name in unlike))


def _rounded(p: float) -> float:
    return float(f"{p:.3g}")


def _colours(unit: Unit, _: ReferenceNumbers, __: LabelSchema) -> str:
    density = unit.mean_deviation[:COLOURS]
    overall = float(density.mean())
    phrases = []
    if abs(overall) >= LEAST_SEEN:
        phrases.append(f"{'darker' if overall > 0 else 'paler'} (by {abs(overall):.2f} of optical density)")
    strongest = int(np.argmax(density - overall))
    if not phrases or density[strongest] - overall >= LEAST_SEEN:
        # What absorbs red light is blue, what absorbs green is magenta, what absorbs blue is yellow.
        phrases.append(("bluer", "more magenta", "more yellow or brown")[strongest])
    return f"colours: {' and '.join(phrases)} than the same tissues in training"


def _texture(unit: Unit, numbers: ReferenceNumbers, _: LabelSchema) -> str:
    deviation = np.abs(unit.mean_z - numbers.unit_mean) / np.sqrt(np.diag(numbers.unit_covariance))
    order = np.argsort(-deviation[COLOURS:], kind="stable")[:2]
    factors = np.exp(unit.mean_deviation[COLOURS:])
    phrases = " and ".join(f"{TEXTURE_NAMES[number]} {factors[number]:.2g} times" for number in order)
    return f"texture: {phrases} that of the same tissues in training"


def _anatomy(unit: Unit, numbers: ReferenceNumbers, schema: LabelSchema) -> str:
    spread = np.sqrt(np.diag(numbers.anatomy_covariance))
    found, most, area = unit.anatomy, numbers.anatomy_most, unit.area_mm2
    excess = np.where(found > most, (found - most) / spread, 0.0)
    unusual = [number for number in np.argsort(-excess, kind="stable")[:REASONS] if excess[number] > 0]
    classes, upper = len(schema), np.triu_indices(len(schema), 1)

    def sentence(number: int) -> str:
        if number < classes:
            share, at_most = (f"{shares[number] ** 2:.0%}" for shares in (found, most))
            return f"{schema.names[number]} makes up {share} of the tissue; in training at most {at_most}"
        one, other = (schema.names[axis[number - classes]] for axis in upper)
        length, usual = found[number] ** 2 * area, most[number] ** 2 * area
        return f"{one} borders on {other} over {length:.2g} mm; in training on so much tissue at most {usual:.2g}"

    return "anatomy: " + (", ".join(map(sentence, unusual)) or "the tissues lie together as in no training section")


def look_p_values(sums: Floats, cell_mm2: float, reference: Reference) -> Floats:
    """(N, 1 + 2·D) → (N,) how often as many cells look as unfamiliar, by colours and texture alone; for maps."""
    cells = sums[:, 0]
    mean_z = sums[:, 1 : 1 + STATISTICS] / np.maximum(cells, 1.0)[:, None]
    by_aspect = p_values(look_scores(mean_z, reference.numbers), cells * cell_mm2, reference.numbers)
    return np.asarray(np.minimum(1.0, by_aspect.shape[-1] * by_aspect.min(axis=-1)))


def judge_pieces(
    units: Mapping[int, Unit], reference: Reference, schema: LabelSchema
) -> tuple[Familiarity, dict[int, Familiarity]]:
    """The whole slide, and each piece by its number.

    A slide is unfamiliar if all its pieces together are, or if pieces that are make up more than half of its tissue.
    """
    pieces = {number: judge(unit, reference, schema) for number, unit in units.items()}
    together = Unit(
        sum((unit.sums for unit in units.values()), np.zeros(1 + 2 * STATISTICS)),
        sum((unit.areas_mm2 for unit in units.values()), np.zeros(len(schema))),
        sum((unit.borders_mm for unit in units.values()), np.zeros((len(schema), len(schema)))),
    )
    slide = judge(together, reference, schema)
    unfamiliar = [number for number, piece in pieces.items() if piece.verdict == UNFAMILIAR]
    if slide.verdict == FAMILIAR and sum(units[number].area_mm2 for number in unfamiliar) > together.area_mm2 / 2:
        worst = min(unfamiliar, key=lambda number: pieces[number].p_value or 0.0)
        slide = pieces[worst]
    return slide, pieces
