"""Drawing nuclei: soft ellipses that keep concentration × area on every grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.phantom.noise import Field, Points
from ntrm.phantom.texture.grid import Window

LARGEST_RADIUS_UM = 8.0
"""No half axis is longer; windows look this far beyond their edge."""

_CHUNK = 8192
_THINNEST_PX = np.float32(0.75)
"""Above the distance from a pixel's corner to its centre."""
_PALE_INSIDE = np.float32(0.7)


@dataclass(frozen=True)
class Nuclei:
    """One row per nucleus."""

    y_um: Points
    x_um: Points
    long_um: Points
    """Half axes."""
    short_um: Points
    angle: Points
    """Direction of the long axis, radians from x towards y."""
    haematoxylin: Points
    rim: Points
    """0: evenly dark; 1: pale inside with a dark membrane."""

    def __len__(self) -> int:
        return len(self.y_um)


def splat(nuclei: Nuclei, window: Window) -> Field:
    """Haematoxylin that the nuclei put on the window's pixels. Nuclei in one place add up, as in a thick section."""
    total = np.zeros(window.shape[0] * window.shape[1])
    for first in range(0, len(nuclei), _CHUNK):
        index, weight = _stamps(nuclei, slice(first, first + _CHUNK), window)
        total += np.bincount(index, weights=weight, minlength=total.size)
    return total.reshape(window.shape).astype(np.float32)


def _stamps(nuclei: Nuclei, part: slice, window: Window) -> tuple[NDArray[np.int64], Field]:
    """Flat pixel indices and values of a chunk of nuclei."""
    y = (nuclei.y_um[part] - window.origin_um[0]) / window.mpp
    x = (nuclei.x_um[part] - window.origin_um[1]) / window.mpp
    long, short = ((axis[part] / window.mpp).astype(np.float32) for axis in (nuclei.long_um, nuclei.short_um))
    amount = nuclei.haematoxylin[part].astype(np.float32) * np.float32(np.pi) * long * short
    # A nucleus thinner than a pixel would slip between pixel centres: it is drawn wider and, by its amount, paler.
    long, short = np.maximum(long, _THINNEST_PX), np.maximum(short, _THINNEST_PX)
    reach = int(np.ceil(float(long.max()) + 0.5))
    offset = np.arange(-reach, reach + 1)
    row, column = (np.floor(at).astype(np.int64)[:, None] + offset for at in (y, x))  # (n, P)
    dy, dx = (row + 0.5 - y[:, None]).astype(np.float32), (column + 0.5 - x[:, None]).astype(np.float32)
    profile = _profile(dy[:, :, None], dx[:, None, :], nuclei.angle[part], long, short, nuclei.rim[part])  # (n, P, P)
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
