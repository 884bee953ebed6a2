"""What cutting, mounting and time do to a section: tears, holes, loose bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ntrm.phantom.anatomy.frame import BCC, BKG, EPI, FOL, GLD, HYP, IEC, INF, KER, PAP, RET, SCC, Skin
from ntrm.phantom.anatomy.layers import Span, between, spread
from ntrm.phantom.anatomy.shapes import Blob, Streak, paint
from ntrm.phantom.anatomy.specimen import Specimen
from ntrm.phantom.noise import generator

TISSUE = (EPI, GLD, INF, RET, FOL, PAP, HYP, KER, BCC, SCC, IEC)


@dataclass(frozen=True)
class DamageParameters:
    """How often and how large; lengths in µm."""

    tears_per_mm: float = 0.12
    tear_length: Span = (250.0, 1600.0)
    tear_width: Span = (6.0, 60.0)
    splits: tuple[int, int] = (1, 3)
    """Gaps through the whole section where the tissue came in pieces."""
    split_width: Span = (40.0, 150.0)
    holes_per_mm2: float = 0.12
    hole_radius: Span = (12.0, 70.0)
    keratin_bits_per_mm: float = 0.12
    keratin_bit_radius: Span = (15.0, 60.0)
    keratin_bit_height: Span = (120.0, 380.0)
    deep_bits_per_mm: float = 0.12
    deep_bit_radius: Span = (30.0, 130.0)
    deep_bit_distance: Span = (60.0, 320.0)


@dataclass(frozen=True)
class Damage:
    """The bodies of one section."""

    tears: tuple[Streak, ...]
    holes: tuple[Blob, ...]
    keratin_bits: tuple[Blob, ...]
    deep_bits: tuple[Blob, ...]
    deep_tissue: np.uint8


def draw_damage(seed: int, specimen: Specimen, kind: DamageParameters) -> Damage:
    """Damage to one specimen; one that came in pieces is split through its whole depth."""
    rng = generator(seed, "damage")
    length_mm = 2e-3 * specimen.half_um
    area_mm2 = 1e-3 * length_mm * specimen.depth_um
    splits = int(rng.integers(*kind.splits, endpoint=True)) if specimen.fragmented else 0
    tears = [_draw_tear(rng, specimen, kind) for _ in range(rng.poisson(length_mm * kind.tears_per_mm))]
    tears += [_draw_split(rng, specimen, kind) for _ in range(splits)]
    holes = [_draw_hole(rng, specimen, kind) for _ in range(rng.poisson(area_mm2 * kind.holes_per_mm2))]
    flakes = [_draw_flake(rng, specimen, kind) for _ in range(rng.poisson(length_mm * kind.keratin_bits_per_mm))]
    crumbs = [_draw_crumb(rng, specimen, kind) for _ in range(rng.poisson(length_mm * kind.deep_bits_per_mm))]
    tissue = HYP if specimen.biopsy.fatty else RET
    return Damage(tuple(tears), tuple(holes), tuple(flakes), tuple(crumbs), tissue)


def _along(rng: np.random.Generator, specimen: Specimen) -> float:
    return specimen.half_um * between(rng, (-0.95, 0.95))


def _draw_tear(rng: np.random.Generator, specimen: Specimen, kind: DamageParameters) -> Streak:
    """A crack inside the tissue, or one that gapes at the deep cut."""
    depth = specimen.depth_um
    length, width = min(spread(rng, kind.tear_length), depth), spread(rng, kind.tear_width)
    bend = between(rng, (-0.3, 0.3))
    if rng.random() < 0.5:
        lean, radii = between(rng, (-30.0, 30.0)), (0.5, 0.5 * width, width)
        return Streak(_along(rng, specimen), depth - 0.6 * length, length, lean, radii, bend, roughness=0.25)
    lean, radii = between(rng, (20.0, 110.0)), (0.5, width, 0.5)
    return Streak(_along(rng, specimen), depth * between(rng, (0.0, 0.7)), length, lean, radii, bend, roughness=0.25)


def _draw_split(rng: np.random.Generator, specimen: Specimen, kind: DamageParameters) -> Streak:
    """A gap from above the surface to below the deep cut."""
    radius = 0.5 * spread(rng, kind.split_width)
    return Streak(
        top_u_um=0.6 * _along(rng, specimen),
        top_v_um=-1200.0,
        length_um=1.7 * specimen.depth_um + 1800.0,
        lean_deg=between(rng, (-25.0, 25.0)),
        radii_um=(1.6 * radius, radius, 1.3 * radius),
        bend=between(rng, (-0.1, 0.1)),
        roughness=0.25,
    )


def _draw_hole(rng: np.random.Generator, specimen: Specimen, kind: DamageParameters) -> Blob:
    depth = specimen.depth_um * between(rng, (0.1, 0.95))
    return Blob(_along(rng, specimen), depth, spread(rng, kind.hole_radius), flatness=between(rng, (0.4, 2.5)))


def _draw_flake(rng: np.random.Generator, specimen: Specimen, kind: DamageParameters) -> Blob:
    """A bit of keratin above the surface."""
    height, radius = between(rng, kind.keratin_bit_height), spread(rng, kind.keratin_bit_radius)
    tilt = between(rng, (-90.0, 90.0))
    return Blob(_along(rng, specimen), -height, radius, between(rng, (1.0, 5.0)), tilt, roughness=0.2)


def _draw_crumb(rng: np.random.Generator, specimen: Specimen, kind: DamageParameters) -> Blob:
    """A bit of deep tissue beyond the cut."""
    u, radius = _along(rng, specimen), spread(rng, kind.deep_bit_radius)
    depth = specimen.cut_at(u) + between(rng, kind.deep_bit_distance)
    return Blob(u, depth, radius, between(rng, (1.0, 4.0)), between(rng, (-90.0, 90.0)), roughness=0.2)


def paint_damage(skin: Skin, damage: Damage) -> None:
    """Take away what is torn, add what floats beside."""
    paint(skin, damage.tears, BKG, over=TISSUE)
    paint(skin, damage.holes, BKG, over=TISSUE)
    paint(skin, damage.keratin_bits, KER, over=(BKG,))
    paint(skin, damage.deep_bits, damage.deep_tissue, over=(BKG,))
