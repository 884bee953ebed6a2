"""Windows that see tissue: the others need no network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ntrm.data.tiles import Window
from ntrm.errors import DataError, UsageError
from ntrm.resolution import Resolution
from ntrm.slide.glass import as_resolution
from ntrm.slide.places import Places

MARGIN_UM = 60.0
"""Windows this near to tissue count, too: the mask was found in a coarser picture."""


def windows_with_tissue(
    windows: Sequence[Window],
    tissue: Places,
    thumb_mpp: float | Resolution,
    model_mpp: float | Resolution,
    *,
    margin_um: float = MARGIN_UM,
) -> tuple[Window, ...]:
    """Those of ``windows`` (pixels of ``model_mpp``) that see some of ``tissue`` (pixels of ``thumb_mpp``), in order.

    Both grids start at the same corner of the slide. Since every window over a place of tissue is kept, the places of
    tissue come out the same as with all windows.

    >>> tissue = np.zeros((50, 50), dtype=bool)
    >>> tissue[40, 40] = True
    >>> windows = (Window(0, 0, 64, 64), Window(0, 36, 64, 64), Window(36, 0, 64, 64), Window(36, 36, 64, 64))
    >>> windows_with_tissue(windows, tissue, 20.0, 10.0)
    (Window(top=36, left=36, height=64, width=64, pad_bottom=0, pad_right=0),)
    """
    if tissue.ndim != 2 or tissue.dtype != np.bool_ or tissue.size == 0:
        raise DataError("no tissue mask", got=f"{tissue.dtype} {tissue.shape}", expected="bool (height, width)")
    if not 0 <= margin_um < np.inf:
        raise UsageError("impossible margin around tissue", got=margin_um, expected="µm, 0 or more")
    if not windows:
        return ()
    thumb, model = as_resolution(thumb_mpp), as_resolution(model_mpp)
    places = np.array([(w.top, w.left, w.height, w.width) for w in windows], dtype=np.float64).T
    rows = _covered(places[0], places[2], model.y, thumb.y, margin_um, tissue.shape[0])
    columns = _covered(places[1], places[3], model.x, thumb.x, margin_um, tissue.shape[1])
    seen = _counts(tissue, rows, columns) > 0
    return tuple(window for window, sees in zip(windows, seen, strict=True) if sees)


def _covered(
    start: NDArray[np.float64], length: NDArray[np.float64], model: float, thumb: float, margin: float, size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and one past the last pixel of the thumbnail that the windows touch, at least one each."""
    # A pixel that is touched by rounding noise alone does no harm: one window too many.
    first = np.floor((start * model - margin) / thumb).astype(np.int64)
    first = np.clip(first, 0, size - 1)
    stop = np.ceil(((start + length) * model + margin) / thumb).astype(np.int64)
    return first, np.clip(stop, first + 1, size)


def _counts(
    tissue: Places,
    rows: tuple[NDArray[np.int64], NDArray[np.int64]],
    columns: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Pixels of tissue in each rectangle, from one table of sums however many windows there are."""
    sums = np.zeros((tissue.shape[0] + 1, tissue.shape[1] + 1), dtype=np.int64)
    np.cumsum(tissue, axis=0, out=sums[1:, 1:])
    np.cumsum(sums[1:, 1:], axis=1, out=sums[1:, 1:])
    (top, bottom), (left, right) = rows, columns
    return np.asarray(sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left])
