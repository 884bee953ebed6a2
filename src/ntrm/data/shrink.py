"""Exact shrinking of images and masks by any factor: area averages and area-weighted majority votes.

Output pixel ``i`` of an axis covers the input interval ``[i·f, (i+1)·f)``, cut off at the input's end; an input
pixel counts by the length of it that lies inside. The factor is never bent to fit the size, so that µm/px are
exactly the input's times ``f``. An axis of ``n`` pixels becomes ``n / f`` pixels, rounded half up and at least 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ntrm.data.stats import pixel_counts
from ntrm.errors import RefusedError
from ntrm.labels import IGNORE, Mask

Factor = Fraction | float
Weights = Any
"""A sparse (output length, input length) matrix."""

_BAND_PIXELS = 2_000_000
"""Input pixels that are worked on at once, in double precision."""


def shrunk_length(length: int, factor: Factor) -> int:
    """Pixels that are left of an axis: rounded half up, at least 1.

    >>> shrunk_length(25, 10), shrunk_length(24, 10), shrunk_length(3, 10), shrunk_length(5, 2.5)
    (3, 2, 1, 2)
    """
    step = _exact(factor)
    return max(1, (2 * length * step.denominator + step.numerator) // (2 * step.numerator))


def area_average(image: NDArray[np.uint8], factor_y: Factor, factor_x: Factor) -> NDArray[np.uint8]:
    """Shrink (H, W) or (H, W, C) pixels by averaging over areas; rounded half up.

    >>> area_average(np.array([[0, 10, 20, 30, 40]], dtype=np.uint8), 1, 2.5).tolist()
    [[8, 32]]
    """
    planes = image.reshape(*image.shape[:2], -1)
    rows, columns = area_weights(image.shape[0], factor_y), area_weights(image.shape[1], factor_x)
    area = _area(rows, columns)[..., None]
    out = np.empty((*area.shape[:2], planes.shape[2]), dtype=np.uint8)
    for inside, outside, weights in _bands(rows, image.shape[1]):
        sums = _weighted_sums(planes[inside], weights, columns)
        out[outside] = np.floor((sums + area[outside] / 2) / area[outside])
    return out.reshape(*area.shape[:2], *image.shape[2:])


def majority_vote(mask: Mask, factor_y: Factor, factor_x: Factor, classes: int) -> Mask:
    """Shrink a mask: each label votes with its area, and ignore votes like a label.

    The largest area wins, and of equal areas the lowest index, so that ignore never wins a tie.

    >>> majority_vote(np.array([[0, 1, 1, 2, 255, 255, 3, 1]], dtype=np.uint8), 1, 2, classes=4).tolist()
    [[0, 1, 255, 1]]
    """
    rows, columns = area_weights(mask.shape[0], factor_y), area_weights(mask.shape[1], factor_x)
    out = np.empty((rows.shape[0], columns.shape[0]), dtype=np.uint8)
    for inside, outside, weights in _bands(rows, mask.shape[1]):
        band, winner = mask[inside], out[outside]
        most = np.zeros(winner.shape)
        for label in _labels(band, classes):
            votes = _weighted_sums((band == label)[..., None], weights, columns)[..., 0]
            winner[votes > most] = label
            np.maximum(most, votes, out=most)
    return out


def area_weights(length: int, factor: Factor) -> Weights:
    """Length of each input pixel (column) inside each output pixel (row), in units that make it a whole number.

    >>> area_weights(5, 2.5).toarray().tolist()
    [[2.0, 2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0, 2.0]]
    """
    step = _exact(factor)
    if step < 1:
        raise RefusedError("pixels can only be shrunk", got=f"factor {float(step):g}", expected="1 or more")
    # In units of 1/q input pixels, f = p/q: output pixel i covers [i·p, (i+1)·p), input pixel j [j·q, (j+1)·q).
    p, q = step.numerator, step.denominator
    start = np.arange(shrunk_length(length, step), dtype=np.int64) * p
    stop = np.minimum(start + p, length * q)
    first, last = start // q, (stop - 1) // q
    offsets = np.concatenate([[0], np.cumsum(last - first + 1)])
    row = np.repeat(np.arange(len(start)), last - first + 1)
    column = np.arange(offsets[-1]) - offsets[row] + first[row]
    weight = np.minimum(stop[row], (column + 1) * q) - np.maximum(start[row], column * q)
    return sparse.csr_array((weight.astype(np.float64), column, offsets), shape=(len(start), length))


def _exact(factor: Factor) -> Fraction:
    """The factor as a fraction; level ratios such as 10/3 are exact, floats to about one in a million."""
    return Fraction(factor).limit_denominator(1_000_000)


def _area(rows: Weights, columns: Weights) -> NDArray[np.float64]:
    """Area of every output pixel, smaller where it is cut off at the border: (h, w)."""
    return np.outer(rows.sum(axis=1), columns.sum(axis=1))


def _bands(rows: Weights, width: int) -> Iterator[tuple[slice, slice, Weights]]:
    """Input rows, the output rows they make up, and the weights between them; bounds the memory."""
    height, length = rows.shape
    step = max(1, _BAND_PIXELS * height // (length * width))
    for start in range(0, height, step):
        stop = min(start + step, height)
        used = rows.indices[rows.indptr[start] : rows.indptr[stop]]
        inside = slice(int(used[0]), int(used[-1]) + 1)
        yield inside, slice(start, stop), rows[start:stop, inside]


def _weighted_sums(planes: NDArray[Any], rows: Weights, columns: Weights) -> NDArray[np.float64]:
    """Sums over the area of every output pixel: (H, W, C) → (h, w, C)."""
    height, width, channels = planes.shape
    flat = rows @ planes.reshape(height, width * channels).astype(np.float64)  # (h, W·C)
    upright = flat.reshape(-1, width, channels).transpose(1, 0, 2).reshape(width, -1)  # (W, h·C)
    sums: NDArray[np.float64] = (columns @ upright).reshape(columns.shape[0], -1, channels).transpose(1, 0, 2)
    return sums


def _labels(band: Mask, classes: int) -> list[int]:
    """Labels in ``band``, ascending."""
    labels: list[int] = np.flatnonzero(pixel_counts(band, classes)).tolist()
    return [IGNORE if label == classes else label for label in labels]
