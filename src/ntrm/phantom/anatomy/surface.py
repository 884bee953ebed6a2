"""The skin's outer side: keratin that is compact or woven like a basket, and ulcers under their crust."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ntrm.phantom.anatomy.frame import INF, KER, Curve, Skin
from ntrm.phantom.anatomy.layers import Span, Strata, between, spread, stretches, waves
from ntrm.phantom.anatomy.specimen import Specimen
from ntrm.phantom.anatomy.tumours import Cluster
from ntrm.phantom.noise import generator
from ntrm.phantom.tissues import KINDS


@dataclass(frozen=True)
class SurfaceParameters:
    """How the surface of sections differs; lengths in µm."""

    woven: float = 0.6  # Fraction of sections with basket-weave keratin; that of the others, and of tumours, is compact
    woven_fraction: Span = (0.5, 1.0)
    compact: Span = (0.0, 12.0)  # Thickness of the compact layer below the strands
    growth: Span = (0.0, 50.0)  # Strands take more room than compact keratin: by so much at most
    ulcer: float = 0.1  # Fraction of sections with an ulcer of no tumour
    ulcerated_cluster: float = 0.7  # Chance of a crust where a basal cell carcinoma has broken through
    ulcer_half_width: Span = (120.0, 600.0)
    crust: Span = (20.0, 130.0)
    inflamed: Span = (50.0, 200.0)


@dataclass(frozen=True)
class Surface:
    """The surface of one section."""

    compact: Curve  # Height above which keratin is strands; far up where all of it is compact
    ulcer: Curve  # Above one half where the epidermis is lost and a crust covers the dermis

    def paint(self, skin: Skin) -> None:
        """Onto the keratin that lies above the skin."""
        height = -skin.v
        above = (height > 0) & (skin.mask == KER)
        skin.kinds[above & (height > skin.along(self.compact))] = KINDS["basket weave"]
        crust = above & (skin.along_bent(self.ulcer) > 0.5)
        skin.mask[crust] = INF
        skin.kinds[crust] = KINDS["crust"]


def draw_surface(
    seed: int, specimen: Specimen, strata: Strata, clusters: tuple[Cluster, ...], kind: SurfaceParameters
) -> tuple[Strata, Surface]:
    """The surface, and the layers as it leaves them."""
    rng, axis = generator(seed, "surface"), specimen.axis
    wave = waves(seed, "surface", axis)
    healthy = ((strata.in_situ <= 0) & (strata.mass <= 0)).astype(np.float64)
    woven, growth = np.zeros_like(axis.u), between(rng, kind.growth)
    if rng.random() < kind.woven:
        woven = stretches(wave("woven", 2500.0), between(rng, kind.woven_fraction)) * healthy
    swollen = woven * growth * np.clip(0.5 + 0.5 * wave("growth", 500.0) + 0.1 * wave("fringe", 60.0), 0.0, 1.5)
    compact = np.where(woven > 0.5, between(rng, kind.compact), 1e6)
    strata = replace(strata, keratin=(strata.keratin + swollen).astype(np.float32))
    half_um = specimen.half_um
    centre, width = half_um * between(rng, (-0.8, 0.8)), spread(rng, kind.ulcer_half_width)
    places = [(centre, width)] if rng.random() < kind.ulcer else []
    broken = [cluster for cluster in clusters if cluster.ulcerated and rng.random() < kind.ulcerated_cluster]
    places += [(cluster.u_um, 0.7 * cluster.half_width_um) for cluster in broken]
    ulcer = np.zeros_like(axis.u)
    for at, half_width in places:
        # Over 60 µm the epidermis thins out towards an ulcer.
        ulcer = np.maximum(ulcer, np.clip((half_width - np.abs(axis.u - at)) / 60.0, 0.0, 1.0))
    ulcer = ulcer * healthy
    # An ulcer takes the epidermis and its keratin, bears a crust and inflames what is below.
    crust, inflamed = spread(rng, kind.crust) * np.exp(0.3 * wave("crust", 250.0)), spread(rng, kind.inflamed)
    left = (1.0 - ulcer).astype(np.float32)
    strata = replace(
        strata,
        epidermis=strata.epidermis * left,
        keratin=(strata.keratin * left + crust * ulcer).astype(np.float32),
        bare=strata.bare * left,
        flake=strata.flake * left,
        inflammation=np.maximum(strata.inflammation, (inflamed * ulcer).astype(np.float32)),
    )
    return strata, Surface(compact=compact.astype(np.float32), ulcer=ulcer.astype(np.float32))
