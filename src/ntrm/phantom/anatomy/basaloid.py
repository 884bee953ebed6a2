"""Basal cell carcinoma (BCC): clusters of rounded basaloid nests in an inflamed stroma, below the layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from ntrm.phantom.anatomy.layers import Span, Strata, between, spread
from ntrm.phantom.anatomy.skin import BCC, BKG, EPI, FOL, GLD, HYP, INF, PAP, RET, Skin, Where, Window
from ntrm.phantom.anatomy.specimen import Specimen
from ntrm.phantom.noise import Field, derive, generator, points


@dataclass(frozen=True)
class Basaloid:
    """Basal cell carcinoma (BCC): clusters of rounded nests parted by clefts, in stroma. µm."""

    nodule_half_width: Span = (300.0, 1100.0)
    nodule_half_height: Span = (200.0, 700.0)
    plaque_half_width: Span = (400.0, 1100.0)
    plaque_half_height: Span = (60.0, 130.0)
    plaque_share: float = 0.25
    """Share of sections in which the clusters creep along the epidermis (superficial type)."""
    clusters_per_mm: float = 0.4
    nest_spacing: Span = (200.0, 600.0)
    cleft: Span = (6.0, 40.0)
    stroma: Span = (40.0, 330.0)
    quiet_share: float = 0.35
    """Share of superficial clusters that lie in quiet dermis, without inflamed stroma."""
    hanging_share: float = 0.35
    """Share of clusters that hang from the epidermis; the others lie free in the dermis."""
    ulcerated_share: float = 0.25
    """Share of the hanging clusters that have broken through it."""
    retraction: Span = (0.0, 9.0)
    """Width of the empty clefts along some nests."""


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

    @property
    def reach_um(self) -> float:
        """To the edge of the stroma."""
        return 1.3 * (max(self.half_width_um, self.half_height_um) + self.stroma_um)

    def ellipse(self, window: Window, grow_um: float) -> Where:
        """The inside of the cluster's outline, grown by ``grow_um``."""
        across = (window.u - np.float32(self.u_um)) / np.float32(self.half_width_um + grow_um)
        down = (window.v - np.float32(self.v_um)) / np.float32(self.half_height_um + grow_um)
        uneven = np.float32(0.02) * window.rough + np.float32(0.14) * window.slow
        return np.asarray(np.hypot(across, down) + uneven < 1.0)


def draw_clusters(seed: int, strata: Strata, specimen: Specimen, kind: Basaloid) -> tuple[Cluster, ...]:
    """Clusters of nests well inside the specimen; at least one."""
    rng = generator(seed, "clusters")
    plaques = rng.random() < kind.plaque_share
    spacing = spread(rng, kind.nest_spacing)
    retraction = between(rng, kind.retraction)
    half_um, depth_um = 0.8 * specimen.half_um, specimen.depth_um
    clusters = []
    for number in range(1 + rng.poisson(2e-3 * half_um * kind.clusters_per_mm)):
        hanging = plaques or rng.random() < kind.hanging_share
        width = spread(rng, kind.plaque_half_width if plaques else kind.nodule_half_width)
        height = spread(rng, kind.plaque_half_height if plaques else kind.nodule_half_height)
        height = min(height, 0.6 * depth_um)
        quiet = plaques and rng.random() < kind.quiet_share
        below = height * (rng.uniform(0.5, 0.9) if hanging else rng.uniform(1.0, 2.0))
        u_um = half_um * rng.uniform(-0.85, 0.85)
        v_um = max(min(float(strata.epidermis.mean()) + below, 0.45 * depth_um), specimen.top_um + 1.2 * height)
        clusters.append(
            Cluster(
                seed=derive(seed, "cluster", number),
                u_um=u_um,
                # Where carcinoma in situ has thickened the epidermis, a flat cluster would be lost in it.
                v_um=max(v_um, float(strata.epidermis[specimen.axis.index(np.array([u_um]))[0]]) + 0.5 * height),
                half_width_um=min(width, 0.6 * half_um),
                half_height_um=height,
                spacing_um=min(spacing * rng.uniform(0.75, 1.3), 2.0 * height),
                cleft_um=spread(rng, kind.cleft),
                stroma_um=0.0 if quiet else between(rng, kind.stroma),
                retraction_um=retraction,
                ulcerated=hanging and rng.random() < kind.ulcerated_share,
            )
        )
    return tuple(clusters)


def paint_stroma(skin: Skin, clusters: tuple[Cluster, ...]) -> None:
    """Inflamed stroma around the clusters."""
    inflamed = [cluster for cluster in clusters if cluster.stroma_um > 0]
    for number, window in skin.windows(inflamed):
        near = inflamed[number].ellipse(window, inflamed[number].stroma_um)
        window.labels[near & np.isin(window.labels, (RET, PAP, HYP))] = INF


def paint_nests(skin: Skin, clusters: tuple[Cluster, ...]) -> None:
    """The nests themselves; an ulcerated cluster takes the epidermis with it."""
    for number, window in skin.windows(clusters):
        cluster = clusters[number]
        ground = (INF, RET, PAP, GLD, FOL, EPI) if cluster.ulcerated else (INF, RET, PAP, GLD, FOL)
        inside = cluster.ellipse(window, 0.0) & np.isin(window.labels, ground)
        gap = _nest_depth(cluster, window.u[inside], window.v[inside], window.rough[inside], window.slow[inside])
        labels = window.labels[inside]
        labels[gap > 0] = BCC
        torn = (window.slow[inside] > 0.6) & (labels == INF)
        labels[torn & (gap <= 0) & (gap > -cluster.retraction_um)] = BKG
        window.labels[inside] = labels


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
    distance, nearest = cKDTree(np.stack([y, x], axis=1)).query(np.stack([v + jitter, u - jitter], axis=1), k=2)
    own, other = mark[nearest[:, 0]], mark[nearest[:, 1]]
    # Two neighbours that both draw high marks have grown together.
    cleft = np.where((own > 0.4) & (other > 0.4), -1.0, 0.5) * cluster.cleft_um
    to_rim = cluster.spacing_um * (0.5 + 0.3 * own) - distance[:, 0]
    to_neighbour = 0.5 * (distance[:, 1] - distance[:, 0]) - cleft
    return np.where(own > 0.15, np.minimum(to_rim, to_neighbour), -np.inf)
