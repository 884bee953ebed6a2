"""Which nuclei a section has, and drawing them: soft ellipses that keep concentration × area on every grid."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import SKIN, Mask
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.noise import Field, Points, derive, hash_uniform, points
from ntrm.phantom.texture.scene import Scene
from ntrm.phantom.texture.structures import HOLLOWS, MOST_ROOM, NEST_SEPTUM, Spots, septum
from ntrm.phantom.texture.table import CONNECTIVE, DERMAL, IN_PASSAGE, members
from ntrm.phantom.tissues import PASSING, codes_of

LARGEST_RADIUS_UM = 8.0  # No half axis is longer; windows look this far beyond their edge

_CHUNK = 8192
_THINNEST_PX = np.float32(0.75)  # Above the distance from a pixel's corner to its centre
_PALE_INSIDE = np.float32(0.7)


@dataclass(frozen=True)
class Nuclei:
    """One row per nucleus."""

    y_um: Points
    x_um: Points
    long_um: Points  # Half axes
    short_um: Points
    angle: Points  # Direction of the long axis, radians from x towards y
    haematoxylin: Points
    rim: Points  # 0: evenly dark; 1: pale inside with a dark membrane

    def __len__(self) -> int:
        return len(self.y_um)


def splat(nuclei: Nuclei, window: PhantomGrid) -> Field:
    """Haematoxylin that the nuclei put on the window's pixels. Nuclei in one place add up, as in a thick section."""
    total = np.zeros(window.shape[0] * window.shape[1])
    for first in range(0, len(nuclei), _CHUNK):
        index, weight = _stamps(nuclei, slice(first, first + _CHUNK), window)
        total += np.bincount(index, weights=weight, minlength=total.size)
    return total.reshape(window.shape).astype(np.float32)


def _stamps(nuclei: Nuclei, chunk: slice, window: PhantomGrid) -> tuple[NDArray[np.int64], Field]:
    """Flat pixel indices and values of a chunk of nuclei."""
    y = (nuclei.y_um[chunk] - window.origin_um[0]) / window.mpp
    x = (nuclei.x_um[chunk] - window.origin_um[1]) / window.mpp
    long, short = ((axis[chunk] / window.mpp).astype(np.float32) for axis in (nuclei.long_um, nuclei.short_um))
    amount = nuclei.haematoxylin[chunk].astype(np.float32) * np.float32(np.pi) * long * short
    # A nucleus thinner than a pixel would slip between pixel centres: it is drawn wider and, by its amount, paler.
    long, short = np.maximum(long, _THINNEST_PX), np.maximum(short, _THINNEST_PX)
    reach = int(np.ceil(float(long.max()) + 0.5))
    offset = np.arange(-reach, reach + 1)
    row, column = (np.floor(at).astype(np.int64)[:, None] + offset for at in (y, x))  # (n, P)
    dy, dx = (row + 0.5 - y[:, None]).astype(np.float32), (column + 0.5 - x[:, None]).astype(np.float32)
    profile = _profile(dy[:, :, None], dx[:, None, :], nuclei.angle[chunk], long, short, nuclei.rim[chunk])  # (n, P, P)
    # Dividing by the drawn sum keeps the amount exact on every grid.
    profile *= (amount / profile.sum(axis=(1, 2)))[:, None, None]
    height, width = window.shape
    drawn = (profile > 0) & ((row >= 0) & (row < height))[:, :, None] & ((column >= 0) & (column < width))[:, None, :]
    return (row[:, :, None] * width + column[:, None, :])[drawn], profile[drawn]


def _profile(dy: Field, dx: Field, angle: Points, long: Field, short: Field, rim: Points) -> Field:
    """Coverage of pixels by an ellipse with an edge one pixel wide, paler inside where there is a rim."""
    sine, cosine = (f(angle).astype(np.float32)[:, None, None] for f in (np.sin, np.cos))
    along = (dx * cosine + dy * sine) / long[:, None, None]
    across = (dy * cosine - dx * sine) / short[:, None, None]
    radius = np.sqrt(along * along + across * across)
    sharpness = np.sqrt(long * short)[:, None, None]
    coverage = np.clip((1.0 - radius) * sharpness + np.float32(0.5), 0.0, 1.0)
    pale = (_PALE_INSIDE * rim.astype(np.float32))[:, None, None]
    return np.asarray(coverage * (1.0 - pale * (1.0 - np.minimum(radius, 1.0) ** 2)))


