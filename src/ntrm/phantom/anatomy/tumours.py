"""The carcinomas of the epidermis, IEC and SCC: both reshape the layers; SCC also adds islands and pearls."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from ntrm.phantom.anatomy.frame import Axis, Curve
from ntrm.phantom.anatomy.layers import Span, Strata, between, spread, stretches
from ntrm.phantom.anatomy.shapes import Blob, paint
from ntrm.phantom.anatomy.skin import INF, KER, SCC, Skin
from ntrm.phantom.noise import derive, generator, profile

Values = NDArray[np.float64]


@dataclass(frozen=True)
class InSitu:
    """Carcinoma in the epidermis (IEC): full thickness, bulbous ridges, thick keratin above. µm."""

    thickness: Span = (130.0, 330.0)
    ridge_height: Span = (50.0, 180.0)
    ridge_wavelength: Span = (140.0, 300.0)
    keratin: Span = (70.0, 290.0)
    inflamed_share: Span = (0.5, 1.0)
    inflamed: Span = (120.0, 500.0)
    worn_share: Span = (0.0, 0.5)
    """Share of the lesion below which the papillary dermis is gone."""


@dataclass(frozen=True)
class Invasive:
    """Squamous cell carcinoma (SCC): a mass with tongues below and keratin above and inside. µm."""

    depth: Span = (1000.0, 3400.0)
    tongue_length: Span = (90.0, 450.0)
    tongue_wavelength: Span = (260.0, 700.0)
    bulge: Span = (120.0, 900.0)
    keratin: Span = (160.0, 750.0)
    inflamed: Span = (180.0, 700.0)
    crypt_share: Span = (0.0, 0.2)
    crypt_depth: Span = (0.25, 0.7)
    pearls_per_mm2: Span = (0.3, 3.0)
    pearl_radius: Span = (35.0, 190.0)
    satellites_per_mm: Span = (0.2, 2.0)
    satellite_radius: Span = (30.0, 130.0)


def envelope(axis: Axis, centre_um: float, half_width_um: float, power: float = 2.0) -> Values:
    """A dome along the surface: 1 at the centre, 0 from the half-width on."""
    reach = np.abs(axis.u - centre_um) / half_width_um
    return np.maximum(1.0 - reach**power, 0.0) ** (1.0 / power)


def _mix(old: Curve, new: Values, share: Values) -> Curve:
    return np.asarray(old + (new - old) * share, dtype=np.float32)


def add_in_situ(strata: Strata, seed: int, axis: Axis, share: Values, kind: InSitu) -> Strata:
    """Turn the epidermis into carcinoma where ``share`` is 1."""
    rng = generator(seed, "in situ")

    def wave(name: str, wavelength_um: float) -> Values:
        return profile(derive(seed, "in situ", name), axis.u, wavelength_um)

    ridges = np.maximum(wave("ridges", between(rng, kind.ridge_wavelength)), -0.5) + 0.5
    thickness = spread(rng, kind.thickness) * np.exp(0.2 * wave("thick", 900.0))
    thickness = thickness + between(rng, kind.ridge_height) * ridges
    keratin = spread(rng, kind.keratin) * np.exp(0.5 * wave("keratin", 600.0)) + 6.0 * wave("keratin edge", 70.0)
    inflamed = stretches(wave("inflamed", 1100.0), between(rng, kind.inflamed_share))
    worn = stretches(wave("worn", 1500.0), between(rng, kind.worn_share))
    band = spread(rng, kind.inflamed) * inflamed * np.exp(0.35 * wave("band", 500.0))
    return replace(
        strata,
        epidermis=_mix(strata.epidermis, thickness, share),
        keratin=_mix(strata.keratin, np.maximum(keratin, 3.0), share),
        papillary=_mix(strata.papillary, strata.papillary * (1.0 - worn), share),
        inflammation=_mix(strata.inflammation, band, share),
        in_situ=np.maximum(strata.in_situ, share.astype(np.float32)),
    )


def add_mass(strata: Strata, seed: int, axis: Axis, dome: Values, depth_um: float, kind: Invasive) -> Strata:
    """Replace the skin under ``dome`` (0 … 1 along the surface) by a squamous cell carcinoma."""
    rng = generator(seed, "mass")

    def wave(name: str, wavelength_um: float) -> Values:
        return profile(derive(seed, "mass", name), axis.u, wavelength_um)

    tongues = np.maximum(wave("tongues", between(rng, kind.tongue_wavelength)), 0.0) * spread(rng, kind.tongue_length)
    teeth = np.maximum(wave("teeth", 130.0), 0.3) * 0.2 * spread(rng, kind.tongue_length)
    top = np.sqrt(dome)
    mass = dome * depth_um * np.exp(0.22 * wave("depth", 1800.0)) + top * (tongues + teeth)
    keratin = spread(rng, kind.keratin) * np.exp(0.45 * wave("keratin", 900.0)) + 7.0 * wave("keratin edge", 90.0)
    crypts = stretches(wave("crypts", 700.0), between(rng, kind.crypt_share), slope=1.5)
    crypts = crypts * between(rng, kind.crypt_depth)
    # Inflammation follows the flanks of the mass as well as its floor: it lies below the mass spread sideways.
    side = spread(rng, kind.inflamed)
    spread_mass = maximum_filter1d(mass, int(2.0 * side / axis.STEP_UM))
    band = side * np.exp(0.4 * wave("band", 1300.0)) * np.sqrt(maximum_filter1d(dome, int(side / axis.STEP_UM)))
    inflamed = np.where(spread_mass > 0, spread_mass - mass + band, 0.0)
    bulge = spread(rng, kind.bulge) * np.exp(0.25 * wave("bulge", 1600.0))
    return replace(
        strata,
        lift=(strata.lift + bulge * dome).astype(np.float32),
        keratin=_mix(strata.keratin, np.maximum(keratin, 3.0), top),
        bare=(strata.bare * (1.0 - 0.6 * top)).astype(np.float32),
        inflammation=np.maximum(strata.inflammation, inflamed.astype(np.float32)),
        mass=np.maximum(strata.mass, mass.astype(np.float32)),
        hypodermis=np.maximum(strata.hypodermis, (mass + inflamed + 150.0 - bulge * dome).astype(np.float32)),
        crypt=np.maximum(strata.crypt, (crypts * mass * (dome > 0.2)).astype(np.float32)),
    )


def draw_pearls(seed: int, axis: Axis, strata: Strata, kind: Invasive) -> tuple[Blob, ...]:
    """Keratin pearls inside the carcinoma."""
    rng = generator(seed, "pearls")
    area_mm2 = float(strata.mass.sum()) * axis.STEP_UM / 1e6
    pearls = []
    for _ in range(rng.poisson(area_mm2 * spread(rng, kind.pearls_per_mm2))):
        place = int(rng.choice(len(axis.u), p=strata.mass / strata.mass.sum(dtype=np.float64)))
        depth = float(strata.mass[place]) * rng.uniform(0.1, 0.9)
        radius = min(spread(rng, kind.pearl_radius), 0.35 * float(strata.mass[place]))
        pearls.append(Blob(float(axis.u[place]), depth, radius, rng.uniform(0.5, 2.2), rng.uniform(-60, 60), 0.15))
    return tuple(pearls)


def draw_satellites(seed: int, axis: Axis, strata: Strata, kind: Invasive) -> tuple[Blob, ...]:
    """Small islands of carcinoma just below the mass."""
    rng = generator(seed, "satellites")
    under = np.flatnonzero(strata.mass > 0)
    satellites = []
    for _ in range(rng.poisson(1e-3 * len(under) * axis.STEP_UM * spread(rng, kind.satellites_per_mm))):
        place = int(rng.choice(under))
        radius = spread(rng, kind.satellite_radius)
        depth = float(strata.mass[place]) + radius + 0.5 * float(strata.inflammation[place]) * rng.random()
        satellites.append(Blob(float(axis.u[place]), depth, radius, rng.uniform(0.6, 1.6), rng.uniform(-60, 60), 0.15))
    return tuple(satellites)


def paint_mass_details(skin: Skin, satellites: tuple[Blob, ...], pearls: tuple[Blob, ...]) -> None:
    """Islands of carcinoma in the inflamed dermis, keratin pearls in the carcinoma."""
    paint(skin, satellites, SCC, over=(INF,))
    paint(skin, pearls, KER, over=(SCC,))
