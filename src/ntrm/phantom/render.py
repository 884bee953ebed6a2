"""A mask becomes a stained section: the same seed gives the same section at every resolution; ink, focus, sensor."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, SKIN, Mask
from ntrm.core.mpp import Resolution
from ntrm.phantom import noise
from ntrm.phantom.noise import derive, generator
from ntrm.phantom.stain import Stain, Vector
from ntrm.phantom.texture.canvas import CoarseMap, Window, block_mean
from ntrm.phantom.texture.paint import paint
from ntrm.phantom.texture.scene import Scene
from ntrm.phantom.texture.table import BASALOID, DERMAL, EMPTY, members

_GRID_UM = 6.7
_CRUST_UM = 14.0
"""Thickness of the inked crust: standard deviation of the blur around the edge."""
_CRUMB_UM, _ARC_UM = 80.0, 1800.0

INKS: dict[str, Vector] = {"blue": (1.0, 0.62, 0.20), "green": (0.90, 0.35, 0.55), "black": (0.80, 0.80, 0.72)}
"""Optical density per channel."""

_CUT = DERMAL + members(*BASALOID)
"""Tissue that a knife opens: ink sits on it, not on the skin's own surface."""


@dataclass(frozen=True)
class Ink:
    """Where a section's margin carries ink, and of which colour."""

    seed: int
    density: Vector
    margin: CoarseMap

    @classmethod
    def on(cls, mask: Mask, mpp: float, seed: int, share: float) -> Ink:
        """Ink on about ``share`` of the cut margin, in arcs."""
        factor = max(1, round(_GRID_UM / mpp))
        step = mpp * factor
        # Holes and tears inside the section were not there when it was painted.
        outside = ~ndimage.binary_fill_holes(block_mean(EMPTY[mask], factor) < 0.5)
        near_outside = _blur(outside.astype(np.float32), step)
        near_cut = _blur(block_mean(_CUT[mask], factor), step)
        arcs = noise.field(derive(seed, "arcs"), outside.shape, step, _ARC_UM)
        margin = np.minimum(4.0 * near_outside * near_cut, 1.0) * (arcs > _threshold(share))
        colour = generator(seed, "ink").choice(list(INKS))
        return cls(seed, INKS[colour], CoarseMap(margin.astype(np.float32), step))

    def transmission(self, window: Window) -> NDArray[np.float32] | None:
        """Share of light (H, W, 3) that the ink lets through; None where there is no ink."""
        margin = self.margin.over(window)
        if not margin.any():
            return None
        seed = derive(self.seed, "crumbs")
        crumbs = noise.octaves(seed, window.shape, window.mpp, _CRUMB_UM, count=3, gain=0.9, origin_um=window.origin_um)
        amount = np.clip(2.0 * (margin - 0.8) + 1.1 * crumbs, 0.0, 1.0) * margin
        scale = np.float32(-math.log(10)) * np.asarray(self.density, dtype=np.float32)
        return np.asarray(np.exp(amount[..., None] * scale))


def _threshold(share: float) -> float:
    """Level that a standard normal field exceeds on ``share`` of its area."""
    if share >= 1.0:
        return -math.inf
    return NormalDist().inv_cdf(1.0 - share) if share > 0.0 else math.inf


def _blur(values: NDArray[np.float32], step: float) -> NDArray[np.float32]:
    return np.asarray(ndimage.gaussian_filter(values, _CRUST_UM / step, mode="nearest", truncate=3.0), dtype=np.float32)


# What happens between tissue and file: ink, light, focus, sensor, compression. Each can be switched off.


Picture = NDArray[np.float32]

_LIMITS = {"uneven_light": 0.5, "blur_um": 50.0, "sensor_noise": 64.0, "ink": 1.0}
_JPEG_TILE_PX = 2048
"""Scanners compress tile by tile; it also keeps large pictures within what JPEG allows."""
_BLUR_SEEN_PX = 0.2


