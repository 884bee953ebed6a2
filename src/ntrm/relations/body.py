"""The body of a piece of skin: its main part without holes and cracks, and the pixel sides around it in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Points = NDArray[np.float64]
Where = NDArray[np.bool_]

EMBEDDED_SHARE = 0.58
"""Half a disc has 0.61 of its outline along the arc; keratin that covers a surface touches it with half at most."""
CRACK_UM = 65.0
"""Half the width of the widest crack that is closed."""
CRACK_DEPTH_UM = 80.0
"""Shallower dents belong to the outline: cut edges are ragged."""
GAP_UM = 130.0
"""Half the width of the widest gap over which the parts of a fragmented piece are joined, to find its surface."""
FRAGMENT_SHARE = 0.05
"""A second part of at least this share of the tissue makes a piece fragmented; loose bits stay below 0.02."""


def embedded(keratin: Where, flesh: Where) -> Where:
    """Parts of the keratin that flesh surrounds for the most part: pearls, also those that a cut has opened."""
    parts, count = ndimage.label(keratin, structure=np.ones((3, 3)))
    sides, enclosed = np.zeros(count + 1), np.zeros(count + 1)
    for axis, back in ((0, False), (0, True), (1, False), (1, True)):
        here, there = (slice(1, None), slice(None, -1)) if back else (slice(None, -1), slice(1, None))
        one, other = ((here,), (there,)) if axis == 0 else ((slice(None), here), (slice(None), there))
        border = (parts[one] > 0) & (parts[other] == 0)
        sides += np.bincount(parts[one][border], minlength=count + 1)
        enclosed += np.bincount(parts[one][border & flesh[other]], minlength=count + 1)
    return np.asarray((enclosed > EMBEDDED_SHARE * sides)[parts])


def find_body(tissue: Where, step: NDArray[np.float64]) -> tuple[Where | None, int]:
    """The main part without holes and cracks, and the number of parts with a fair share of the tissue."""
    parts, count = ndimage.label(tissue)
    if not count:
        return None, 0
    pixels = np.bincount(parts.ravel())
    pixels[0] = 0
    large = pixels >= FRAGMENT_SHARE * pixels.sum()
    large[pixels.argmax()] = True
    body: Where = large[parts]
    fragments = int(large.sum())
    if fragments > 1:
        body = _main_part(_closed(body, step, GAP_UM))
    body = ndimage.binary_fill_holes(body)
    body = body | filled_inlets(body, step, CRACK_UM, CRACK_DEPTH_UM)
    return _main_part(ndimage.binary_fill_holes(body)), fragments


def _main_part(where: Where) -> Where:
    parts, _ = ndimage.label(where)
    pixels = np.bincount(parts.ravel())
    pixels[0] = 0
    return np.asarray(parts == pixels.argmax())


def _closed(where: Where, step: NDArray[np.float64], radius_um: float) -> Where:
    """Closing by a disc; the frame is widened so that the disc is never cut off."""
    rows, columns = (int(radius_um / size) + 2 for size in step)
    wide = np.pad(where, ((rows, rows), (columns, columns)))
    near = ndimage.distance_transform_edt(~wide, sampling=step) <= radius_um
    closed = ndimage.distance_transform_edt(near, sampling=step) > radius_um
    return np.asarray(closed[rows:-rows, columns:-columns] | where)


def filled_inlets(body: Where, step: NDArray[np.float64], radius_um: float, depth_um: float) -> Where:
    """Outside pixels in inlets narrower than twice the radius and deeper than ``depth_um``.

    Depth is the distance to what lies outside the closed body. Shallow dents are left as they are.
    """
    closed = ndimage.binary_fill_holes(_closed(body, step, radius_um))
    gained = closed & ~body
    inlets, count = ndimage.label(gained, structure=np.ones((3, 3)))
    if not count:
        return np.asarray(gained)
    away = ndimage.distance_transform_edt(closed, sampling=step)
    deepest = ndimage.maximum(away, inlets, np.arange(1, count + 1))
    deep = np.concatenate([[False], np.asarray(deepest) > depth_um])
    return np.asarray(deep[inlets])


def body_sides(body: Where) -> tuple[Points, NDArray[np.int64], NDArray[np.int64]]:
    """The pixel sides around the body in order, with the pixels inside and outside of each."""
    from skimage import measure

    # Any, as the library is not typed.
    find: Any = measure.find_contours
    contours = find(body.astype(np.float32), 0.5, fully_connected="low")
    sides = max(contours, key=len)[:-1]
    low, high = np.floor(sides).astype(np.int64), np.ceil(sides).astype(np.int64)
    low_is_in = body[tuple(low.T)][:, None]
    return sides, np.where(low_is_in, low, high), np.where(low_is_in, high, low)
