"""Strand-like layers: collagen bundles and fibrils, keratin lamellae, whorls, rings. Each is about -1 to 1.

All are level lines of a distance bent by noise: where the distance grows steadily lines run parallel, where the noise
wins they close into lenses and swirls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ntrm.phantom.noise import Field


@dataclass(frozen=True)
class Noises:
    """Three noises over the same pixels, each about standard normal."""

    bend: Field
    """Slow: gives strands their waves."""
    grain: Field
    """At the scale of a cell."""
    wobble: Field
    """A little coarser than a cell."""


Layer = Callable[[Field, Noises], Field]
"""A picture from a distance in µm and the noises."""


@dataclass(frozen=True)
class Lines:
    """Level lines of ``steady`` times a distance plus noises, one line every ``period_um``."""

    period_um: float
    steady: float = 1.0
    bend_um: float = 0.0
    grain_um: float = 0.0
    wobble_um: float = 0.0

    def over(self, distance_um: Field, noises: Noises) -> Field:
        """Cosine across the lines: 1 on a line, -1 half-way between two."""
        place = np.float32(self.steady) * distance_um + np.float32(self.bend_um) * noises.bend
        for amount_um, noise in ((self.grain_um, noises.grain), (self.wobble_um, noises.wobble)):
            if amount_um:
                place += np.float32(amount_um) * noise
        return np.asarray(np.cos(place * np.float32(2.0 * np.pi / self.period_um)))


COARSE_BUNDLE = Lines(period_um=44.0, bend_um=26.0, grain_um=5.0)
FINE_BUNDLE = Lines(period_um=29.0, bend_um=-34.0, wobble_um=8.0)
FIBRIL = Lines(period_um=17.0, steady=0.4, bend_um=22.0, grain_um=7.0)
THIN_LAMELLA = Lines(period_um=11.0, bend_um=14.0, grain_um=2.0)
THICK_LAMELLA = Lines(period_um=37.0, bend_um=14.0, grain_um=2.0)
SLIT = Lines(period_um=61.0, bend_um=24.0, grain_um=2.0)
WHORL = Lines(period_um=75.0, steady=0.7, bend_um=55.0, grain_um=3.0)
RING = Lines(period_um=26.0, bend_um=5.0, grain_um=2.0)

_WHORL_REACH_UM = 150.0
"""How far from keratin whorls still turn around it."""


def bundles(depth_um: Field, noises: Noises) -> Field:
    """Coarse wavy collagen: two systems of strands that run together and apart, so that bundles begin and end."""
    coarse, fine = COARSE_BUNDLE.over(depth_um, noises), FINE_BUNDLE.over(depth_um, noises)
    return np.asarray(np.clip(0.6 * coarse + 0.5 * fine + 0.2 * noises.grain - 0.1, -1.0, 0.8))


def fibrils(depth_um: Field, noises: Noises) -> Field:
    """Fine loose collagen."""
    return 0.5 * FIBRIL.over(depth_um, noises) + 0.3 * noises.wobble


def lamellae(distance_um: Field, noises: Noises) -> Field:
    """Sheets along keratin's border; sharp pale slits where they split."""
    open_here = np.clip(3.0 * noises.bend - 0.6, 0.0, 1.0)
    slit = np.clip(14.0 * (SLIT.over(distance_um, noises) - 0.9), 0.0, 1.0) * open_here
    thin, thick = THIN_LAMELLA.over(distance_um, noises), THICK_LAMELLA.over(distance_um, noises)
    return np.asarray(0.14 * thin + 0.12 * thick + 0.08 * noises.wobble - slit)


def whorls(distance_um: Field, noises: Noises) -> Field:
    """Swirls of flattened cells, strong around keratin, faint elsewhere."""
    near = np.clip(distance_um * np.float32(1.0 / _WHORL_REACH_UM), 0.0, 1.0)
    swirl = WHORL.over(near * np.float32(_WHORL_REACH_UM), noises)
    return np.asarray((0.8 - 0.4 * near) * swirl + 0.2 * noises.wobble)


def rings(distance_um: Field, noises: Noises) -> Field:
    """Layers parallel to the outline of a follicle."""
    return 0.8 * RING.over(distance_um, noises) + 0.1 * noises.wobble
