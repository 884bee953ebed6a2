"""The carcinomas: nests of BCC below the epidermis; IEC and SCC, which reshape its layers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d
from scipy.spatial import cKDTree

from ntrm.core.arrays import BoolMask
from ntrm.phantom.anatomy import frame
from ntrm.phantom.anatomy.bodies import Blob, Structure
from ntrm.phantom.anatomy.frame import Axis, Curve, Patch, Skin
from ntrm.phantom.anatomy.layers import Span, Strata, Values, between, spread, stretches, waves
from ntrm.phantom.anatomy.specimen import Specimen
from ntrm.phantom.noise import Field, derive, generator, points


@dataclass(frozen=True)
class Basaloid:
    """Basal cell carcinoma (BCC): clusters of rounded nests parted by clefts, in stroma. µm."""

    nodule_half_width: Span = (300.0, 1100.0)
    nodule_half_height: Span = (200.0, 700.0)
    plaque_half_width: Span = (400.0, 1100.0)
    plaque_half_height: Span = (60.0, 130.0)
    plaque_fraction: float = 0.25
    """Fraction of sections in which the clusters creep along the epidermis (superficial type)."""
    clusters_per_mm: float = 0.4
    nest_spacing: Span = (200.0, 600.0)
    nest_radius: Span = (0.5, 0.8)
    """Least and greatest radius of a nest over the spacing; nests that are wider than their cell are polygons."""
    rounding: float = 0.0  # How far the corners of nests are rounded off, over the spacing
    cleft: Span = (6.0, 40.0)
    stroma: Span = (40.0, 330.0)
    quiet_fraction: float = 0.35  # Fraction of superficial clusters that lie in quiet dermis, without inflamed stroma
    hanging_fraction: float = 0.35
    """Fraction of clusters that hang from the epidermis; the others lie free in the dermis."""
    ulcerated_fraction: float = 0.25  # Fraction of the hanging clusters that have broken through it
    retraction: Span = (0.0, 9.0)  # Width of the empty clefts along some nests


@dataclass(frozen=True)
class Cluster:
    """One group of basaloid nests: an ellipse below the surface and the lattice its nests are drawn from."""

    seed: int
    u_um: float
    v_um: float
    half_width_um: float
    half_height_um: float
    spacing_um: float
    cleft_um: float
    stroma_um: float
    retraction_um: float
    ulcerated: bool
    nest_radius: Span = Basaloid.nest_radius
    rounding_um: float = 0.0

    @property
    def reach_um(self) -> float:
        """To the edge of the stroma."""
        return 1.3 * (max(self.half_width_um, self.half_height_um) + self.stroma_um)

    def outside(self, patch: Patch) -> Field:
        """Outside of its stroma."""
        return self._ellipse(patch, self.stroma_um) - np.float32(1.0)

    def inside(self, patch: Patch) -> BoolMask:
        """Where its nests may lie."""
        return np.asarray(self._ellipse(patch, 0.0) < 1.0)

    def _ellipse(self, patch: Patch, grow_um: float) -> Field:
        """1 on the uneven outline of the cluster, grown by ``grow_um``, and less inside it."""
        across = (patch.u - np.float32(self.u_um)) / np.float32(self.half_width_um + grow_um)
        down = (patch.v - np.float32(self.v_um)) / np.float32(self.half_height_um + grow_um)
        uneven = np.float32(0.02) * patch.rough + np.float32(0.14) * patch.slow
        return np.asarray(np.hypot(across, down) + uneven)


def draw_clusters(seed: int, strata: Strata, specimen: Specimen, kind: Basaloid) -> tuple[Cluster, ...]:
    """Clusters of nests well inside the specimen; at least one."""
    rng = generator(seed, "clusters")
    plaques = rng.random() < kind.plaque_fraction
    spacing = spread(rng, kind.nest_spacing)
    retraction = between(rng, kind.retraction)
    half_um, depth_um = 0.8 * specimen.half_um, specimen.depth_um
    clusters = []
    for number in range(1 + rng.poisson(2e-3 * half_um * kind.clusters_per_mm)):
        hanging = plaques or rng.random() < kind.hanging_fraction
        width = spread(rng, kind.plaque_half_width if plaques else kind.nodule_half_width)
        height = spread(rng, kind.plaque_half_height if plaques else kind.nodule_half_height)
        height = min(height, 0.6 * depth_um)
        quiet = plaques and rng.random() < kind.quiet_fraction
        below = height * (rng.uniform(0.5, 0.9) if hanging else rng.uniform(1.0, 2.0))
        u_um = half_um * rng.uniform(-0.85, 0.85)
        v_um = max(min(float(strata.epidermis.mean()) + below, 0.45 * depth_um), specimen.top_um + 1.2 * height)
        clusters.append(
            Cluster(
                seed=derive(seed, "cluster", number),
                u_um=u_um,
                # Where carcinoma in situ has thickened the epidermis, a flat cluster would be lost in it.
                v_um=max(v_um, specimen.axis.value(strata.epidermis, u_um) + 0.5 * height),
                half_width_um=min(width, 0.6 * half_um),
                half_height_um=height,
                spacing_um=(apart := min(spacing * rng.uniform(0.75, 1.3), 2.0 * height)),
                cleft_um=spread(rng, kind.cleft),
                stroma_um=0.0 if quiet else between(rng, kind.stroma),
                retraction_um=retraction,
                ulcerated=hanging and rng.random() < kind.ulcerated_fraction,
                nest_radius=kind.nest_radius,
                rounding_um=kind.rounding * apart,
            )
        )
    return tuple(clusters)


def stroma(clusters: tuple[Cluster, ...]) -> Structure:
    """Inflamed stroma around the clusters."""
    inflamed = [cluster for cluster in clusters if cluster.stroma_um > 0]
    return Structure("stroma", inflamed, frame.INF, over=(frame.RET, frame.PAP, frame.HYP))


def paint_nests(skin: Skin, clusters: tuple[Cluster, ...]) -> None:
    """The nests themselves; an ulcerated cluster takes the epidermis with it."""
    for number, patch in skin.patches(clusters):
        cluster = clusters[number]
        over = [frame.INF, frame.RET, frame.PAP, frame.GLD, frame.FOL, *([frame.EPI] if cluster.ulcerated else [])]
        inside = cluster.inside(patch) & np.isin(patch.labels, over)
        gap = _nest_depth(cluster, patch.u[inside], patch.v[inside], patch.rough[inside], patch.slow[inside])
        labels = patch.labels[inside]
        labels[gap > 0] = frame.BCC
        torn = (patch.slow[inside] > 0.6) & (labels == frame.INF)
        labels[torn & (gap <= 0) & (gap > -cluster.retraction_um)] = frame.BKG
        patch.labels[inside] = labels


def _nest_depth(cluster: Cluster, u: Field, v: Field, rough: Field, slow: Field) -> NDArray[np.float64]:
    """µm inside a nest (positive) or outside (negative).

    Nests are rounded cells around jittered points: neighbours part by a cleft, some cells are stroma.
    """
    if u.size == 0:
        return np.zeros(0)
    height, width = cluster.half_height_um + cluster.spacing_um, cluster.half_width_um + cluster.spacing_um
    origin = (cluster.v_um - height, cluster.u_um - width)
    y, x, mark, _ = points(cluster.seed, (2 * height, 2 * width), cluster.spacing_um, origin)
    # There is always a nest in the middle: no other may lie so near that the cleft between them would swallow it.
    apart = np.hypot(y - cluster.v_um, x - cluster.u_um) > 2 * cluster.cleft_um
    y, x, mark = y[apart], x[apart], mark[apart]
    y, x, mark = np.append(y, cluster.v_um), np.append(x, cluster.u_um), np.append(mark, 1.0)
    jitter = 0.02 * cluster.spacing_um * rough + 0.15 * cluster.spacing_um * slow
    where, rounded = np.stack([v + jitter, u - jitter], axis=1), cluster.rounding_um > 0.0
    distance, nearest = cKDTree(np.stack([y, x], axis=1)).query(where, k=3 if rounded else 2)
    own, other = mark[nearest[:, 0]], mark[nearest[:, 1]]
    # Two neighbours that both draw high marks have grown together.
    cleft = np.where((own > 0.4) & (other > 0.4), -1.0, 0.5) * cluster.cleft_um
    least, most = cluster.nest_radius
    to_rim = cluster.spacing_um * (least + (most - least) * own) - distance[:, 0]
    to_neighbour = 0.5 * (distance[:, 1] - distance[:, 0]) - cleft
    inside = np.minimum(to_rim, to_neighbour)
    if rounded:
        beyond = 0.5 * (distance[:, 2] - distance[:, 0]) - 0.5 * cluster.cleft_um
        # Less than the least where two are nearly as small: corners are cut off.
        depths, scale = (to_rim, to_neighbour, beyond), cluster.rounding_um
        nearest_um = np.minimum.reduce(depths)
        inside = nearest_um - scale * np.log(sum(np.exp((nearest_um - depth) / scale) for depth in depths))
    return np.where(own > 0.15, inside, -np.inf)


@dataclass(frozen=True)
class Lesions:
    """The layers as the tumours left them, and the bodies they added."""

    strata: Strata
    clusters: tuple[Cluster, ...] = ()
    structures: tuple[Structure, ...] = ()


@dataclass(frozen=True)
class InSitu:
    """Carcinoma in the epidermis (IEC): full thickness, bulbous ridges, thick keratin above. µm."""

    thickness: Span = (130.0, 330.0)
    ridge_height: Span = (50.0, 180.0)
    ridge_wavelength: Span = (140.0, 300.0)
    keratin: Span = (70.0, 290.0)
    inflamed_fraction: Span = (0.5, 1.0)
    inflamed: Span = (120.0, 500.0)
    worn_fraction: Span = (0.0, 0.5)  # Fraction of the lesion below which the papillary dermis is gone


@dataclass(frozen=True)
class Invasive:
    """Squamous cell carcinoma (SCC): a mass with tongues below and keratin above and inside. µm."""

    depth: Span = (1000.0, 3400.0)
    tongue_length: Span = (90.0, 450.0)
    tongue_wavelength: Span = (260.0, 700.0)
    bulge: Span = (120.0, 900.0)
    keratin: Span = (160.0, 750.0)
    inflamed: Span = (180.0, 700.0)
    crypt_fraction: Span = (0.0, 0.2)
    crypt_depth: Span = (0.25, 0.7)
    pearls_per_mm2: Span = (0.3, 3.0)
    pearl_radius: Span = (35.0, 190.0)
    satellites_per_mm: Span = (0.2, 2.0)
    satellite_radius: Span = (30.0, 130.0)


def envelope(axis: Axis, centre_um: float, half_width_um: float, power: float = 2.0) -> Values:
    """A dome along the surface: 1 at the centre, 0 from the half-width on."""
    reach = np.abs(axis.u - centre_um) / half_width_um
    return np.maximum(1.0 - reach**power, 0.0) ** (1.0 / power)


def _mix(old: Curve, new: Values, weight: Values) -> Curve:
    return np.asarray(old + (new - old) * weight, dtype=np.float32)


def add_in_situ(strata: Strata, seed: int, axis: Axis, patch: Values, kind: InSitu) -> Strata:
    """Turn the epidermis into carcinoma where ``patch`` is 1."""
    rng, wave = generator(seed, "in situ"), waves(seed, "in situ", axis)
    ridges = np.maximum(wave("ridges", between(rng, kind.ridge_wavelength)), -0.5) + 0.5
    thickness = spread(rng, kind.thickness) * np.exp(0.2 * wave("thick", 900.0))
    thickness = thickness + between(rng, kind.ridge_height) * ridges
    keratin = spread(rng, kind.keratin) * np.exp(0.5 * wave("keratin", 600.0)) + 6.0 * wave("keratin edge", 70.0)
    inflamed = stretches(wave("inflamed", 1100.0), between(rng, kind.inflamed_fraction))
    worn = stretches(wave("worn", 1500.0), between(rng, kind.worn_fraction))
    band = spread(rng, kind.inflamed) * inflamed * np.exp(0.35 * wave("band", 500.0))
    return replace(
        strata,
        epidermis=_mix(strata.epidermis, thickness, patch),
        keratin=_mix(strata.keratin, np.maximum(keratin, 3.0), patch),
        papillary=_mix(strata.papillary, strata.papillary * (1.0 - worn), patch),
        inflammation=_mix(strata.inflammation, band, patch),
        in_situ=np.maximum(strata.in_situ, patch.astype(np.float32)),
    )


def add_mass(strata: Strata, seed: int, axis: Axis, dome: Values, depth_um: float, kind: Invasive) -> Strata:
    """Replace the skin under ``dome`` (0 … 1 along the surface) by a squamous cell carcinoma."""
    rng, wave = generator(seed, "mass"), waves(seed, "mass", axis)
    tongues = np.maximum(wave("tongues", between(rng, kind.tongue_wavelength)), 0.0) * spread(rng, kind.tongue_length)
    teeth = np.maximum(wave("teeth", 130.0), 0.3) * 0.2 * spread(rng, kind.tongue_length)
    top = np.sqrt(dome)
    mass = dome * depth_um * np.exp(0.22 * wave("depth", 1800.0)) + top * (tongues + teeth)
    keratin = spread(rng, kind.keratin) * np.exp(0.45 * wave("keratin", 900.0)) + 7.0 * wave("keratin edge", 90.0)
    crypts = stretches(wave("crypts", 700.0), between(rng, kind.crypt_fraction), slope=1.5)
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


def draw_companions(seed: int, axis: Axis, strata: Strata, kind: Invasive) -> tuple[Structure, ...]:
    """Small islands of carcinoma just below the mass, in the inflamed dermis, and keratin pearls inside it."""
    rng, under = generator(seed, "satellites"), np.flatnonzero(strata.mass > 0)
    satellites, pearls = [], []
    for _ in range(rng.poisson(1e-3 * len(under) * axis.STEP_UM * spread(rng, kind.satellites_per_mm))):
        at, radius = int(rng.choice(under)), spread(rng, kind.satellite_radius)
        depth = float(strata.mass[at]) + radius + 0.5 * float(strata.inflammation[at]) * rng.random()
        satellites.append(Blob(float(axis.u[at]), depth, radius, rng.uniform(0.6, 1.6), rng.uniform(-60, 60), 0.15))
    rng, mass = generator(seed, "pearls"), strata.mass
    area_mm2 = float(mass.sum()) * axis.STEP_UM / 1e6
    for _ in range(rng.poisson(area_mm2 * spread(rng, kind.pearls_per_mm2))):
        at = int(rng.choice(len(axis.u), p=mass / mass.sum(dtype=np.float64)))
        depth = float(mass[at]) * rng.uniform(0.1, 0.9)
        radius = min(spread(rng, kind.pearl_radius), 0.35 * float(mass[at]))
        pearls.append(Blob(float(axis.u[at]), depth, radius, rng.uniform(0.5, 2.2), rng.uniform(-60, 60), 0.15))
    return (
        Structure("satellites", satellites, frame.SCC, over=(frame.INF,)),
        Structure("pearls", pearls, frame.KER, over=(frame.SCC,)),
    )
