"""A mask becomes a stained section: the same seed gives the same section at every resolution."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, SKIN, Mask
from ntrm.core.mpp import Resolution
from ntrm.phantom.artefacts import Artefacts, Ink, Picture, expose
from ntrm.phantom.noise import derive
from ntrm.phantom.stain import Stain
from ntrm.phantom.texture.grid import Window, block_mean
from ntrm.phantom.texture.paint import paint
from ntrm.phantom.texture.scene import Scene
from ntrm.phantom.texture.table import EMPTY

_FINEST_SEEN_UM = 3.4
"""Coarser pictures are painted at a half (a third …) of their µm/px and averaged: fibres and nuclei are finer."""

_BEYOND_TISSUE_UM = 45.0
"""Ink and wavering borders reach no further than this."""

_TISSUE = EMPTY == 0

_BLOCK_PX = 384
"""Side of the squares that are painted one after the other: memory stays small, empty glass costs nothing."""


def render(
    mask: Mask,
    mpp: float,
    seed: int,
    *,
    ambiguity: float = 0.5,
    stain: Stain | None = None,
    artefacts: Artefacts | None = None,
) -> NDArray[np.uint8]:
    """Stain a mask of skin tissues, drawn or real: an RGB picture (H, W, 3).

    ``mpp`` are the mask's µm per pixel. ``ambiguity`` runs from 0, every tissue with its own texture, to 1, where
    look-alike tissues (``LOOK_ALIKE``) cannot be told apart but by their surroundings. Stain and artefacts are drawn
    from the seed unless given. Ignored pixels are drawn as glass.

    >>> mask = np.full((32, 32), SKIN.index("RET"), dtype=np.uint8)
    >>> render(mask, 6.7, seed=1).shape
    (32, 32, 3)
    """
    _check(mask, mpp, seed, ambiguity)
    stain = Stain.draw(derive(seed, "patient"), derive(seed, "laboratory")) if stain is None else stain
    artefacts = Artefacts.draw(derive(seed, "scan")) if artefacts is None else artefacts
    scene = Scene.prepare(mask, mpp, seed, ambiguity)
    ink = Ink.on(mask, mpp, seed, artefacts.ink) if artefacts.ink else None
    picture = np.empty((*mask.shape, 3), dtype=np.float32)
    picture[:] = stain.illumination
    for rows, columns in _blocks(mask, mpp):
        picture[rows, columns] = _block(scene, stain, ink, rows, columns)
    return expose(picture, mpp, seed, artefacts)


def _oversampling(mpp: float) -> int:
    return math.ceil(mpp / _FINEST_SEEN_UM)


def _blocks(mask: Mask, mpp: float) -> Iterator[tuple[slice, slice]]:
    """Rectangles of the picture that hold all tissue and what reaches beyond it."""
    side = max(1, _BLOCK_PX // _oversampling(mpp))
    margin = math.ceil(_BEYOND_TISSUE_UM / mpp)
    for y in range(0, mask.shape[0], side):
        for x in range(0, mask.shape[1], side):
            top, left = max(y - margin, 0), max(x - margin, 0)
            tissue = _TISSUE[mask[top : y + side + margin, left : x + side + margin]]
            if tissue.any():
                rows = _extent(tissue.any(axis=1), top, margin, y, min(y + side, mask.shape[0]))
                columns = _extent(tissue.any(axis=0), left, margin, x, min(x + side, mask.shape[1]))
                yield rows, columns


def _extent(occupied: NDArray[np.bool_], start: int, margin: int, low: int, high: int) -> slice:
    """From ``margin`` before the first to ``margin`` after the last occupied place, within ``low`` and ``high``."""
    places = np.flatnonzero(occupied) + start
    return slice(max(int(places[0]) - margin, low), min(int(places[-1]) + margin + 1, high))


def _block(scene: Scene, stain: Stain, ink: Ink | None, rows: slice, columns: slice) -> Picture:
    factor = _oversampling(scene.mpp)
    shape = ((rows.stop - rows.start) * factor, (columns.stop - columns.start) * factor)
    window = Window((rows.start * scene.mpp, columns.start * scene.mpp), shape, scene.mpp / factor)
    dyes = paint(scene, window)
    light = stain.transmit(dyes.haematoxylin, dyes.eosin)
    inked = ink.transmission(window) if ink else None
    return block_mean(light if inked is None else light * inked, factor)


def _check(mask: Mask, mpp: float, seed: int, ambiguity: float) -> None:
    Resolution.square(mpp)
    if not 0 <= seed < 2**64:
        raise UsageError("seed out of range", got=seed, expected="a whole number from 0 to 2**64 - 1")
    if not 0.0 <= ambiguity <= 1.0:
        raise UsageError("ambiguity out of range", got=ambiguity, expected="a number from 0 to 1")
    if mask.ndim != 2 or mask.dtype != np.uint8 or mask.size == 0:
        raise DataError(
            "a mask to render must be a two-dimensional array of class indices",
            got=f"{mask.dtype} {mask.shape}",
            expected="uint8 (height, width)",
            hint="decode RGB masks with LabelSchema.decode first",
        )
    values = np.flatnonzero(np.bincount(mask.ravel(), minlength=IGNORE + 1))
    strange = [int(value) for value in values if len(SKIN) <= value < IGNORE]
    if strange:
        raise DataError(
            "the mask holds values that are no skin tissue",
            got=strange,
            expected=f"0 to {len(SKIN) - 1}, or {IGNORE} for ignore",
            hint="remap the mask to the skin schema by name",
        )
