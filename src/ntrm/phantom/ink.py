"""Surgical ink: the surgeon's margin, painted before cutting, seen as coloured crumbs along the cut edge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.labels import Mask
from ntrm.phantom import noise
from ntrm.phantom.noise import derive, generator
from ntrm.phantom.stain import Vector
from ntrm.phantom.texture.grid import CoarseMap, Window, block_mean
from ntrm.phantom.texture.table import BASALOID, DERMAL, EMPTY, members

_GRID_UM = 6.7
_CRUST_UM = 14.0
"""Thickness of the inked crust: standard deviation of the blur around the edge."""
_CRUMB_UM, _ARC_UM = 80.0, 1800.0

INKS: dict[str, Vector] = {"blue": (1.0, 0.62, 0.20), "green": (0.90, 0.35, 0.55), "black": (0.80, 0.80, 0.72)}
"""Optical density per channel."""

_CUT = DERMAL + members(*BASALOID)
"""Tissue that a knife opens: ink sits on it, not on the skin's own surface."""


@dataclass(frozen=True)
class Ink:
    """Where a section's margin carries ink, and of which colour."""

    seed: int
    density: Vector
    margin: CoarseMap

    @classmethod
    def on(cls, mask: Mask, mpp: float, seed: int, share: float) -> Ink:
        """Ink on about ``share`` of the cut margin, in arcs."""
        factor = max(1, round(_GRID_UM / mpp))
        step = mpp * factor
        # Holes and tears inside the section were not there when it was painted.
        outside = ~ndimage.binary_fill_holes(block_mean(EMPTY[mask], factor) < 0.5)
        near_outside = _blur(outside.astype(np.float32), step)
        near_cut = _blur(block_mean(_CUT[mask], factor), step)
        arcs = noise.field(derive(seed, "arcs"), outside.shape, step, _ARC_UM)
        margin = np.minimum(4.0 * near_outside * near_cut, 1.0) * (arcs > _threshold(share))
        colour = generator(seed, "ink").choice(list(INKS))
        return cls(seed, INKS[colour], CoarseMap(margin.astype(np.float32), step))

    def transmission(self, window: Window) -> NDArray[np.float32] | None:
        """Share of light (H, W, 3) that the ink lets through; None where there is no ink."""
        margin = self.margin.over(window)
        if not margin.any():
            return None
        seed = derive(self.seed, "crumbs")
        crumbs = noise.octaves(seed, window.shape, window.mpp, _CRUMB_UM, count=3, gain=0.9, origin_um=window.origin_um)
        amount = np.clip(2.0 * (margin - 0.8) + 1.1 * crumbs, 0.0, 1.0) * margin
        scale = np.float32(-math.log(10)) * np.asarray(self.density, dtype=np.float32)
        return np.asarray(np.exp(amount[..., None] * scale))


def _threshold(share: float) -> float:
    """Level that a standard normal field exceeds on ``share`` of its area."""
    if share >= 1.0:
        return -math.inf
    return NormalDist().inv_cdf(1.0 - share) if share > 0.0 else math.inf


def _blur(values: NDArray[np.float32], step: float) -> NDArray[np.float32]:
    return np.asarray(ndimage.gaussian_filter(values, _CRUST_UM / step, mode="nearest", truncate=3.0), dtype=np.float32)