@dataclass(frozen=True)
class Artefacts:
    """Strengths; 0 (for JPEG: None) switches one off.

    >>> Artefacts.none() == Artefacts(uneven_light=0, blur_um=0, sensor_noise=0, jpeg_quality=None, ink=0)
    True
    """

    uneven_light: float = 0.0
    """Relative loss of light from one side of the picture to the other."""
    blur_um: float = 0.0
    """Defocus: standard deviation of the point spread."""
    sensor_noise: float = 0.0
    """Standard deviation in grey levels."""
    jpeg_quality: int | None = None
    """Pillow's quality, 1 to 95."""
    ink: float = 0.0
    """Share of the cut margin that carries surgical ink."""

    def __post_init__(self) -> None:
        for name, most in _LIMITS.items():
            if not 0.0 <= getattr(self, name) <= most:
                raise UsageError(f"artefact {name} out of range", got=getattr(self, name), expected=f"0 to {most:g}")
        if self.jpeg_quality is not None and not 1 <= self.jpeg_quality <= 95:
            raise UsageError("JPEG quality out of range", got=self.jpeg_quality, expected="1 to 95, or None for none")

    @classmethod
    def none(cls) -> Artefacts:
        """A clean picture."""
        return cls()

    @classmethod
    def draw(cls, seed: int) -> Artefacts:
        """Mild artefacts as a scanner leaves them; ink on half of the sections."""
        draw = generator(seed, "artefacts")
        return cls(
            uneven_light=float(draw.uniform(0.0, 0.04)),
            blur_um=float(draw.uniform(0.0, 1.8)),
            sensor_noise=float(draw.uniform(0.3, 2.0)),
            jpeg_quality=int(draw.integers(75, 95)),
            ink=float(draw.uniform(0.2, 0.8)) * float(draw.random() < 0.5),
        )


def expose(picture: Picture, mpp: float, seed: int, artefacts: Artefacts) -> NDArray[np.uint8]:
    """The picture (H, W, 3), 0 to 255, as it comes out of the scanner. Ink is on the tissue, not here."""
    height, width, _ = picture.shape
    light = _light(height, width, seed, artefacts.uneven_light)
    draw = generator(seed, "sensor")
    out = np.empty(picture.shape, dtype=np.uint8)
    # Colour by colour: large sections then need little more memory than they take themselves.
    for channel in range(3):
        plane = picture[..., channel] * light
        sigma_px = artefacts.blur_um / mpp
        if sigma_px > _BLUR_SEEN_PX:
            plane = ndimage.gaussian_filter(plane, sigma_px, mode="nearest", truncate=3.0)
        if artefacts.sensor_noise:
            plane += np.float32(artefacts.sensor_noise) * draw.standard_normal(plane.shape, dtype=np.float32)
        out[..., channel] = np.clip(plane + np.float32(0.5), 0, 255)
    return out if artefacts.jpeg_quality is None else _through_jpeg(out, artefacts.jpeg_quality)


def _light(height: int, width: int, seed: int, strength: float) -> NDArray[np.float32]:
    """Falls from 1 to 1 - ``strength`` across the picture, in a random direction."""
    angle = generator(seed, "light").uniform(0.0, 2.0 * math.pi)
    y, x = ((np.arange(n, dtype=np.float32) + 0.5) / n - 0.5 for n in (height, width))
    along = y[:, None] * np.float32(math.sin(angle)) + x[None, :] * np.float32(math.cos(angle))
    reach = np.float32(abs(math.sin(angle)) + abs(math.cos(angle)))
    return np.asarray(1.0 - np.float32(strength) * (0.5 + along / reach), dtype=np.float32)


def _through_jpeg(picture: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Encode and decode, tile by tile."""
    out = np.empty_like(picture)
    for y in range(0, picture.shape[0], _JPEG_TILE_PX):
        for x in range(0, picture.shape[1], _JPEG_TILE_PX):
            tile = (slice(y, y + _JPEG_TILE_PX), slice(x, x + _JPEG_TILE_PX))
            stream = io.BytesIO()
            Image.fromarray(picture[tile]).save(stream, format="JPEG", quality=quality)
            stream.seek(0)
            with Image.open(stream) as decoded:
                out[tile] = np.asarray(decoded)
    return out


# A mask becomes a stained section: the same seed gives the same section at every resolution.


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
