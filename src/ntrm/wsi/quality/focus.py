"""Whether a picture is in focus, judged by how much of its detail is fine.

Blurring takes the finest detail first. With the deviations e₀ of what a Gaussian of 1 pixel removes from the density,
and e₁ of what lies between 1 and 2 pixels, e₀ / e₁ was at least 1.02 in 505 sharp sections of skin, colon and prostate,
and at most 0.82 once they were blurred by 1.2 pixels (``bench/slide_focus.py``). It depends on no stain's strength.

Pixels smaller than ``FINEST_UM`` are put together first: what is as fine as that shows how good the optics and the
compression are, and hardly any tissue has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.errors import UsageError, check_number
from ntrm.core.mpp import Resolution
from ntrm.data.resample import area_average
from ntrm.data.tiles import Window
from ntrm.wsi.quality.morphology import BoolMask, Floats
from ntrm.wsi.quality.thumbnail import Picture, as_resolution, check_picture, green_density

SHARP, BLURRED = 1.2, 0.4
"""Shares of fine detail that score 0 and 1."""
FINEST_UM = 1.2
"""Focus is judged at no finer µm/px."""
LEAST_DENSITY, MOST_DENSITY = 0.05, 0.8
"""Paler is glass or fat, denser is clipped."""
RIM_PX = 3
"""The border of the tissue is an edge, not its detail."""
LEAST_PIXELS = 300
"""Fewer pixels of tissue tell nothing."""
SAMPLES, SAMPLE_PX = 12, 128
"""Windows that are judged, and their side as they are judged."""


def fine_detail(
    picture: Picture, tissue: BoolMask | None = None, *, glass: NDArray[np.float32] | None = None
) -> float | None:
    """e₀ / e₁ of the tissue in a picture (H, W, 3) at the resolution that matters; None where too little is seen.

    ``glass`` (3,) is the colour of the slide's glass, where it is known: a small picture may show none.
    """
    check_picture(picture)
    return _fine_detail(green_density(picture, glass), tissue)


def blur_score(details: Sequence[float | None]) -> float | None:
    """0, sharp, to 1, blurred: from the median of the windows that tell anything; None if none does.

    >>> blur_score([1.5, 0.8, None, 0.7])
    0.5
    """
    known = [detail for detail in details if detail is not None]
    if not known:
        return None
    return round(float(np.clip((SHARP - np.median(known)) / (SHARP - BLURRED), 0.0, 1.0)), 4)


def sample_windows(
    tissue: BoolMask,
    thumb_mpp: float | Resolution,
    model_mpp: float | Resolution,
    shape: tuple[int, int],
    *,
    count: int = SAMPLES,
    size: int = SAMPLE_PX,
) -> tuple[Window, ...]:
    """Up to ``count`` windows with much tissue, spread over the model's grid of ``shape`` (height, width) pixels.

    They have ``size`` pixels a side once ``as_judged`` has put fine ones together. Always the same ones for the same
    slide: of the windows that tile the grid, in the order of their places, those at equal distances among the fuller
    half.
    """
    check_number("number of samples", count, 1, 10_000, whole=True)
    if min(shape) < 1 or size < 1:
        raise UsageError("nothing to sample", got=f"grid {shape}, windows {size}", expected="at least one pixel each")
    thumb, model = as_resolution(thumb_mpp), as_resolution(model_mpp)
    down, across = _together(model)
    height, width = min(size * down, shape[0]), min(size * across, shape[1])
    tops, lefts = np.arange(0, shape[0] - height + 1, height), np.arange(0, shape[1] - width + 1, width)
    shares = _shares(
        tissue,
        tops * (model.y / thumb.y),
        lefts * (model.x / thumb.x),
        height * model.y / thumb.y,
        width * model.x / thumb.x,
    )
    if not shares.any():
        return ()
    full = np.flatnonzero((shares > 0) & (shares >= np.median(shares[shares > 0])))
    chosen = full[np.unique(np.linspace(0, len(full) - 1, count).round().astype(int))]
    return tuple(Window(int(tops[k // len(lefts)]), int(lefts[k % len(lefts)]), height, width) for k in chosen)


def as_judged(sample: Picture, mpp: float | Resolution) -> Picture:
    """A window at ``mpp``, coarsened to at least ``FINEST_UM`` a pixel.

    >>> as_judged(np.zeros((20, 10, 3), dtype=np.uint8), 0.25).shape
    (4, 2, 3)
    """
    check_picture(sample)
    down, across = _together(as_resolution(mpp))
    return sample if down == across == 1 else area_average(sample, down, across)


def _together(mpp: Resolution) -> tuple[int, int]:
    """Rows and columns that make one pixel of what is judged; µm/px in tags are rounded."""
    down, across = (max(1, math.ceil(FINEST_UM / each - 0.01)) for each in (mpp.y, mpp.x))
    return down, across


def _fine_detail(density: Floats, tissue: BoolMask | None) -> float | None:
    green = np.clip(density, -LEAST_DENSITY, MOST_DENSITY)
    smooth = [_smoothed(green, sigma) for sigma in (1, 2, 4)]
    places = smooth[2] > LEAST_DENSITY
    if tissue is not None:
        places &= tissue
    places = ndimage.binary_erosion(places, iterations=RIM_PX)
    if np.count_nonzero(places) < LEAST_PIXELS:
        return None
    fine, coarse = (green - smooth[0])[places].std(), (smooth[0] - smooth[1])[places].std()
    return float(fine / coarse) if coarse > 0 else None


def _smoothed(plane: Floats, sigma: float) -> Floats:
    return np.asarray(ndimage.gaussian_filter(plane, sigma, mode="nearest", truncate=3.0))


def _shares(
    tissue: BoolMask, tops: NDArray[np.floating], lefts: NDArray[np.floating], height: float, width: float
) -> NDArray[np.float64]:
    """Share of tissue under windows at all ``tops`` and ``lefts``, row by row; all in pixels of the mask."""
    sums = np.zeros((tissue.shape[0] + 1, tissue.shape[1] + 1), dtype=np.int32)
    np.cumsum(tissue, axis=0, dtype=np.int32, out=sums[1:, 1:])
    np.cumsum(sums[1:, 1:], axis=1, out=sums[1:, 1:])
    (top, bottom), (left, right) = _touched(tops, height, tissue.shape[0]), _touched(lefts, width, tissue.shape[1])
    counts = (
        sums[np.ix_(bottom, right)] - sums[np.ix_(top, right)] - sums[np.ix_(bottom, left)] + sums[np.ix_(top, left)]
    )
    areas = (bottom - top)[:, None] * (right - left)
    return np.asarray(counts / np.maximum(areas, 1)).ravel()


def _touched(starts: NDArray[np.floating], length: float, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and one past the last pixel under windows; what is touched by rounding alone does not count."""
    first, stop = np.floor(starts + 1e-6).astype(np.int64), np.ceil(starts + length - 1e-6).astype(np.int64)
    return np.minimum(first, size), np.minimum(stop, size)
