"""Randomness that lives in µm, not in pixels: the same seed gives the same field at every resolution.

Values sit on a lattice of fixed µm spacing and are hashed from (seed, row, column), so neither the size of
the picture nor its resolution changes them. Fields are uniform cubic B-splines through those values.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Field = NDArray[np.float32]
Points = NDArray[np.float64]

_MIX_A, _MIX_B, _GOLDEN = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15
_64_BITS = 2**64 - 1
# A cubic B-spline of independent values has this standard deviation at the mean phase, per axis; dividing by its
# square makes a field's values comparable with a standard normal draw.
_SPLINE_STD = 0.6915


def derive(seed: int, *parts: int | str) -> int:
    """A new 64-bit seed from ``seed`` and a path of names or numbers.

    >>> derive(1, "nuclei") != derive(1, "fibres")
    True
    """
    state = _mix_one(int(np.uint64(seed)))
    for part in parts:
        words = part.encode() if isinstance(part, str) else int(part).to_bytes(8, "little", signed=True)
        for offset in range(0, len(words), 8):
            state = _mix_one(state ^ int.from_bytes(words[offset : offset + 8], "little"))
    return state


def generator(seed: int, *parts: int | str) -> np.random.Generator:
    """A numpy generator for the seed derived from ``parts``."""
    return np.random.default_rng(derive(seed, *parts))


def hash_uniform(seed: int, *indices: NDArray[np.integer]) -> Points:
    """Uniform numbers in [0, 1) that depend on the seed and on integer indices only (arrays broadcast)."""
    state = np.array(_mix_one(int(np.uint64(seed))), dtype=np.uint64)
    with np.errstate(over="ignore"):  # wrap-around is intended
        for index in indices:
            # splitmix64's finaliser
            state = state ^ np.asarray(index).astype(np.int64).view(np.uint64) * np.uint64(_GOLDEN)
            state = state + np.uint64(_GOLDEN)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(_MIX_A)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(_MIX_B)
            state = np.asarray(state ^ (state >> np.uint64(31)), dtype=np.uint64)
    return np.asarray((state >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _mix_one(state: int) -> int:
    """splitmix64's finaliser of a single number, for which numpy takes far longer than Python."""
    state = (state + _GOLDEN) & _64_BITS
    state = ((state ^ (state >> 30)) * _MIX_A) & _64_BITS
    state = ((state ^ (state >> 27)) * _MIX_B) & _64_BITS
    return state ^ (state >> 31)


