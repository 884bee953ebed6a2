"""The piece of skin that the knife took: its kind, its size and shape, how it lies in the picture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ntrm.phantom.anatomy.frame import Axis, Curve, Fold, Frame
from ntrm.phantom.anatomy.layers import Span, between, spread
from ntrm.phantom.noise import derive, generator, profile


@dataclass(frozen=True)
class Biopsy:
    """One way of taking skin. Lengths in µm, along the surface and into the depth."""

    name: str
    length: Span
    thickness: Span
    squareness: Span
    """Exponent of the outline: 2 is an ellipse that tapers to its ends, 6 nearly a box."""
    bend: Span
    """Length over radius of curvature."""
    stiffness: float
    """Smallest radius of curvature over thickness."""
    fatty: bool
    """Whether it reaches into the fat."""


SHAVE = Biopsy("shave", (3200.0, 8000.0), (320.0, 950.0), (1.7, 2.8), (0.1, 1.5), stiffness=2.2, fatty=False)
PUNCH = Biopsy("punch", (2600.0, 4600.0), (2400.0, 4400.0), (5.0, 9.0), (0.0, 0.4), stiffness=9.0, fatty=True)
EXCISION = Biopsy("excision", (5000.0, 12000.0), (2200.0, 5200.0), (2.6, 6.0), (0.0, 0.8), stiffness=5.0, fatty=True)
BIOPSIES = (SHAVE, PUNCH, EXCISION)

BIOPSY_WEIGHTS = {"BCC": (0.35, 0.2, 0.45), "SCC": (0.25, 0.15, 0.6), "IEC": (0.4, 0.2, 0.4)}
"""How often each kind of biopsy is taken, by cancer."""

SIZE_FACTORS = {"BCC": 1.0, "SCC": 1.3, "IEC": 1.2}
"""Sections with SCC are the largest in the real dataset."""


@dataclass(frozen=True)
class SpecimenParameters:
    """How the uncommon happens, and how often."""

    no_surface: float = 0.06
    """The section was cut below the surface and shows none (never in shaves and IEC, where little would be left)."""
    top: Span = (150.0, 300.0)
    """How far below, in µm."""
    fragmented: float = 0.04
    """The tissue came in pieces and its margins cannot be told."""
    fold: float = 0.12
    hidden: Span = (30.0, 160.0)
    """Skin hidden in a fold, in µm."""
    hollow: float = 0.25
    """The surface is bent inward."""
    warp: Span = (40.0, 220.0)
    """Displacement of the whole picture, in µm."""


@dataclass(frozen=True)
class Specimen:
    """One piece of skin."""

    biopsy: Biopsy
    half_um: float
    """Half its length along the surface."""
    depth_um: float
    frame: Frame
    axis: Axis
    thickness: Curve
    """Depth of the cut below the baseline; far negative beyond the ends of the section."""
    top_um: float
    """The section begins at this depth below the baseline: far above the surface, unless it was cut below it."""
    fragmented: bool

    def cut_at(self, u_um: float) -> float:
        """Depth of the cut below the baseline at one place."""
        return float(self.thickness[self.axis.index(np.array([u_um]))[0]])

    @property
    def has_surface(self) -> bool:
        """Whether the natural skin surface is in the section."""
        return self.top_um < 0


NOWHERE_UM = -1e6
BEYOND_ENDS_UM = 500.0


def draw_specimen(seed: int, cancer: str, kind: SpecimenParameters) -> Specimen:
    """A specimen as it is taken for this cancer."""
    rng = generator(seed, "specimen")
    biopsy = BIOPSIES[int(rng.choice(len(BIOPSIES), p=BIOPSY_WEIGHTS[cancer]))]
    half_um = 0.5 * SIZE_FACTORS[cancer] * spread(rng, biopsy.length)
    depth_um = SIZE_FACTORS[cancer] * spread(rng, biopsy.thickness)
    axis = Axis(half_um + BEYOND_ENDS_UM)
    below = biopsy is not SHAVE and cancer != "IEC" and rng.random() < kind.no_surface
    return Specimen(
        biopsy=biopsy,
        half_um=half_um,
        depth_um=depth_um,
        frame=_draw_frame(seed, rng, biopsy, half_um, depth_um, kind),
        axis=axis,
        thickness=_draw_thickness(seed, rng, biopsy, axis, half_um, depth_um),
        top_um=between(rng, kind.top) if below else NOWHERE_UM,
        fragmented=not below and rng.random() < kind.fragmented,
    )


def _draw_frame(
    seed: int, rng: np.random.Generator, biopsy: Biopsy, half_um: float, depth_um: float, kind: SpecimenParameters
) -> Frame:
    radius = max(2.0 * half_um / max(between(rng, biopsy.bend), 0.02), biopsy.stiffness * depth_um)
    # Thin specimens would be torn by a strong warp.
    warp = between(rng, kind.warp) * min(1.0, depth_um / 900.0)
    fold = None
    if rng.random() < kind.fold:
        at = between(rng, (-0.6, 0.6)) * half_um
        fold = Fold(at, between(rng, kind.hidden), step_um=between(rng, (-25.0, 25.0)), lean=between(rng, (-0.5, 0.5)))
    hollow = rng.random() < kind.hollow
    return Frame(derive(seed, "frame"), between(rng, (0.0, 360.0)), -radius if hollow else radius, warp, fold=fold)


def _draw_thickness(
    seed: int, rng: np.random.Generator, biopsy: Biopsy, axis: Axis, half_um: float, depth_um: float
) -> Curve:
    power = between(rng, biopsy.squareness)
    place = axis.u / half_um
    outline = np.maximum(1.0 - np.abs(place) ** power, 0.0) ** (1.0 / power)
    uneven = np.exp(0.16 * profile(derive(seed, "cut"), axis.u, 3500.0)) * (1.0 + between(rng, (-0.2, 0.2)) * place)
    return np.where(np.abs(place) < 1.0, depth_um * outline * uneven, NOWHERE_UM).astype(np.float32)
