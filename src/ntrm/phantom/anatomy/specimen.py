"""The piece of skin that the knife took: its kind, its size and shape, how it lies in the picture, and its damage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ntrm.core.labels import SKIN
from ntrm.phantom.anatomy.bodies import Blob, Streak, Structure
from ntrm.phantom.anatomy.frame import BKG, HYP, KER, RET, Axis, Curve, Fold, Frame
from ntrm.phantom.anatomy.layers import Span, between, scatter, spread
from ntrm.phantom.noise import derive, generator, profile

NORMAL = "none"  # The cancer of a section without one


@dataclass(frozen=True)
class Biopsy:
    """One way of taking skin. Lengths in µm, along the surface and into the depth."""

    name: str
    length: Span
    thickness: Span
    squareness: Span  # Exponent of the outline: 2 is an ellipse that tapers to its ends, 6 nearly a box
    bend: Span  # Length over radius of curvature
    stiffness: float  # Smallest radius of curvature over thickness
    fatty: bool  # Whether it reaches into the fat


SHAVE = Biopsy("shave", (3200.0, 8000.0), (320.0, 950.0), (1.7, 2.8), (0.1, 1.5), stiffness=2.2, fatty=False)
PUNCH = Biopsy("punch", (2600.0, 4600.0), (2400.0, 4400.0), (5.0, 9.0), (0.0, 0.4), stiffness=9.0, fatty=True)
EXCISION = Biopsy("excision", (5000.0, 12000.0), (2200.0, 5200.0), (2.6, 6.0), (0.0, 0.8), stiffness=5.0, fatty=True)
BIOPSIES = (SHAVE, PUNCH, EXCISION)


@dataclass(frozen=True)
class Sampling:
    """How the skin of one kind of section is taken."""

    biopsies: tuple[float, float, float]  # Chances of a shave, a punch and an excision
    size: float = 1.0  # Factor of the biopsy's length and thickness
    keeps_surface: bool = False  # Whether the section always shows the skin surface


SAMPLING = {
    "BCC": Sampling((0.35, 0.2, 0.45)),
    "SCC": Sampling((0.25, 0.15, 0.6), size=1.3),  # the largest sections in the real dataset
    "IEC": Sampling((0.4, 0.2, 0.4), size=1.2, keeps_surface=True),  # without it little would be left
    NORMAL: Sampling((0.3, 0.35, 0.35)),
}


@dataclass(frozen=True)
class PictureParameters:
    """Background around the section, in µm."""

    margin: Span = (90.0, 350.0)
    wide_margin: Span = (400.0, 1600.0)
    wide_fraction: float = 0.2


@dataclass(frozen=True)
class SpecimenParameters:
    """How the uncommon happens, and how often."""

    no_surface: float = 0.06
    """The section was cut below the surface and shows none (never in shaves, where little would be left)."""
    top: Span = (150.0, 300.0)  # How far below, in µm
    fragmented: float = 0.04  # The tissue came in pieces and its margins cannot be told
    fold: float = 0.12
    hidden: Span = (30.0, 160.0)  # Skin hidden in a fold, in µm
    hollow: float = 0.25  # The surface is bent inward
    warp: Span = (40.0, 220.0)  # Displacement of the whole picture, in µm


@dataclass(frozen=True)
class Specimen:
    """One piece of skin."""

    biopsy: Biopsy
    half_um: float  # Half its length along the surface
    depth_um: float
    frame: Frame
    axis: Axis
    thickness: Curve  # Depth of the cut below the baseline; far negative beyond the ends of the section
    top_um: float
    """The section begins at this depth below the baseline: far above the surface, unless it was cut below it."""
    fragmented: bool

    @property
    def has_surface(self) -> bool:
        """Whether the natural skin surface is in the section."""
        return self.top_um < 0


NOWHERE_UM = -1e6


def draw_specimen(seed: int, sampling: Sampling, kind: SpecimenParameters) -> Specimen:
    """A specimen as it is taken for one kind of section."""
    rng = generator(seed, "specimen")
    biopsy = BIOPSIES[int(rng.choice(len(BIOPSIES), p=sampling.biopsies))]
    half_um = 0.5 * sampling.size * spread(rng, biopsy.length)
    depth_um = sampling.size * spread(rng, biopsy.thickness)
    axis = Axis(half_um + 500.0)  # Beyond the ends of the section.
    below = biopsy is not SHAVE and not sampling.keeps_surface and rng.random() < kind.no_surface
    radius = max(2.0 * half_um / max(between(rng, biopsy.bend), 0.02), biopsy.stiffness * depth_um)
    # Thin specimens would be torn by a strong warp.
    warp = between(rng, kind.warp) * min(1.0, depth_um / 900.0)
    fold = None
    if rng.random() < kind.fold:
        at = between(rng, (-0.6, 0.6)) * half_um
        fold = Fold(at, between(rng, kind.hidden), step_um=between(rng, (-25.0, 25.0)), lean=between(rng, (-0.5, 0.5)))
    hollow = rng.random() < kind.hollow
    frame = Frame(derive(seed, "frame"), between(rng, (0.0, 360.0)), -radius if hollow else radius, warp, fold=fold)
    power, position = between(rng, biopsy.squareness), axis.u / half_um
    outline = np.maximum(1.0 - np.abs(position) ** power, 0.0) ** (1.0 / power)
    uneven = np.exp(0.16 * profile(derive(seed, "cut"), axis.u, 3500.0)) * (1.0 + between(rng, (-0.2, 0.2)) * position)
    thickness = np.where(np.abs(position) < 1.0, depth_um * outline * uneven, NOWHERE_UM)
    return Specimen(
        biopsy=biopsy,
        half_um=half_um,
        depth_um=depth_um,
        frame=frame,
        axis=axis,
        thickness=thickness.astype(np.float32),
        top_um=between(rng, kind.top) if below else NOWHERE_UM,
        fragmented=not below and rng.random() < kind.fragmented,
    )


@dataclass(frozen=True)
class DamageParameters:
    """How often cutting, mounting and time damage a section, and how much; lengths in µm."""

    tears_per_mm: float = 0.12
    tear_length: Span = (250.0, 1600.0)
    tear_width: Span = (6.0, 60.0)
    splits: tuple[int, int] = (1, 3)  # Gaps through the whole section where the tissue came in pieces
    split_width: Span = (40.0, 150.0)
    holes_per_mm2: float = 0.12
    hole_radius: Span = (12.0, 70.0)
    keratin_bits_per_mm: float = 0.12
    keratin_bit_radius: Span = (15.0, 60.0)
    keratin_bit_height: Span = (120.0, 380.0)
    deep_bits_per_mm: float = 0.12
    deep_bit_radius: Span = (30.0, 130.0)
    deep_bit_distance: Span = (60.0, 320.0)


def draw_damage(seed: int, specimen: Specimen, kind: DamageParameters) -> tuple[Structure, ...]:
    """Tears, holes and loose bits of one specimen; one that came in pieces is split through its whole depth."""
    rng = generator(seed, "damage")
    length_mm = 2e-3 * specimen.half_um
    area_mm2 = 1e-3 * length_mm * specimen.depth_um
    splits = int(rng.integers(*kind.splits, endpoint=True)) if specimen.fragmented else 0

    def along() -> float:
        return specimen.half_um * between(rng, (-0.95, 0.95))

    def tear() -> Streak:
        """A crack inside the tissue, or one that gapes at the deep cut."""
        length, width = min(spread(rng, kind.tear_length), specimen.depth_um), spread(rng, kind.tear_width)
        bend = between(rng, (-0.3, 0.3))
        if rng.random() < 0.5:
            lean, radii = between(rng, (-30.0, 30.0)), (0.5, 0.5 * width, width)
            u_um, v_um = along(), specimen.depth_um - 0.6 * length
        else:
            lean, radii = between(rng, (20.0, 110.0)), (0.5, width, 0.5)
            u_um, v_um = along(), specimen.depth_um * between(rng, (0.0, 0.7))
        return Streak(u_um, v_um, length, lean, radii, bend, roughness=0.25)

    def split() -> Streak:
        radius, u_um = 0.5 * spread(rng, kind.split_width), 0.6 * along()
        lean, radii = between(rng, (-25.0, 25.0)), (1.6 * radius, radius, 1.3 * radius)
        length = 1.7 * specimen.depth_um + 1800.0
        return Streak(u_um, -1200.0, length, lean, radii, bend=between(rng, (-0.1, 0.1)), roughness=0.25)

    def hole() -> Blob:
        depth = specimen.depth_um * between(rng, (0.1, 0.95))
        return Blob(along(), depth, spread(rng, kind.hole_radius), flatness=between(rng, (0.4, 2.5)))

    def flake() -> Blob:
        height, radius = between(rng, kind.keratin_bit_height), spread(rng, kind.keratin_bit_radius)
        tilt = between(rng, (-90.0, 90.0))
        return Blob(along(), -height, radius, between(rng, (1.0, 5.0)), tilt, roughness=0.2)

    def crumb() -> Blob:
        u, radius = along(), spread(rng, kind.deep_bit_radius)
        depth = specimen.axis.value(specimen.thickness, u) + between(rng, kind.deep_bit_distance)
        return Blob(u, depth, radius, between(rng, (1.0, 4.0)), between(rng, (-90.0, 90.0)), roughness=0.2)

    tears = scatter(rng, length_mm * kind.tears_per_mm, tear) + [split() for _ in range(splits)]
    holes = scatter(rng, area_mm2 * kind.holes_per_mm2, hole)
    flakes = scatter(rng, length_mm * kind.keratin_bits_per_mm, flake)
    crumbs = scatter(rng, length_mm * kind.deep_bits_per_mm, crumb)
    tissue = tuple(np.uint8(index) for index in range(len(SKIN)) if index != BKG)
    return (
        Structure("tears", tears, BKG, over=tissue),
        Structure("holes", holes, BKG, over=tissue),
        Structure("keratin bits", flakes, KER, over=(BKG,)),
        Structure("deep bits", crumbs, HYP if specimen.biopsy.fatty else RET, over=(BKG,)),
    )
