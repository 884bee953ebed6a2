"""How tissue is stained, estimated from its pixels, and the change that stains it like other tissue. No torch.

All of it is about the optical density of red, green and blue light, ``-ln((I + 1) / 256)``, as ``ntrm.data.transforms``
has it: by Beer–Lambert, stains add up there. Such a change is one 3×3 matrix for all pixels of a slide.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats
from ntrm.core.errors import DataError

AS_IT_IS, MACENKO, STRENGTH = "none", "macenko", "strength"
STAIN_NORMS = (AS_IT_IS, MACENKO, STRENGTH)
"""Nothing · the two stains exchanged, in colour and strength (Macenko 2009) · each channel stretched to the mean."""

LEAST_DENSITY = 0.1  # Mean optical density from which a pixel of tissue is no gap
LEAST_PIXELS, MOST_PIXELS = 500, 200_000  # Fewer say nothing; of more, only some are looked at
LEAST_COLOUR = 0.1
"""Difference between the densest and the palest channel, relative to their mean, below which tissue is grey."""
ENDS = (0.01, 0.99)
"""Quantiles of the angle in the plane of the two stains, at which these are taken to be pure; and of their amounts."""
LEAST_ANGLE = 6.0  # Degrees between two stains; nearer ones are one stain and noise
DIGITS = 6  # Of a matrix: what is applied is what is written down

Triple = tuple[float, float, float]
Matrix = tuple[Triple, Triple, Triple]

_DENSITY = -np.log((np.arange(256) + 1) / 256)


class StainError(DataError):
    """Stains cannot be estimated or exchanged; what it says ends a sentence."""


@dataclass(frozen=True)
class Stains:
    """How some tissue is stained."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"allow_inf_nan": False}
    density: Triple  # Mean optical density of red, green and blue light
    vectors: tuple[Triple, Triple] | None
    """Optical density of each of two stains, of length 1; the one that takes more of the red first. None where the
    tissue shows only one."""
    strengths: tuple[float, float] | None  # Amount of each that a hundredth of the tissue exceeds

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON document."""
        return asdict(self)

    @classmethod
    def parse(cls, document: Any) -> Stains:
        """What ``as_dict`` gave, as JSON has it; a ``ValueError`` for anything else."""
        from pydantic import TypeAdapter

        stains = TypeAdapter(cls).validate_python(document)
        least = min(*stains.density, *(stains.strengths or ()))
        if (stains.vectors is None) != (stains.strengths is None) or least <= 0:
            raise ValueError("densities and strengths are above 0, and two stains have two vectors and two strengths")
        return stains


def tissue_densities(picture: NDArray[np.uint8], tissue: NDArray[np.bool_], most: int = MOST_PIXELS) -> Floats:
    """(N, 3) optical densities of the tissue in a picture (H, W, 3), without its gaps; at most about ``most``."""
    densities = np.asarray(_DENSITY[picture[tissue]], dtype=np.float64).reshape(-1, 3)
    densities = densities[densities.mean(axis=1) > LEAST_DENSITY]
    return np.asarray(densities[:: max(1, len(densities) // most)])


def estimate_stains(densities: Floats) -> Stains:
    """The stains of tissue with these densities (N, 3); a ``StainError`` where they show none."""
    if len(densities) < LEAST_PIXELS:
        got, expected = f"{len(densities)} pixels of tissue", f"at least {LEAST_PIXELS}"
        raise StainError("there is too little tissue", got=got, expected=expected)
    mean = densities.mean(axis=0)
    if np.ptp(mean) < LEAST_COLOUR * mean.mean():
        got = " ".join(f"{value:.3f}" for value in mean)
        raise StainError(
            "the tissue has no colour", got=f"optical densities {got}", expected="red, green and blue differ"
        )
    vectors = _two_stains(densities)
    amounts = densities @ np.linalg.pinv(vectors)
    strengths = np.quantile(amounts, ENDS[1], axis=0)
    angle = math.degrees(math.acos(float(np.clip(vectors[0] @ vectors[1], -1, 1))))
    if angle < LEAST_ANGLE or strengths.min() <= 0:
        return Stains(_rounded(mean), None, None)
    return Stains(_rounded(mean), (_rounded(vectors[0]), _rounded(vectors[1])), _rounded(strengths))


def _two_stains(densities: Floats) -> Floats:
    """(2, 3) the purest colours in the plane in which most of the densities lie (Macenko et al. 2009)."""
    _, axes = np.linalg.eigh(np.cov(densities.T))
    plane = axes[:, [2, 1]]
    plane = plane * np.where(plane.sum(axis=0) < 0, -1.0, 1.0)
    first, second = (densities @ plane).T
    angles = np.quantile(np.arctan2(second, first), ENDS)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1) @ plane.T
    return np.asarray(vectors[np.argsort(-vectors[:, 0], kind="stable")])


def _rounded(values: Floats) -> Any:
    return tuple(round(float(value), DIGITS) for value in values)


def exchange(own: Stains, wanted: Stains, method: str) -> Matrix:
    """The matrix that turns densities of tissue stained like ``own`` (as columns) into those of ``wanted``.

    >>> own, wanted = Stains((0.2, 0.4, 0.2), None, None), Stains((0.3, 0.4, 0.1), None, None)
    >>> exchange(own, wanted, "strength")
    ((1.5, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.5))
    """
    if method == STRENGTH:
        matrix = np.diag(np.array(wanted.density) / np.array(own.density))
    elif own.vectors is None or own.strengths is None:
        raise StainError("the tissue shows one stain only")
    elif wanted.vectors is None or wanted.strengths is None:
        raise StainError("the training sections show one stain only")
    else:
        scale = np.array(wanted.strengths) / np.array(own.strengths)
        matrix = np.array(wanted.vectors).T @ np.diag(scale) @ np.linalg.pinv(np.array(own.vectors).T)
    red, green, blue = (_rounded(row) for row in matrix)
    return red, green, blue
