"""Hair follicles with their sebaceous glands, and the coils of sweat glands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ntrm.phantom.anatomy.frame import EPI, FOL, GLD, HYP, INF, KER, PAP, RET, Blob, Body, Streak, Structure
from ntrm.phantom.anatomy.layers import Span, between, scatter, spread
from ntrm.phantom.noise import generator


@dataclass(frozen=True)
class AdnexaParameters:
    """How many and how large; lengths in µm."""

    follicles_per_mm: float = 0.34
    follicle_length: Span = (350.0, 1500.0)
    follicle_radius: Span = (50.0, 130.0)
    lean_deg: Span = (-35.0, 35.0)
    """Hairs of one section lean the same way."""
    mouth_um: float = 50.0
    """Follicles that begin above this depth open at the surface."""
    fragment_depth: Span = (150.0, 700.0)
    surface_fraction: float = 0.5
    """Fraction of follicles cut lengthwise from the surface; of the others only a deeper piece is in the section."""
    sebaceous_fraction: float = 0.6
    sebaceous_radius: Span = (80.0, 170.0)
    glands_per_mm: float = 0.28
    gland_radius: Span = (150.0, 370.0)
    gland_depth: Span = (400.0, 1500.0)
    halo_fraction: float = 0.2
    """Fraction of glands with inflammation around them."""


WHOLE = (1.0, 0.85, 0.7, 0.75, 1.15)
"""Radius of a follicle from its mouth to its bulb, over the mean."""
FRAGMENT = (0.3, 0.9, 1.2, 1.0, 0.3)


def draw_adnexa(
    seed: int, half_um: float, depth_um: float, spared: Callable[[Body], bool], kind: AdnexaParameters
) -> tuple[Structure, ...]:
    """Adnexa within ``half_um`` of the middle of a section ``depth_um`` deep, where ``spared`` allows them.

    They are painted in this order: glands first, so that a follicle runs past its gland.
    """
    rng, length_mm = generator(seed, "adnexa"), 2e-3 * half_um
    lean = between(rng, kind.lean_deg)
    follicles = scatter(rng, length_mm * kind.follicles_per_mm, lambda: _draw_follicle(rng, half_um, lean, kind))
    follicles = [follicle for follicle in follicles if spared(follicle)]
    glands = [_draw_sebaceous(rng, shaft, kind) for shaft in follicles if rng.random() < kind.sebaceous_fraction]
    glands += scatter(rng, length_mm * kind.glands_per_mm, lambda: _draw_coil(rng, half_um, kind))
    glands = [gland for gland in glands if gland.v_um < 0.9 * depth_um and spared(gland)]
    halos = [replace(gland, radius_um=1.25 * gland.radius_um) for gland in glands if rng.random() < kind.halo_fraction]
    plugs = [_plug(shaft) for shaft in follicles if shaft.top_v_um < kind.mouth_um]
    return (
        Structure("inflamed halos", halos, INF, over=(RET, PAP)),
        Structure("glands", glands, GLD, over=(RET, PAP, INF)),
        Structure("follicles", follicles, FOL, over=(RET, PAP, INF, HYP, EPI, GLD)),
        Structure("keratin plugs", plugs, KER, over=(FOL, EPI)),
    )


def _draw_follicle(rng: np.random.Generator, half_um: float, lean_deg: float, kind: AdnexaParameters) -> Streak:
    """A whole follicle from the surface, or the piece of one that runs through the plane of the section."""
    whole = rng.random() < kind.surface_fraction
    radius = spread(rng, kind.follicle_radius)
    return Streak(
        top_u_um=half_um * between(rng, (-0.95, 0.95)),
        top_v_um=10.0 if whole else between(rng, kind.fragment_depth),
        length_um=spread(rng, kind.follicle_length) * (1.0 if whole else 0.45),
        lean_deg=lean_deg + between(rng, (-12.0, 12.0)),
        radii_um=tuple(radius * factor for factor in (WHOLE if whole else FRAGMENT)),
        bend=between(rng, (-0.2, 0.2)),
        roughness=0.12,
    )


def _plug(shaft: Streak) -> Streak:
    """Keratin in the mouth of a follicle."""
    mouth = shaft.radii_um[0]
    return replace(
        shaft,
        top_v_um=-10.0,
        length_um=0.4 * shaft.length_um,
        radii_um=(0.7 * mouth, 0.5 * mouth, 2.0),
        bend=0.4 * shaft.bend,  # The parabola of the whole shaft, over 0.4 of its length.
    )


def _draw_sebaceous(rng: np.random.Generator, shaft: Streak, kind: AdnexaParameters) -> Blob:
    """A gland against the flank of its follicle."""
    radius, side = spread(rng, kind.sebaceous_radius), float(rng.choice((-1.0, 1.0)))
    u_um = shaft.u_um + side * (0.6 * radius + shaft.radii_um[0])
    return Blob(u_um, 0.8 * shaft.v_um, radius, flatness=0.7, tilt_deg=20.0 * side)


def _draw_coil(rng: np.random.Generator, half_um: float, kind: AdnexaParameters) -> Blob:
    """The coil of a sweat gland."""
    return Blob(
        u_um=half_um * between(rng, (-0.9, 0.9)),
        v_um=between(rng, kind.gland_depth),
        radius_um=spread(rng, kind.gland_radius),
        flatness=between(rng, (0.7, 1.9)),
        tilt_deg=between(rng, (-40.0, 40.0)),
    )
