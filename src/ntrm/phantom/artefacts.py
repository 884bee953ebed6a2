"""What happens between tissue and file: ink, brightness, focus, sensor, compression. Each can be turned off."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from ntrm.core.errors import UsageError
from ntrm.core.labels import Mask
from ntrm.phantom import noise
from ntrm.phantom.noise import derive, generator
from ntrm.phantom.stain import Vector
from ntrm.phantom.texture.grid import CoarseMap, Window, block_mean
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
