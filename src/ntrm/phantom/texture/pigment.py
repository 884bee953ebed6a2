"""Melanin: brown grains in the basal layer, and macrophages that took them up in the dermis below."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ntrm.phantom.noise import Field, derive
from ntrm.phantom.texture.scene import Positions, cells_at

BROWN = (0.45, 0.70, 0.95)
"""Optical density of melanin per channel (red, green, blue), at concentration 1."""

_MACROPHAGE_SPACING_UM, _MACROPHAGE_RADIUS_UM = 34.0, 6.5
_MACROPHAGE_DENSITY = np.float32(0.55)
_MINUS_LN10 = np.float32(-math.log(10))


def melanin_density(
    seed: int, basal: Field, macrophages: Field, patch: Field, y_um: Positions, x_um: Positions
) -> Field:
    """Concentration of melanin: ``basal`` here and there, and whole macrophages on a fraction of their sites."""
    density = np.asarray(basal * np.clip(0.6 + 0.5 * patch, 0.0, 1.3), dtype=np.float32)
    at = np.nonzero(macrophages * (patch > 0))
    if at[0].size:
        cells = cells_at(derive(seed, "melanophages"), y_um[at], x_um[at], _MACROPHAGE_SPACING_UM)
        inside = np.clip((_MACROPHAGE_RADIUS_UM * (0.6 + 0.8 * cells.mark) - cells.centre_um) / 2.0, 0.0, 1.0)
        # The marks of sites without a macrophage lie above the fraction.
        density[at] += _MACROPHAGE_DENSITY * inside * (cells.mark < macrophages[at])
    return density


def through_melanin(density: Field) -> NDArray[np.float32]:
    """Fraction of the light (…, 3) that passes."""
    return np.asarray(np.exp(density[..., None] * (_MINUS_LN10 * np.array(BROWN, dtype=np.float32))))