def _lattice(seed: int, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Zero-mean, unit-variance values at lattice points (uniform: bounded, which keeps anatomy sane)."""
    return np.asarray((hash_uniform(seed, rows, columns) - 0.5) * 12.0**0.5)


def _spline_weights(fraction: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The four cubic B-spline weights at ``fraction`` between two lattice points."""
    t, s = fraction, 1.0 - fraction
    return [s**3 / 6, (3 * t**3 - 6 * t**2 + 4) / 6, (3 * s**3 - 6 * s**2 + 4) / 6, t**3 / 6]


@lru_cache(maxsize=32)
def _spline_matrix(
    count: int, mpp: float, wavelength_um: float, origin_um: float
) -> tuple[sparse.csr_matrix, NDArray[np.int64]]:
    """Sparse (pixels of an axis × lattice) matrix of spline weights, and the lattice indices of its columns.

    Several fields of a strip have the same grid and wavelength, one after the other.
    """
    positions = pixel_centres(count, mpp, origin_um) * (2.0 / wavelength_um)
    base = np.floor(positions).astype(np.int64)
    first, last = int(base.min()) - 1, int(base.max()) + 2
    weights = np.stack(_spline_weights(positions - base), axis=1)  # (n, 4)
    columns = base[:, None] + np.arange(-1, 3) - first
    ends = np.arange(0, 4 * len(positions) + 1, 4)  # of the rows: four weights in each
    shape = (len(positions), last - first + 1)
    return sparse.csr_matrix((weights.ravel(), columns.ravel(), ends), shape=shape), np.arange(first, last + 1)


def pixel_centres(count: int, mpp: float, origin_um: float = 0.0) -> NDArray[np.float64]:
    """µm positions of ``count`` pixel centres along one axis."""
    return np.asarray(origin_um + (np.arange(count) + 0.5) * mpp, dtype=np.float64)


def field(
    seed: int, shape: tuple[int, int], mpp: float, wavelength_um: float, origin_um: tuple[float, float] = (0.0, 0.0)
) -> Field:
    """Smooth noise on a pixel grid: mean about 0, standard deviation about 1, features of ``wavelength_um``.

    ``origin_um`` is (y, x). A wavelength of two pixels or less cannot be shown by the grid; callers drop such octaves
    instead of aliasing them (see ``octaves``).
    """
    across_y, rows = _spline_matrix(shape[0], mpp, wavelength_um, origin_um[0])
    across_x, columns = _spline_matrix(shape[1], mpp, wavelength_um, origin_um[1])
    values = _lattice(seed, rows[:, None], columns[None, :])
    # Sparse products keep the sum order fixed: results do not depend on the number of threads.
    out = across_y @ values  # (H, lattice columns)
    out = (across_x @ out.T).T  # (H, W)
    return np.asarray(out / _SPLINE_STD**2, dtype=np.float32)


def octaves(
    seed: int,
    shape: tuple[int, int],
    mpp: float,
    wavelength_um: float,
    count: int = 4,
    gain: float = 0.5,
    origin_um: tuple[float, float] = (0.0, 0.0),
) -> Field:
    """Sum of ``count`` octaves, each half the wavelength and ``gain`` times the height of the one before.

    Octaves finer than the grid can show are left out, so a coarse view is the smoothed fine view.
    """
    total = np.zeros(shape, dtype=np.float32)
    norm = np.sqrt(sum(gain ** (2 * k) for k in range(count)))
    for k in range(count):
        wavelength = wavelength_um / 2**k
        if wavelength >= 2.0 * mpp:
            total += field(derive(seed, k), shape, mpp, wavelength, origin_um) * np.float32(gain**k / norm)
    return total


def field_at(seed: int, y_um: Points, x_um: Points, wavelength_um: float) -> Field:
    """The same noise at arbitrary positions (for warped coordinates). Positions broadcast."""
    y, x = np.broadcast_arrays(np.asarray(y_um) * (2.0 / wavelength_um), np.asarray(x_um) * (2.0 / wavelength_um))
    base_y, base_x = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    weights_y, weights_x = _spline_weights(y - base_y), _spline_weights(x - base_x)
    first_y, first_x = int(base_y.min()) - 1, int(base_x.min()) - 1
    rows = np.arange(first_y, int(base_y.max()) + 3)
    columns = np.arange(first_x, int(base_x.max()) + 3)
    table = _lattice(seed, rows[:, None], columns[None, :])
    out = np.zeros(y.shape)
    for i, weight_y in enumerate(weights_y):
        for j, weight_x in enumerate(weights_x):
            out += weight_y * weight_x * table[base_y - first_y + i - 1, base_x - first_x + j - 1]
    return np.asarray(out / _SPLINE_STD**2, dtype=np.float32)


def profile(seed: int, u_um: Points, wavelength_um: float) -> NDArray[np.float64]:
    """Smooth one-dimensional noise along ``u_um`` (mean about 0, standard deviation about 1)."""
    u = np.asarray(u_um) * (2.0 / wavelength_um)
    base = np.floor(u).astype(np.int64)
    zero = np.zeros(1, dtype=np.int64)
    out = np.zeros(u.shape)
    for i, weight in enumerate(_spline_weights(u - base)):
        out += weight * _lattice(seed, base + i - 1, zero)
    return out / _SPLINE_STD


def points(
    seed: int, extent_um: tuple[float, float], spacing_um: float, origin_um: tuple[float, float] = (0.0, 0.0)
) -> tuple[Points, Points, NDArray[np.float64], NDArray[np.int64]]:
    """One jittered point per square cell of side ``spacing_um`` inside the extent (height, width).

    Returns y, x (µm), a uniform mark in [0, 1) for thinning, and a non-negative identity from which further
    marks can be hashed. The same point has the same position, mark and identity at every resolution and crop.
    """
    (height, width), (y0, x0) = extent_um, origin_um
    rows = np.arange(int(np.floor(y0 / spacing_um)), int(np.floor((y0 + height) / spacing_um)) + 1)[:, None]
    columns = np.arange(int(np.floor(x0 / spacing_um)), int(np.floor((x0 + width) / spacing_um)) + 1)[None, :]
    y = (rows + hash_uniform(derive(seed, "y"), rows, columns)) * spacing_um
    x = (columns + hash_uniform(derive(seed, "x"), rows, columns)) * spacing_um
    mark = hash_uniform(derive(seed, "mark"), rows, columns)
    identity = ((rows & 0x3FFFFFFF) << 30 | (columns & 0x3FFFFFFF)).astype(np.int64)
    inside = (y >= y0) & (y < y0 + height) & (x >= x0) & (x < x0 + width)
    return y[inside], x[inside], mark[inside], identity[inside]
