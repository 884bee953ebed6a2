"""Whether a picture is in focus, judged by how much of its detail is fine.

Blurring takes the finest detail first. With the deviations e₀ of what a Gaussian of 1 pixel removes from the density,
and e₂ of what lies between 2 and 4 pixels, e₀ / e₂ is above 1.2 in sharp sections of skin, colon and prostate at any
usual µm/px, and below 0.9 once the picture is blurred by a pixel. It depends on no stain's strength.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from ntrm.data.tiles import Window
from ntrm.errors import UsageError, check_number
from ntrm.resolution import Resolution
from ntrm.slide.glass import Densities, Picture, as_resolution, check_picture, optical_density
from ntrm.slide.places import Floats, Places

SHARP, BLURRED = 1.3, 0.3
"""Shares of fine detail that score 0 and 1."""
LEAST_DENSITY, MOST_DENSITY = 0.05, 0.8
"""Paler is glass or fat, denser is clipped."""
RIM_PX = 3
"""The border of the tissue is an edge, not its detail."""
LEAST_PIXELS = 300
"""Fewer pixels of tissue tell nothing."""
SAMPLES, SAMPLE_PX = 12, 256


def fine_detail(picture: Picture, tissue: Places | None = None) -> float | None:
    """e₀ / e₂ of the tissue in a picture (H, W, 3) at the resolution that matters; None where too little is seen."""
    check_picture(picture)
    return _fine_detail(optical_density(picture), tissue)


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
    tissue: Places,
    thumb_mpp: float | Resolution,
    model_mpp: float | Resolution,
    shape: tuple[int, int],
    *,
    count: int = SAMPLES,
    size: int = SAMPLE_PX,
) -> tuple[Window, ...]:
    """Up to ``count`` windows with much tissue, spread over the model's grid of ``shape`` (height, width) pixels.

    Always the same ones for the same slide: of the windows that tile the grid, in the order of their places, those at
    equal distances among the fuller half.
    """
    check_number("number of samples", count, 1, 10_000, whole=True)
    if min(shape) < 1 or size < 1:
        raise UsageError("nothing to sample", got=f"grid {shape}, windows {size}", expected="at least one pixel each")
    thumb, model = as_resolution(thumb_mpp), as_resolution(model_mpp)
    height, width = min(size, shape[0]), min(size, shape[1])
    candidates = [
        Window(top, left, height, width)
        for top in range(0, shape[0] - height + 1, height)
        for left in range(0, shape[1] - width + 1, width)
    ]
    shares = np.array([_share(tissue, window, model.y / thumb.y, model.x / thumb.x) for window in candidates])
    if not shares.any():
        return ()
    full = np.flatnonzero((shares > 0) & (shares >= np.median(shares[shares > 0])))
    chosen = full[np.unique(np.linspace(0, len(full) - 1, count).round().astype(int))]
    return tuple(candidates[k] for k in chosen)


def _fine_detail(density: Densities, tissue: Places | None) -> float | None:
    green = np.clip(density[..., 1], -LEAST_DENSITY, MOST_DENSITY)
    smooth = [_smoothed(green, sigma) for sigma in (1, 2, 4)]
    places = smooth[2] > LEAST_DENSITY
    if tissue is not None:
        places &= tissue
    places = ndimage.binary_erosion(places, iterations=RIM_PX)
    if np.count_nonzero(places) < LEAST_PIXELS:
        return None
    fine, coarse = (green - smooth[0])[places].std(), (smooth[1] - smooth[2])[places].std()
    return float(fine / coarse) if coarse > 0 else None


def _smoothed(plane: Floats, sigma: float) -> Floats:
    return np.asarray(ndimage.gaussian_filter(plane, sigma, mode="nearest", truncate=3.0))


def _share(tissue: Places, window: Window, down: float, across: float) -> float:
    """Share of tissue under a window, ``down`` and ``across`` pixels of the mask to one of the window's."""
    rows = slice(math.floor(window.top * down), math.ceil((window.top + window.height) * down))
    columns = slice(math.floor(window.left * across), math.ceil((window.left + window.width) * across))
    under = tissue[rows, columns]
    return float(under.mean()) if under.size else 0.0
