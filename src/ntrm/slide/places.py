"""Sets of pixels of a thumbnail, worked on in µm and mm²: nearness, averages, specks and holes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.resolution import Resolution

Places = NDArray[np.bool_]
Floats = NDArray[np.float32]

_ALL_NEIGHBOURS = np.ones((3, 3), dtype=bool)


def near(places: Places, um: float, scale: Resolution) -> Places:
    """Where some place lies at most ``um`` away.

    >>> near(np.array([[True, False, False]]), 10.0, Resolution.square(10.0)).tolist()
    [[True, True, False]]
    """
    if not places.any():
        return places.copy()
    return np.asarray(ndimage.distance_transform_edt(~places, sampling=(scale.y, scale.x)) <= um)


def opened(places: Places, um: float, scale: Resolution) -> Places:
    """What a disc of radius ``um`` covers that fits into ``places``; the picture's edge does not narrow anything."""
    return places & near(~near(~places, um, scale), um, scale)


def blurred(values: NDArray[np.floating], um: float, scale: Resolution) -> Floats:
    """Average of (H, W) values with a Gaussian of standard deviation ``um``."""
    sigma = (um / scale.y, um / scale.x)
    values = np.asarray(values, dtype=np.float32)
    return np.asarray(ndimage.gaussian_filter(values, sigma, mode="nearest", truncate=3.0))


def without_specks(places: Places, mm2: float, scale: Resolution) -> Places:
    """Without connected regions smaller than ``mm2``."""
    regions, sizes = regions_of(places)
    kept = _mm2(sizes, scale) >= mm2
    kept[0] = False
    return np.asarray(kept[regions])


def without_holes(places: Places, mm2: float, scale: Resolution) -> Places:
    """With enclosed gaps up to ``mm2`` filled.

    >>> ring = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> bool(without_holes(ring, 1.0, Resolution.square(10.0)).all())
    True
    """
    gaps, _ = ndimage.label(~places)
    filled = _mm2(np.bincount(gaps.ravel()), scale) <= mm2
    filled[np.unique(np.concatenate([gaps[0], gaps[-1], gaps[:, 0], gaps[:, -1]]))] = False
    filled[0] = True
    return np.asarray(filled[gaps])


def _mm2(pixels: NDArray[np.int64], scale: Resolution) -> NDArray[np.float64]:
    return np.asarray(pixels * (scale.pixel_area_um2 / 1e6))


def regions_of(places: Places) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Connected regions, numbered from 1 (diagonal neighbours connect), and the pixels of each; entry 0 is the rest."""
    regions, _ = ndimage.label(places, structure=_ALL_NEIGHBOURS)
    return regions, np.bincount(regions.ravel())
