"""Concentrations of haematoxylin and eosin over a window: every layer weighed by the texture table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import SKIN
from ntrm.phantom.noise import Field
from ntrm.phantom.texture import structures
from ntrm.phantom.texture.canvas import CoarseMap, Places, Window
from ntrm.phantom.texture.nuclei import nuclei_near, splat
from ntrm.phantom.texture.scene import Scene
from ntrm.phantom.texture.structures import HOLLOWS, NEST_SEPTUM, Spots, septum
from ntrm.phantom.texture.table import CONNECTIVE, members

_BENT_UM = 2.5
"""Borders and cell walls are bent by this much: they would show the mask's pixels or straight polygons otherwise."""
_GRAIN_UM, _WOBBLE_UM, _SPECKLE_UM = 22.0, 30.0, 6.0
_SPECKLE_SEEN_UM = 2.0
"""Coarser grids than this average the finest noise away."""

_RET, _PAP, _INF = (SKIN.index(name) for name in CONNECTIVE)
_CONNECTIVE = members(*CONNECTIVE)


@dataclass(frozen=True)
class Dyes:
    """Concentrations on a window's pixels."""

    haematoxylin: Field
    eosin: Field


def paint(scene: Scene, window: Window) -> Dyes:
    """Concentrations over the window."""
    pixels = _pixels(scene, window)
    eosin, haematoxylin = pixels.amount("eosin"), pixels.amount("haematoxylin")
    mottle, grain = pixels.amount("mottle"), pixels.amount("grain") * pixels.noises.grain
    eosin *= np.maximum(1.0 + mottle * scene.slow.eosin.over(window) + grain, 0.0) * _strands(pixels)
    haematoxylin *= np.maximum(1.0 + 1.5 * mottle * scene.slow.haematoxylin.over(window) + grain, 0.0)
    _part_nests(pixels, haematoxylin)
    _open_clefts(pixels, haematoxylin, eosin)
    _hollow_out(pixels, haematoxylin, eosin)
    chromatin = splat(nuclei_near(scene, window), window)
    if window.mpp <= _SPECKLE_SEEN_UM:
        speckle = scene.noise("speckle", window, _SPECKLE_UM)
        eosin *= 1.0 + 0.10 * speckle
        chromatin *= 1.0 + 0.18 * speckle
    haematoxylin += chromatin
    return Dyes(haematoxylin, eosin)


@dataclass(frozen=True)
class _Pixels:
    """What the layers need to know of each pixel."""

    scene: Scene
    window: Window
    y_um: Places
    """Bent coordinates."""
    x_um: Places
    tissue: NDArray[np.intp]
    """Mask value, with the connective tissues as one."""
    papillary: Field
    inflamed: Field
    noises: structures.Noises
    present: tuple[int, ...]

    def amount(self, parameter: str) -> Field:
        """A parameter per pixel, passing smoothly between the connective tissues."""
        column = self.scene.table[parameter]
        out = column[self.tissue]
        for share, other in ((self.papillary, _PAP), (self.inflamed, _INF)):
            if column[other] != column[_RET]:
                out += share * (column[other] - column[_RET])
        return out

    def has(self, parameter: str) -> bool:
        """Whether any tissue of the window uses a layer."""
        return bool(self.scene.table[parameter][list(self.present)].any())


def _pixels(scene: Scene, window: Window) -> _Pixels:
    grain = scene.noise("grain", window, _GRAIN_UM)
    wobble = scene.noise("wobble", window, _WOBBLE_UM)
    y_um = window.y_um[:, None].astype(np.float32) + np.float32(_BENT_UM) * wobble
    x_um = window.x_um[None, :].astype(np.float32) + np.float32(_BENT_UM) * grain
    tissue = scene.tissue_at(y_um, x_um, scene.geometry.fatty.over(window))
    connective = _CONNECTIVE[tissue]
    present = np.flatnonzero(np.bincount(tissue.ravel()))
    if connective.any():
        present = np.union1d(present, (_RET, _PAP, _INF))
    return _Pixels(
        scene=scene,
        window=window,
        y_um=y_um,
        x_um=x_um,
        tissue=np.where(connective > 0, _RET, tissue).astype(np.intp),
        papillary=scene.geometry.papillary.over(window) * connective,
        inflamed=scene.geometry.inflamed.over(window) * connective,
        noises=structures.Noises(scene.slow.bend.over(window), grain, wobble),
        present=tuple(present.tolist()),
    )


def _strands(pixels: _Pixels) -> Field:
    """Product of all strand layers: 1 where there is none."""
    geometry = pixels.scene.geometry
    layers: tuple[tuple[str, structures.Layer, CoarseMap], ...] = (
        ("bundles", structures.bundles, geometry.depth_um),
        ("fibrils", structures.fibrils, geometry.depth_um),
        ("lamellae", structures.lamellae, geometry.from_keratin_um),
        ("whorls", structures.whorls, geometry.from_keratin_um),
        ("rings", structures.rings, geometry.from_nest_um),
    )
    factor = np.ones(pixels.window.shape, dtype=np.float32)
    for name, layer, distance in layers:
        if pixels.has(name):
            picture = layer(distance.over(pixels.window), pixels.noises)
            factor *= np.maximum(1.0 + pixels.amount(name) * picture, 0.0)
    return factor


def _part_nests(pixels: _Pixels, haematoxylin: Field) -> None:
    """Septa between the lobules of a nest are free of basaloid cytoplasm."""
    if pixels.has("lobules"):
        patch = pixels.scene.slow.patch.over(pixels.window)
        haematoxylin *= 1.0 - pixels.amount("lobules") * septum(patch, NEST_SEPTUM)


def _open_clefts(pixels: _Pixels, haematoxylin: Field, eosin: Field) -> None:
    """The stroma shrinks away from nests: pale slits along part of their border."""
    near = pixels.scene.geometry.cleft_near.over(pixels.window)
    if near.any():
        kept = 1.0 - 0.9 * np.clip(near * 6.0 - 0.5, 0.0, 1.0) * np.clip(pixels.noises.bend + 0.3, 0.0, 1.0)
        kept[pixels.tissue != _RET] = 1.0
        eosin *= kept
        haematoxylin *= kept


def _hollow_out(pixels: _Pixels, haematoxylin: Field, eosin: Field) -> None:
    """Fat cells and glands, drawn only where they are."""
    scene, window = pixels.scene, pixels.window
    for name, (dye, _) in HOLLOWS.items():
        if pixels.has(name):
            here = np.nonzero(scene.table[name][pixels.tissue])
            slow = (noise.over(window)[here] for noise in (scene.slow.eosin, scene.slow.bend, scene.slow.patch))
            kept = dye(Spots(scene.seed, pixels.y_um[here], pixels.x_um[here], *slow), window.mpp)
            eosin[here] *= kept
            haematoxylin[here] *= kept
