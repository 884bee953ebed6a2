"""What is known of a section because it was drawn: cancers, where the surface faces, clearance and depth."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, binary_erosion
from scipy.spatial import cKDTree

from ntrm.core.labels import CANCERS, SKIN, Mask
from ntrm.phantom.anatomy.frame import BCC, IEC, SCC, Where
from ntrm.phantom.noise import Field

NO_SURFACE = "no skin surface in the section"
NO_MARGIN = "fragmented: the cut margin cannot be told"
IN_SITU_ONLY = "in situ only: nothing invades"
NO_TUMOUR = "no tumour in the section"


@dataclass(frozen=True)
class SectionTruth:
    """The facts a pathologist would report; what cannot be given is None, with the reason beside it.

    The surface direction is where the skin's outer side faces on average: 0° the top of the picture, 90° its right
    side, clockwise, below 360. Clearance is the smallest distance from tumour to a cut edge of the section, deep or
    lateral, never to the natural surface, a tear or a hole; 0 where the tumour is cut through. Depth is the greatest
    distance of invasive tumour (BCC, SCC) below the natural surface, keratin not counted.
    """

    cancers: tuple[str, ...]
    surface_deg: float | None
    surface_reason: str
    clearance_um: float | None
    clearance_reason: str
    depth_um: float | None
    depth_reason: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"cancers": list(self.cancers)}


@dataclass(frozen=True)
class Survey:
    """A painted section on the grid that truth is measured on."""

    mask: Mask
    mpp: float
    depth: Field
    """µm below the natural surface."""
    uncut: Where
    """Where no knife took the tissue away; tears and holes do not count as cuts."""
    has_surface: bool
    has_margin: bool


def measure(survey: Survey) -> SectionTruth:
    """Truth of one section."""
    invasive = (survey.mask == BCC) | (survey.mask == SCC)
    tumour = invasive | (survey.mask == IEC)
    surface_reason = "" if survey.has_surface else NO_SURFACE
    clearance_reason = surface_reason or ("" if survey.has_margin else NO_MARGIN) or ("" if tumour.any() else NO_TUMOUR)
    depth_reason = surface_reason or ("" if invasive.any() else IN_SITU_ONLY)
    surface = survey.uncut & (survey.depth <= 0) & (survey.depth > -2.0 * survey.mpp)
    return SectionTruth(
        cancers=tuple(name for name in CANCERS if (survey.mask == SKIN.index(name)).any()),
        surface_deg=None if surface_reason else _facing(survey.depth, surface),
        surface_reason=surface_reason,
        clearance_um=None if clearance_reason else _clearance(survey, tumour),
        clearance_reason=clearance_reason,
        depth_um=None if depth_reason else _rounded(_distances(invasive, surface).max() * survey.mpp),
        depth_reason=depth_reason,
    )


def _facing(depth: Field, surface: Where) -> float:
    """Direction of the mean outward normal along the surface."""
    down, right = np.gradient(depth, axis=0), np.gradient(depth, axis=1)
    length = np.hypot(down[surface], right[surface])
    north, east = (down[surface] / length).mean(dtype=np.float64), (-right[surface] / length).mean(dtype=np.float64)
    return _rounded(math.degrees(math.atan2(east, north))) % 360.0


def _clearance(survey: Survey, tumour: Where) -> float:
    """Distance between the tumour's nearest pixel and the nearest pixel that the knife took."""
    below = survey.depth > 0
    taken = below & ~survey.uncut & binary_dilation(survey.uncut & below)
    # Neighbouring pixels are one pixel apart although nothing lies between them.
    return _rounded(max(_distances(tumour, taken).min() - 1.0, 0.0) * survey.mpp)


def _distances(of: Where, to: Where) -> NDArray[np.float64]:
    """Distance in pixels from the outline of one region to the nearest pixel of another."""
    outline = of & ~binary_erosion(of)
    distances, _ = cKDTree(np.argwhere(to)).query(np.argwhere(outline))
    return np.asarray(distances)


def _rounded(value: float) -> float:
    # A tenth of a µm or a degree is finer than the grid can tell.
    return round(float(value), 1)
