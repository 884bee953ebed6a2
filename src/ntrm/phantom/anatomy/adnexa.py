"""Hair follicles with their sebaceous glands and muscles, and the coils and ducts of sweat glands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ntrm.phantom.anatomy.bodies import Blob, Streak, Structure
from ntrm.phantom.anatomy.frame import EPI, FOL, GLD, HYP, INF, KER, PAP, RET, Body
from ntrm.phantom.anatomy.layers import Span, between, scatter, spread
from ntrm.phantom.noise import generator


@dataclass(frozen=True)
class AdnexaParameters:
    """How many and how large; lengths in µm."""

    follicles_per_mm: float = 0.34
    follicle_length: Span = (350.0, 1500.0)
    follicle_radius: Span = (50.0, 130.0)
    lean_deg: Span = (-35.0, 35.0)  # Hairs of one section lean the same way
    mouth_um: float = 50.0  # Follicles that begin above this depth open at the surface
    fragment_depth: Span = (150.0, 700.0)
    surface_fraction: float = 0.5
    """Fraction of follicles cut lengthwise from the surface; of the others only a deeper piece is in the section."""
    sebaceous_fraction: float = 0.6
    sebaceous_radius: Span = (80.0, 170.0)
    glands_per_mm: float = 0.28
    gland_radius: Span = (150.0, 370.0)
    gland_depth: Span = (400.0, 1500.0)
    halo_fraction: float = 0.2  # Fraction of glands with inflammation around them


@dataclass(frozen=True)
class AdnexaDetails:
    """What version 2 draws of the same adnexa, and beside them; lengths in µm."""

    lobules: tuple[int, int] = (2, 5)  # Lobules of a sebaceous gland
    duct_fraction: float = 0.8  # Fraction of sweat glands whose duct is in the section, in pieces
    duct_pieces: tuple[int, int] = (1, 3)
    duct_radius: Span = (10.0, 17.0)
    muscle_fraction: float = 0.5  # Fraction of follicles whose muscle is in the section
    muscle_radius: Span = (16.0, 42.0)
    muscle_slant_deg: Span = (35.0, 60.0)
    muscle_top: Span = (110.0, 220.0)  # Depth at which the muscle ends, below the papillary dermis or in it
    cross_cut_per_mm: float = 0.12  # Follicles that the section cuts across, with keratin in the middle
    cross_cut_radius: Span = (40.0, 95.0)
    cross_cut_depth: Span = (150.0, 1100.0)
    canal: Span = (0.15, 0.45)  # Radius of that keratin over the follicle's


def draw_adnexa(
    seed: int,
    half_um: float,
    depth_um: float,
    spared: Callable[[Body], bool],
    kind: AdnexaParameters,
    details: AdnexaDetails | None = None,
) -> tuple[Structure, ...]:
    """Adnexa within ``half_um`` of the middle of a section ``depth_um`` deep, where ``spared`` allows them.

    They are painted in this order: glands first, so that a follicle runs past its gland. With ``details`` they have
    lobules, ducts and muscles, and some follicles are cut across.
    """
    rng, length_mm = generator(seed, "adnexa"), 2e-3 * half_um
    lean = between(rng, kind.lean_deg)
    follicles = scatter(rng, length_mm * kind.follicles_per_mm, lambda: _draw_follicle(rng, half_um, lean, kind))
    follicles = [follicle for follicle in follicles if spared(follicle)]
    sebaceous = [_draw_sebaceous(rng, shaft, kind) for shaft in follicles if rng.random() < kind.sebaceous_fraction]
    coils = scatter(
        rng,
        length_mm * kind.glands_per_mm,
        lambda: Blob(
            u_um=half_um * between(rng, (-0.9, 0.9)),
            v_um=between(rng, kind.gland_depth),
            radius_um=spread(rng, kind.gland_radius),
            flatness=between(rng, (0.7, 1.9)),
            tilt_deg=between(rng, (-40.0, 40.0)),
        ),
    )
    sebaceous, coils = (
        [gland for gland in glands if gland.v_um < 0.9 * depth_um and spared(gland)] for glands in (sebaceous, coils)
    )
    glands = [*sebaceous, *coils]
    halos = [replace(gland, radius_um=1.25 * gland.radius_um) for gland in glands if rng.random() < kind.halo_fraction]
    tubes: list[Body] = [*follicles]
    keratin: list[Body] = [
        replace(
            shaft,
            top_v_um=-10.0,
            length_um=0.4 * shaft.length_um,
            radii_um=(0.7 * shaft.radii_um[0], 0.5 * shaft.radii_um[0], 2.0),
            bend=0.4 * shaft.bend,  # The parabola of the whole shaft, over 0.4 of its length.
        )
        for shaft in follicles
        if shaft.top_v_um < kind.mouth_um
    ]
    deep = [Structure("glands", glands, GLD, over=(RET, PAP, INF))]
    if details is not None:
        rng = generator(seed, "details of adnexa")
        lobules = [lobule for gland in sebaceous for lobule in _draw_lobules(rng, gland, details)]
        ducts = [piece for coil in coils for piece in _draw_duct(rng, coil, details)]
        muscles = [_draw_muscle(rng, shaft, details) for shaft in follicles if rng.random() < details.muscle_fraction]
        expected = length_mm * details.cross_cut_per_mm
        rounds = scatter(rng, expected, lambda: _draw_cross_cut(rng, half_um, depth_um, details))
        rounds = [follicle for follicle in rounds if spared(follicle)]
        deep = [
            Structure("muscles", [muscle for muscle in muscles if spared(muscle)], RET, (RET, PAP), "muscle"),
            Structure("sebaceous glands", lobules, GLD, (RET, PAP, INF), "sebaceous"),
            Structure("coils", coils, GLD, (RET, PAP, INF), "eccrine"),
            Structure("ducts", [piece for piece in ducts if spared(piece)], GLD, (RET, PAP, INF), "duct"),
        ]
        tubes += rounds
        keratin += [replace(each, radius_um=each.radius_um * between(rng, details.canal)) for each in rounds]
    return (
        Structure("inflamed halos", halos, INF, over=(RET, PAP)),
        *deep,
        Structure("follicles", tubes, FOL, over=(RET, PAP, INF, HYP, EPI, GLD)),
        Structure("keratin plugs", keratin, KER, over=(FOL, EPI)),
    )


def _draw_follicle(rng: np.random.Generator, half_um: float, lean_deg: float, kind: AdnexaParameters) -> Streak:
    """A whole follicle from the surface, or the piece of one that runs through the plane of the section."""
    whole = rng.random() < kind.surface_fraction
    radius = spread(rng, kind.follicle_radius)
    from_mouth_to_bulb = (1.0, 0.85, 0.7, 0.75, 1.15) if whole else (0.3, 0.9, 1.2, 1.0, 0.3)
    return Streak(
        top_u_um=half_um * between(rng, (-0.95, 0.95)),
        top_v_um=10.0 if whole else between(rng, kind.fragment_depth),
        length_um=spread(rng, kind.follicle_length) * (1.0 if whole else 0.45),
        lean_deg=lean_deg + between(rng, (-12.0, 12.0)),
        radii_um=tuple(radius * factor for factor in from_mouth_to_bulb),
        bend=between(rng, (-0.2, 0.2)),
        roughness=0.12,
    )


def _draw_sebaceous(rng: np.random.Generator, shaft: Streak, kind: AdnexaParameters) -> Blob:
    """A gland against the flank of its follicle."""
    radius, side = spread(rng, kind.sebaceous_radius), float(rng.choice((-1.0, 1.0)))
    u_um = shaft.u_um + side * (0.6 * radius + shaft.radii_um[0])
    return Blob(u_um, 0.8 * shaft.v_um, radius, flatness=0.7, tilt_deg=20.0 * side)


def _draw_lobules(rng: np.random.Generator, gland: Blob, details: AdnexaDetails) -> list[Blob]:
    """Rounded lobules that together take about the room of the gland."""
    count = int(rng.integers(*details.lobules, endpoint=True))
    radius, turn = gland.radius_um / math.sqrt(count) * 1.05, between(rng, (0.0, 2.0 * math.pi))
    lobules = []
    for number in range(count):
        angle = turn + 2.0 * math.pi * number / count
        away = 0.75 * gland.radius_um * (1.0 - 1.0 / count) * between(rng, (0.8, 1.2))
        u_um, v_um = gland.u_um + away * math.cos(angle), gland.v_um + 1.2 * away * math.sin(angle)
        lobules.append(Blob(u_um, v_um, radius * between(rng, (0.8, 1.2)), spread(rng, (0.6, 1.7)), roughness=0.1))
    return lobules


def _draw_duct(rng: np.random.Generator, coil: Blob, details: AdnexaDetails) -> list[Streak]:
    """Pieces of the way from a coil to the surface: the duct winds in and out of the section."""
    if rng.random() >= details.duct_fraction:
        return []
    lean, radius = between(rng, (-12.0, 12.0)), spread(rng, details.duct_radius)
    slope, pieces = math.tan(math.radians(lean)), int(rng.integers(*details.duct_pieces, endpoint=True))
    bottom = coil.v_um - 0.5 * coil.radius_um
    duct = []
    for _ in range(pieces):
        length = between(rng, (0.15, 0.45)) * bottom
        top = between(rng, (0.1, 1.0)) * max(bottom - length, 0.0)
        # The streak leans away from the coil: it begins above and beside it.
        u_um = coil.u_um - slope * (bottom - top)
        bend, radii = between(rng, (-0.12, 0.12)), (0.6 * radius, radius, radius, 0.6 * radius)
        duct.append(Streak(u_um, top, max(length, 40.0), lean, radii, bend, roughness=0.2))
    return duct


def _draw_muscle(rng: np.random.Generator, shaft: Streak, details: AdnexaDetails) -> Streak:
    """From the middle of a follicle up to the papillary dermis, on the side to which the hair slopes."""
    lean = math.radians(shaft.lean_deg)
    at = between(rng, (0.45, 0.65)) * shaft.length_um
    bulge_u, bulge_v = shaft.top_u_um + at * math.sin(lean), shaft.top_v_um + at * math.cos(lean)
    slant = between(rng, details.muscle_slant_deg) * (1.0 if lean > 0 else -1.0)
    top_v = min(between(rng, details.muscle_top), 0.6 * bulge_v)
    radius = spread(rng, details.muscle_radius)
    return Streak(
        top_u_um=bulge_u - math.tan(math.radians(slant)) * (bulge_v - top_v),
        top_v_um=top_v,
        length_um=(bulge_v - top_v) / math.cos(math.radians(slant)),
        lean_deg=slant,
        radii_um=(0.4 * radius, radius, radius, 0.7 * radius),
        bend=between(rng, (-0.06, 0.06)),
        roughness=0.15,
    )


def _draw_cross_cut(rng: np.random.Generator, half_um: float, depth_um: float, details: AdnexaDetails) -> Blob:
    depth = min(between(rng, details.cross_cut_depth), 0.85 * depth_um)
    radius = spread(rng, details.cross_cut_radius)
    return Blob(half_um * between(rng, (-0.95, 0.95)), depth, radius, spread(rng, (0.7, 1.5)), roughness=0.08)
