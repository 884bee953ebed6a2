"""What colours the light: haematoxylin and eosin (concentrations → optical density → colour), ink on the margin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from scipy.special import ndtri

from ntrm.core.labels import Mask
from ntrm.core.pixels import block_means
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.noise import Field, derive, field, generator, octaves
from ntrm.phantom.texture.scene import CoarseMap, blur
from ntrm.phantom.texture.table import BASALOID, DERMAL, EMPTY, members

Vector = tuple[float, ...]  # Of red, green and blue

HAEMATOXYLIN: Vector = (0.42, 0.88, 0.24)  # Mean absorption per channel (red, green, blue), as a direction: blue-violet

EOSIN: Vector = (0.02, 0.97, 0.19)  # Mean absorption of eosin: pink, almost blind to red

_LABORATORY_SPREAD, _PATIENT_SPREAD = 1.0, 0.35
"""Laboratories differ more (recipe, scanner) than patients of one laboratory (thickness, fixation)."""

MINUS_LN10 = np.float32(-math.log(10))

INKS: dict[str, Vector] = {"blue": (1.0, 0.62, 0.20), "green": (0.90, 0.35, 0.55), "black": (0.80, 0.80, 0.72)}
"""Optical density per channel."""

_INK_GRID_UM = 6.7
_CRUST_UM = 14.0  # Thickness of the inked crust: standard deviation of the blur around the edge
_CRUMB_UM, _ARC_UM = 80.0, 1800.0
_CUT = DERMAL + members(*BASALOID) - members("crust")
"""Tissue that a knife opens: ink sits on it, not on the skin's own surface."""


@dataclass(frozen=True)
class Stain:
    """How one section was stained and lit.

    >>> Stain().transmit(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.float32)).round().tolist()
    [[[253.0, 252.0, 253.0]]]
    """

    haematoxylin: Vector = HAEMATOXYLIN
    eosin: Vector = EOSIN
    haematoxylin_strength: float = 1.0
    eosin_strength: float = 1.0
    illumination: Vector = (253.0, 252.0, 253.0)  # Colour of empty glass

    @classmethod
    def draw(cls, patient_seed: int, laboratory_seed: int) -> Stain:
        """A stain that varies with the laboratory and, less, with the patient."""
        offsets = _LABORATORY_SPREAD * generator(laboratory_seed, "laboratory").uniform(-1, 1, 11)
        offsets = offsets + _PATIENT_SPREAD * generator(patient_seed, "patient").uniform(-1, 1, 11)
        return cls(
            haematoxylin=_tilt(HAEMATOXYLIN, offsets[0:3] * (0.07, 0.05, 0.06)),
            eosin=_tilt(EOSIN, offsets[3:6] * (0.025, 0.04, 0.06)),
            haematoxylin_strength=float(np.exp(0.18 * offsets[6])),
            eosin_strength=float(np.exp(0.20 * offsets[7])),
            illumination=tuple(np.clip(np.array((252.0, 251.0, 252.0)) + 2.5 * offsets[8:11], 200.0, 255.0).tolist()),
        )

    def transmit(self, haematoxylin: Field, eosin: Field) -> NDArray[np.float32]:
        """Colour (…, 3), 0 to 255, of light that passed these concentrations (Beer–Lambert)."""
        out = np.empty((*haematoxylin.shape, 3), dtype=np.float32)
        of_h = _unit(self.haematoxylin) * self.haematoxylin_strength
        of_e = _unit(self.eosin) * self.eosin_strength
        for channel, light in enumerate(self.illumination):
            density = haematoxylin * np.float32(of_h[channel]) + eosin * np.float32(of_e[channel])
            out[..., channel] = np.float32(light) * np.exp(MINUS_LN10 * density)
        return out


def _unit(vector: Vector) -> NDArray[np.float64]:
    return np.asarray(np.asarray(vector) / math.hypot(*vector))


def _tilt(vector: Vector, offset: NDArray[np.float64]) -> Vector:
    return tuple(np.maximum(_unit(vector) + offset, 0.0).tolist())


@dataclass(frozen=True)
class Ink:
    """Where a section's margin carries ink, and of which colour."""

    seed: int
    density: Vector
    margin: CoarseMap

    @classmethod
    def on(cls, mask: Mask, mpp: float, seed: int, fraction: float) -> Ink:
        """Ink on about this ``fraction`` of the cut margin, in arcs."""
        factor = max(1, round(_INK_GRID_UM / mpp))
        step = mpp * factor
        # Holes and tears inside the section were not there when it was painted.
        outside = ~ndimage.binary_fill_holes(block_means(EMPTY[mask], (factor, factor)) < 0.5)
        near_outside = blur(outside.astype(np.float32), _CRUST_UM / step)
        near_cut = blur(block_means(_CUT[mask], (factor, factor)), _CRUST_UM / step)
        arcs = field(derive(seed, "arcs"), outside.shape, step, _ARC_UM)
        # A standard normal field exceeds this level on ``fraction`` of its area.
        margin = np.minimum(4.0 * near_outside * near_cut, 1.0) * (arcs > float(ndtri(1.0 - fraction)))
        colour = generator(seed, "ink").choice(list(INKS))
        return cls(seed, INKS[colour], CoarseMap(margin.astype(np.float32), step))

    def transmission(self, window: PhantomGrid) -> NDArray[np.float32] | None:
        """Fraction of the light (H, W, 3) that the ink lets through; None where there is no ink."""
        margin = self.margin.over(window)
        if not margin.any():
            return None
        seed = derive(self.seed, "crumbs")
        crumbs = octaves(seed, window.shape, window.mpp, _CRUMB_UM, count=3, gain=0.9, origin_um=window.origin_um)
        amount = np.clip(2.0 * (margin - 0.8) + 1.1 * crumbs, 0.0, 1.0) * margin
        scale = MINUS_LN10 * np.asarray(self.density, dtype=np.float32)
        return np.asarray(np.exp(amount[..., None] * scale))
