"""Cells and their sums by loops over pixels, literally as the documentation has them."""

import math

import numpy as np

CELL, BLOCK = 8, 8
LEAST_DENSITY, LEAST_DEVIATION = 0.04, 0.004


def deviation(values):
    """Population standard deviation of a list."""
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / len(values))


def statistics_of(square):
    """(8, 8, 3) bytes → nine statistics."""
    density = -np.log10((square.astype(np.float64) + 1) / 256)
    red, green, blue = ([*map(float, density[..., channel].ravel())] for channel in range(3))
    colours = [sum(channel) / 64 for channel in (red, green, blue)]
    deviations = [deviation(channel) for channel in (red, green, blue)]
    deviations += [deviation([r - g for r, g in zip(red, green, strict=True)])]
    deviations += [deviation([b - g for b, g in zip(blue, green, strict=True)])]
    grey = density.mean(axis=-1)
    residuals = []
    for top in range(0, CELL, 2):
        for left in range(0, CELL, 2):
            four = grey[top : top + 2, left : left + 2]
            residuals += [*(four - four.mean()).ravel()]
    deviations += [math.sqrt(sum(residual**2 for residual in residuals) / len(residuals))]
    return [*colours, *(math.log(each + LEAST_DEVIATION) for each in deviations)]


def cells_of(pixels, probabilities, background):
    """(S, S, 3) and (K, S, S) → values (n, n, 9), classes (n, n), counts (n, n)."""
    along = len(pixels) // CELL
    values, classes = np.zeros((along, along, 9)), np.zeros((along, along), dtype=int)
    counts = np.zeros((along, along), dtype=bool)
    for row in range(along):
        for column in range(along):
            here = np.s_[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]
            values[row, column] = statistics_of(pixels[here])
            sums = [float(layer[here].astype(np.float64).sum()) for layer in probabilities]
            classes[row, column] = sums.index(max(sums))
            stained = values[row, column, :3].sum() / 3 > LEAST_DENSITY
            counts[row, column] = stained and classes[row, column] != background
    return values, classes, counts


def sums_of(values, classes, counts, means, whitening):
    """(m, m, 19) sums over blocks of a window; a window that no blocks fill is one block."""
    along = len(counts)
    side = BLOCK if along % BLOCK == 0 else along
    sums = np.zeros((along // side, along // side, 19))
    for row in range(along):
        for column in range(along):
            if counts[row, column]:
                tissue = classes[row, column]
                away = values[row, column] - means[tissue]
                z = [sum(away[d] * whitening[tissue, d, e] for d in range(9)) for e in range(9)]
                sums[row // side, column // side] += [1, *z, *away]
    return sums
