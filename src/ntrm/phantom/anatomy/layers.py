"""Normal skin from the surface down: keratin, epidermis with rete ridges, papillary and reticular dermis, fat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import BoolMask
from ntrm.phantom.anatomy.frame import EPI, HYP, IEC, INF, KER, PAP, RET, SCC, Axis, Curve, Skin
from ntrm.phantom.noise import Field, derive, generator, profile

Span = tuple[float, float]
Values = NDArray[np.float64]
T = TypeVar("T")


def between(rng: np.random.Generator, span: Span) -> float:
    """A uniform draw from a span."""
    return float(rng.uniform(*span))


def spread(rng: np.random.Generator, span: Span) -> float:
    """A draw from a span, even in the logarithm: for sizes."""
    return float(np.exp(rng.uniform(np.log(span[0]), np.log(span[1]))))


def scatter(rng: np.random.Generator, expected: float, draw: Callable[[], T]) -> list[T]:
    """As many draws as a Poisson process of this ``expected`` number gives."""
    return [draw() for _ in range(rng.poisson(expected))]


def waves(seed: int, topic: str, axis: Axis) -> Callable[[str, float], Values]:
    """Smooth noise of unit height along the surface, by its name and wavelength in µm."""
    return lambda name, wavelength_um: profile(derive(seed, topic, name), axis.u, wavelength_um)


def stretches(wave: Values, fraction: float, slope: float = 4.0) -> Values:
    """1 on about this ``fraction`` of a unit-height noise curve, 0 elsewhere, with short ramps between."""
    if fraction <= 0.0:
        return np.zeros_like(wave)
    threshold = float(np.quantile(wave, 1.0 - min(fraction, 1.0)))
    return np.clip((wave - threshold) * slope, 0.0, 1.0)


@dataclass(frozen=True)
class Strata:
    """The layers along the surface. All in µm; depths count from the true surface unless said otherwise."""

    lift: Curve  # Height of the true surface above the baseline
    keratin: Curve  # Thickness above the surface
    bare: Curve  # 1 where the keratin is lost, 0 elsewhere
    flake_gap: Curve  # Air between the keratin and a loose flake over it
    flake: Curve  # Thickness of the loose flake, 0 where there is none
    epidermis: Curve  # Thickness, ridges included
    papillary: Curve  # Thickness below the epidermis
    inflammation: Curve  # Thickness of the inflamed band below the epidermis or the tumour mass; 0 where there is none
    hypodermis: Curve  # Depth below the baseline at which fat begins on average
    in_situ: Curve  # 1 where the epidermis is carcinoma (IEC), 0 elsewhere
    mass: Curve  # Depth of the squamous cell carcinoma, 0 where there is none
    crypt: Curve  # Depth of keratin that reaches down into the carcinoma, 0 where there is none


@dataclass(frozen=True)
class SkinParameters:
    """Ranges from which a section's normal skin is drawn, in µm."""

    keratin: Span = (28.0, 95.0)
    epidermis: Span = (26.0, 48.0)
    ridge_height: Span = (6.0, 34.0)
    ridge_wavelength: Span = (130.0, 260.0)
    papillary: Span = (110.0, 290.0)
    undulation: Span = (5.0, 30.0)
    undulation_wavelength: float = 1100.0
    inflamed_fraction: Span = (0.0, 0.35)  # Fraction of the surface with an inflamed band of its own, without a tumour
    inflamed: Span = (40.0, 140.0)
    hypodermis: Span = (2000.0, 4700.0)
    bare_fraction: Span = (0.0, 0.4)  # Fraction of the surface that has lost its keratin
    flaking: Span = (0.0, 0.3)  # Fraction of the surface with loose keratin