_LATTICE_UM = 7.0  # At most one nucleus per square of this side: about 20 000 per mm²
_SITE_MM2 = _LATTICE_UM**2 * 1e-6
_JITTER = 0.65  # Nuclei keep some distance: they use this fraction of their square
_QUARTER = np.array([[0, 2], [3, 1]])
"""Neighbours across a corner come first, so that a half-filled block is a chessboard."""
_PALISADE_CROWDING, _PALISADE_DARKENING = 0.5, 0.5
_SEPTUM_THINNING = 0.8

_RET, _PAP, _INF = (SKIN.index(name) for name in CONNECTIVE)
_CONNECTIVE = IN_PASSAGE > 0
_SPINDLE = members(*CONNECTIVE, "HYP") > 0
_DERMAL = DERMAL > 0


@dataclass(frozen=True)
class _Sites:
    """Sites where a nucleus may be, with a mark for thinning and an identity from which further marks are hashed."""

    seed: int
    y_um: Points
    x_um: Points
    mark: Points
    identity: NDArray[np.int64]
    tissue: Mask

    def where(self, keep: NDArray[np.bool_]) -> _Sites:
        """The sites that are kept."""
        columns = ("y_um", "x_um", "mark", "identity", "tissue")
        return replace(self, **{name: getattr(self, name)[keep] for name in columns})

    def uniform(self, name: str) -> Points:
        """A further mark in [0, 1)."""
        return hash_uniform(derive(self.seed, name), self.identity)

    def bell(self, name: str) -> Points:
        """A further mark, bell-shaped: mean 0, standard deviation 1, never beyond 3."""
        return (sum((self.uniform(f"{name}{k}") for k in range(3)), np.zeros(len(self.mark))) - 1.5) * 2.0


def nuclei_near(scene: Scene, window: PhantomGrid) -> Nuclei:
    """The nuclei that may touch the window."""
    reach = LARGEST_RADIUS_UM + window.mpp
    height, width = (n * window.mpp + 2 * reach for n in window.shape)
    origin = (window.origin_um[0] - reach, window.origin_um[1] - reach)
    y, x, mark, identity = points(derive(scene.seed, "sites"), (height, width), _LATTICE_UM, origin)
    y, x, mark = _drawn_in(y), _drawn_in(x), _evened(scene.seed, mark, identity)
    sites = _occupied(scene, _Sites(scene.seed, y, x, mark, identity, scene.tissue_at(y, x)))
    table, tissue = scene.table, sites.tissue
    palisade = _palisade(scene, sites)
    radius = table["nucleus_radius_um"][tissue] * np.exp(table["nucleus_spread"][tissue] * sites.bell("radius"))
    elongation = np.maximum(table["nucleus_elongation"][tissue] * (0.75 + 0.5 * sites.uniform("elongation")), 1.0)
    long = np.minimum(radius * np.sqrt(elongation), LARGEST_RADIUS_UM)
    darkness = table["nucleus_haematoxylin"][tissue] * (0.7 + 0.6 * sites.uniform("darkness"))
    return Nuclei(
        y_um=sites.y_um,
        x_um=sites.x_um,
        long_um=long,
        short_um=np.minimum(radius / np.sqrt(elongation), long),
        angle=_angles(scene, sites, palisade),
        haematoxylin=darkness * (1.0 + _PALISADE_DARKENING * palisade),
        rim=table["nucleus_rim"][tissue].astype(np.float64),
    )


def _evened(seed: int, mark: Points, identity: NDArray[np.int64]) -> Points:
    """Marks that thin evenly: each of the four squares of a block falls into another quarter, at two scales.

    Independent marks would leave clumps and holes, which cells that fill a tissue do not have.
    """
    row, column = identity >> 30, identity & 0x3FFFFFFF
    for scale in (1, 0):
        block = hash_uniform(derive(seed, "block", scale), row >> (scale + 1), column >> (scale + 1))
        quarter = _QUARTER[row >> scale & 1, column >> scale & 1]
        mark = ((quarter + (block * 4).astype(np.int64)) % 4 + mark) / 4
    return mark


