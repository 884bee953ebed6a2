"""Orientation: where the skin surface faces, and so by which angle to turn the picture to put the surface up.

The direction is that of the mean outward normal along the surface: 0° faces the top of the picture, 90° its right
side, clockwise. A stretch weighs by its length as seen from that side: the flanks of a bulge count no more than the
skin that it stands on. (By plain length the normals would add up to the normal of the line between the surface's ends,
so that half a bulge at a cut would turn the whole piece.)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.analysis.measured import Measured, not_assessed
from ntrm.analysis.outline import SMOOTH_UM, Outline, trace_outline
from ntrm.core.labels import LabelSchema, Mask
from ntrm.core.mpp import Resolution

NAME = "orientation"
ALL_AROUND = "the surface faces all sides: none is up"
LEAST_AGREEMENT = 0.2
"""Length of the mean of unit normals below which they agree on no side; a half circle has 0.64."""


def orientation(mask: Mask, schema: LabelSchema, resolution: Resolution) -> Measured:
    """Degrees from the top of the picture, clockwise, in which the surface faces.

    The picture turned anticlockwise by as much has the surface up. The line runs from one end of the surface to the
    other.
    """
    return orientation_of(trace_outline(mask, schema, resolution))


def orientation_of(around: Outline) -> Measured:
    """The same, given the outline."""
    if around.reason:
        return not_assessed(NAME, around.reason, "degrees")
    places = around.surface
    normals, lengths = _normals(places * around.scale_um, around)
    mean = (normals * lengths[:, None]).sum(axis=0)
    agreement = float(np.hypot(*mean)) / float(lengths.sum())
    if agreement < LEAST_AGREEMENT:
        return not_assessed(NAME, ALL_AROUND, "degrees")
    seen = np.maximum(normals @ (mean / np.hypot(*mean)), 0.0)
    row, column = (normals * (lengths * seen)[:, None]).sum(axis=0).tolist()
    ends = tuple((float(at[0]), float(at[1])) for at in (places[0], places[-1]))
    return Measured(NAME, math.degrees(math.atan2(column, -row)) % 360.0, "degrees", line=(ends[0], ends[1]))


def _normals(places_um: NDArray[np.float64], around: Outline) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Outward unit normals of the steps along the surface, smoothed, and the lengths of the steps in µm."""
    steps = np.diff(places_um, axis=0)
    across = np.stack([-steps[:, 1], steps[:, 0]], axis=1)
    if float(across.sum(axis=0) @ around.normals[around.is_surface].sum(axis=0)) < 0:
        across = -across
    width = max(int(SMOOTH_UM / float(around.step_um.mean())), 1)
    smooth = ndimage.uniform_filter1d(across, min(width, len(across)), axis=0, mode="nearest")
    length = np.hypot(*smooth.T)[:, None]
    unit = np.divide(smooth, length, out=np.zeros_like(smooth), where=length > 0)
    return unit, np.hypot(*steps.T)
