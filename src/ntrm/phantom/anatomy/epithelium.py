"""Epidermis and epithelium below it (ridges that the section cuts, cysts); keratin, woven or compact, and ulcers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ntrm.phantom.anatomy.bodies import Blob, Structure
from ntrm.phantom.anatomy.frame import EPI, INF, KER, PAP, RET, Axis, Body, Curve, Patch, Skin
from ntrm.phantom.anatomy.layers import Span, Strata, between, scatter, spread, stretches, waves
from ntrm.phantom.anatomy.specimen import Specimen
from ntrm.phantom.anatomy.tumours import Cluster
from ntrm.phantom.noise import Field, generator
from ntrm.phantom.tissues import KINDS


@dataclass(frozen=True)
class EpidermisParameters:
    """How the epidermis of sections differs; lengths in µm."""

    atrophic: float = 0.2  # Fraction of sections with a thin epidermis without ridges
    atrophic_ridges: float = 0.15  # What is left of their ridges
    acanthotic: float = 0.28  # Fraction of sections with a thick epidermis along part of the surface
    acanthosis: Span = (55.0, 170.0)
    acanthotic_fraction: Span = (0.3, 1.0)
    irregular: float = 0.4  # Fraction of sections with deep ridges of uneven length
    ridge_height: Span = (40.0, 140.0)
    ridge_wavelength: Span = (90.0, 260.0)
    ridged_fraction: Span = (0.3, 1.0)
    cut_ridges: float = 0.6  # Fraction of sections in which ridges leave the plane and return as islands
    cut_ridges_per_mm: Span = (0.3, 2.0)
    cut_ridge_radius: Span = (14.0, 65.0)
    cut_ridge_distance: Span = (25.0, 190.0)  # Below the epidermis
    tangential: float = 0.2
    """Fraction of sections with a stretch that is cut along the skin: a net of ridges around the papillae."""
    tangential_half_width: Span = (180.0, 800.0)
    tangential_half_height: Span = (80.0, 280.0)
    cord: Span = (0.3, 0.7)  # Half-width of the cords of such a net, in units of its noise
    cyst: float = 0.08
    """Fraction of sections with a cyst: a wall of epidermis around keratin, with no way to the surface."""
    cyst_radius: Span = (120.0, 450.0)
    cyst_depth: Span = (350.0, 1300.0)
    cyst_wall: Span = (20.0, 70.0)


@dataclass(frozen=True)
class Net:
    """Cords of epithelium around islands of dermis, within an ellipse."""

    u_um: float
    v_um: float
    half_width_um: float
    half_height_um: float
    cord: float

    @property
    def reach_um(self) -> float:
        """To the end of the ellipse and what roughness adds."""
        return 1.4 * max(self.half_width_um, self.half_height_um)

    def outside(self, patch: Patch) -> Field:
        """Negative on a cord within the ellipse."""
        across = (patch.u - np.float32(self.u_um)) / np.float32(self.half_width_um)
        down = (patch.v - np.float32(self.v_um)) / np.float32(self.half_height_um)
        beyond = np.hypot(across, down) + patch.uneven(0.12) - np.float32(1.0)
        cords = np.abs(np.float32(0.6) * patch.slow + np.float32(0.8) * patch.rough) - np.float32(self.cord)
        return np.asarray(np.maximum(beyond, cords))


def vary_epidermis(strata: Strata, seed: int, axis: Axis, kind: EpidermisParameters) -> Strata:
    """The layers with another epidermis: thinner and flat, thicker, or with uneven ridges."""
    rng, wave = generator(seed, "epidermis"), waves(seed, "epidermis", axis)
    epidermis = strata.epidermis.astype(np.float64)
    mean = float(epidermis.mean())
    state = rng.random()
    if state < kind.atrophic:
        epidermis = np.minimum(mean, 30.0) + kind.atrophic_ridges * (epidermis - mean)
    elif state > 1.0 - kind.acanthotic:
        thick = stretches(wave("acanthosis", 3000.0), between(rng, kind.acanthotic_fraction), slope=1.5)
        epidermis = epidermis * (1.0 + thick * (spread(rng, kind.acanthosis) / mean - 1.0))
    if state >= kind.atrophic and rng.random() < kind.irregular:
        ridges = np.maximum(wave("ridges", between(rng, kind.ridge_wavelength)), 0.0) ** 1.5
        uneven = np.clip(0.6 + 0.5 * wave("ridge height", 700.0), 0.0, 1.5)
        ridged = stretches(wave("ridged", 2500.0), between(rng, kind.ridged_fraction), slope=1.5)
        epidermis = epidermis + spread(rng, kind.ridge_height) * ridges * uneven * ridged
    return replace(strata, epidermis=np.maximum(epidermis, 18.0).astype(np.float32))


def draw_islands(seed: int, specimen: Specimen, strata: Strata, kind: EpidermisParameters) -> tuple[Structure, ...]:
    """Epithelium of the epidermis that does not reach it in the plane of the section; none below a tumour of it."""
    rng, axis, half_um = generator(seed, "islands of epidermis"), specimen.axis, specimen.half_um

    def cut_ridge() -> Blob:
        u_um, radius = half_um * between(rng, (-0.95, 0.95)), spread(rng, kind.cut_ridge_radius)
        depth = axis.value(strata.epidermis, u_um) + radius + between(rng, kind.cut_ridge_distance)
        return Blob(u_um, depth, radius, spread(rng, (0.5, 2.0)), between(rng, (-40.0, 40.0)), roughness=0.15)

    def net() -> Net:
        u_um, height = half_um * between(rng, (-0.7, 0.7)), spread(rng, kind.tangential_half_height)
        depth, width = axis.value(strata.epidermis, u_um) + 0.6 * height, spread(rng, kind.tangential_half_width)
        return Net(u_um, depth, width, height, between(rng, kind.cord))

    def cyst() -> Blob:
        radius = min(spread(rng, kind.cyst_radius), 0.25 * specimen.depth_um)
        depth = min(between(rng, kind.cyst_depth) + radius, 0.7 * specimen.depth_um)
        return Blob(half_um * between(rng, (-0.8, 0.8)), depth, radius, spread(rng, (0.7, 1.8)), roughness=0.05)

    def healthy(body: Body) -> bool:
        return all(axis.value(curve, body.u_um) <= 0 for curve in (strata.in_situ, strata.mass))

    some, per_mm = rng.random() < kind.cut_ridges, spread(rng, kind.cut_ridges_per_mm)
    ridges = [*filter(healthy, scatter(rng, 2e-3 * half_um * per_mm if some else 0.0, cut_ridge))]
    nets = [*filter(healthy, [net()] if rng.random() < kind.tangential else [])]
    cysts = [*filter(healthy, [cyst()] if rng.random() < kind.cyst else [])]
    wall = spread(rng, kind.cyst_wall)
    contents = [replace(each, radius_um=max(each.radius_um - wall, 0.5 * each.radius_um)) for each in cysts]
    return (
        Structure("cut ridges", ridges, EPI, over=(PAP, RET, INF)),
        Structure("nets", nets, EPI, over=(PAP, RET, INF)),
        Structure("cysts", cysts, EPI, over=(PAP, RET, INF)),
        Structure("contents of cysts", contents, KER, over=(EPI,)),
    )


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