def _drawn_in(um: Points) -> Points:
    square = np.floor(um / _LATTICE_UM)
    return (square + 0.5 + _JITTER * (um / _LATTICE_UM - square - 0.5)) * _LATTICE_UM


def _occupied(scene: Scene, sites: _Sites) -> _Sites:
    """Thin the sites to the tissue's density and to what its structure leaves room for."""
    # A cheap bound first: most sites of the dermis drop out before anything else is asked about them.
    hollow = sum(scene.table[name] for name in HOLLOWS) > 0
    most = scene.table["nuclei_per_mm2"] * np.where(hollow, MOST_ROOM, 1.0 + _PALISADE_CROWDING).astype(np.float32)
    passing = [_RET, _PAP, _INF, *codes_of(*(PASSING if scene.geometry.passing else ()))]
    most[passing] = most[passing].max()
    sites = sites.where(sites.mark < most[sites.tissue] * _SITE_MM2)
    sites = _settled(scene, sites)
    density = scene.table["nuclei_per_mm2"][sites.tissue] * (1.0 + _PALISADE_CROWDING * _palisade(scene, sites))
    return sites.where(sites.mark < density * _room(scene, sites) * _SITE_MM2)


def _settled(scene: Scene, sites: _Sites) -> _Sites:
    """Where connective tissues pass into each other, each site belongs to one of them by chance."""
    between = _CONNECTIVE[sites.tissue]
    y, x = sites.y_um[between], sites.x_um[between]
    inflamed, papillary = scene.geometry.inflamed.at(y, x), scene.geometry.papillary.at(y, x)
    chance = sites.uniform("passage")[between]
    tissue = sites.tissue.copy()
    tissue[between] = np.where(chance < inflamed, _INF, np.where(chance < inflamed + papillary, _PAP, _RET))
    for name, fraction in scene.geometry.passing.items():
        changed = sites.uniform(name)[between] < fraction.at(y, x)
        tissue[between] = np.where(changed, codes_of(name)[0], tissue[between])
    return replace(sites, tissue=tissue)


def _room(scene: Scene, sites: _Sites) -> Field:
    """Relative density that structure allows: along walls, around lumina, hardly in septa of nests."""
    lobules = scene.table["lobules"][sites.tissue]
    room, nest = np.ones_like(lobules), lobules > 0
    patch = scene.slow.patch.at(sites.y_um[nest], sites.x_um[nest])
    room[nest] -= _SEPTUM_THINNING * lobules[nest] * septum(patch, NEST_SEPTUM)
    for name, (_, allowed) in HOLLOWS.items():
        in_tissue = scene.table[name][sites.tissue] > 0
        if in_tissue.any():
            y, x = sites.y_um[in_tissue], sites.x_um[in_tissue]
            slow = (noise.at(y, x) for noise in (scene.slow.eosin, scene.slow.bend, scene.slow.patch))
            room[in_tissue] = allowed(Spots(scene.seed, y, x, *slow))
    return room


def _palisade(scene: Scene, sites: _Sites) -> Field:
    """How much a site belongs to the row of upright cells on the border to the dermis."""
    amount = scene.table["palisade"][sites.tissue]
    out = np.zeros_like(amount)
    epithelial = (amount > 0) & ~_DERMAL[sites.tissue]
    near = scene.geometry.dermis_near.at(sites.y_um[epithelial], sites.x_um[epithelial])
    out[epithelial] = amount[epithelial] * np.clip(3.0 * near, 0.0, 1.0)
    return out


def _angles(scene: Scene, sites: _Sites, palisade: Field) -> Points:
    """Spindles lie along the strands, palisades stand on the border, all others lie anyhow."""
    turn = sites.uniform("angle")
    angle = turn * np.pi
    spindle, upright = _SPINDLE[sites.tissue], palisade > 0.3
    for some, field, rest, spread in (
        (spindle, scene.geometry.depth_um, np.pi / 2, 1.6),
        (upright, scene.geometry.dermis_near, 0.0, 0.5),
    ):
        uphill = field.uphill_at(sites.y_um[some], sites.x_um[some])
        angle[some] = uphill + rest + (turn[some] - 0.5) * spread
    return angle