def normal_skin(seed: int, axis: Axis, kind: SkinParameters) -> Strata:
    """Draw the layers of a section without a tumour."""
    rng, wave = generator(seed, "skin"), waves(seed, "skin", axis)
    keratin = between(rng, kind.keratin) * np.exp(0.35 * wave("keratin", 700.0)) + 4.0 * wave("keratin edge", 60.0)
    ridges = np.maximum(wave("ridges", between(rng, kind.ridge_wavelength)), -0.4) + 0.4
    slow = np.exp(0.25 * wave("epidermis", 1500.0))
    epidermis = between(rng, kind.epidermis) * slow + between(rng, kind.ridge_height) * ridges * slow
    papillary = between(rng, kind.papillary) * np.exp(0.4 * wave("papillary", 1300.0)) + 15.0 * wave("pap", 300.0)
    bare = stretches(wave("bare", 900.0), between(rng, kind.bare_fraction), slope=2.0)
    flaky = stretches(wave("flaky", 900.0), between(rng, kind.flaking))
    lift = between(rng, kind.undulation) * wave("surface", kind.undulation_wavelength)
    inflamed_um = spread(rng, kind.inflamed)
    inflamed = inflamed_um * stretches(wave("inflamed", 900.0), between(rng, kind.inflamed_fraction))
    curves = {
        "lift": lift,
        "keratin": np.maximum(keratin, 3.0),
        "bare": bare,
        "flake_gap": 20.0 + 80.0 * np.maximum(wave("gap", 800.0), 0.0),
        "flake": flaky * np.maximum(14.0 + 10.0 * wave("flake", 200.0), 0.0),
        "epidermis": np.maximum(epidermis, 18.0),
        "papillary": np.maximum(papillary, 20.0),
        "inflammation": inflamed * (1.0 + 0.4 * wave("inflamed depth", 300.0)),
        "hypodermis": spread(rng, kind.hypodermis) * np.exp(0.2 * wave("hypodermis", 4000.0)),
        **dict.fromkeys(("in_situ", "mass", "crypt"), np.zeros_like(axis.u)),
    }
    return Strata(**{name: values.astype(np.float32) for name, values in curves.items()})


def paint_dermis(skin: Skin, strata: Strata) -> None:
    """Reticular dermis, fat, papillary dermis and the inflamed band, from the bottom up.

    Lobules and islands of fat rise into the dermis and septa of dermis sink into the fat.
    """
    depth = skin.v - skin.along_bent(np.maximum(strata.epidermis, strata.mass))
    edge = np.float32(70.0) * skin.noise("fat edge", 600.0, 2)
    lobules = np.float32(330.0) * skin.noise("lobules", 2000.0, 2)
    top = skin.along(strata.hypodermis)
    main = skin.w + edge + lobules > top
    islands = skin.noise("islands", 1300.0, 2) > 1.25
    # Septa narrow and end: their width follows a second, slower noise.
    septa = np.abs(skin.noise("septa", 2800.0, 2)) < np.float32(0.16) * skin.noise("septa width", 2800.0)
    skin.mask[...] = RET
    skin.mask[(main & ~septa) | (islands & (skin.w + edge > np.float32(0.5) * top))] = HYP
    shallow = depth + np.float32(0.6) * skin.sway
    skin.mask[(shallow < skin.along(strata.papillary)) & (skin.along(strata.mass) <= 0)] = PAP
    band = skin.along_bent(strata.inflammation)
    skin.mask[(depth + skin.sway < band) & (band > 0) & ((skin.mask != HYP) | (skin.along(strata.mass) > 0))] = INF


def paint_surface(skin: Skin, strata: Strata) -> BoolMask:
    """Epidermis or the carcinoma that replaces it, with keratin on top. Returns where there is air above it."""
    height = -skin.v
    skin.mask[skin.v < skin.along_bent(strata.epidermis)] = EPI
    skin.mask[(skin.mask == EPI) & (skin.along(strata.in_situ) > 0.5)] = IEC
    mass = skin.along_bent(strata.mass)
    skin.mask[(skin.v < mass) & (mass > 0)] = SCC
    skin.mask[skin.v < skin.along_bent(strata.crypt)] = KER
    keratin = skin.along(strata.keratin * (1.0 - strata.bare))
    skin.mask[height > 0] = KER
    gap, flake = skin.along(strata.flake_gap), skin.along_bent(strata.flake)
    loose: Field = height - keratin - gap
    return (height > keratin) & ~((loose > 0) & (loose < flake))
