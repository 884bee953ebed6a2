"""Pixels of a slide as QuPath counts them, on the grid of the section that is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.annotations.rasterise import Grid
from ntrm.resolution import Resolution
from ntrm.slide.reading.base import Pixels, SlideReader

BLOCK = 1024
"""Side of the largest piece of the slide held in memory, in full-resolution pixels."""


@dataclass(frozen=True)
class Slide:
    """The full resolution of a slide.

    QuPath shows only the scanned part where a file states one, and counts pixels from its top left; so do we.
    """

    reader: SlideReader

    @property
    def origin(self) -> tuple[int, int]:
        """Where QuPath's (0, 0) lies in the file's own pixels."""
        return self.reader.info.area[:2]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in full-resolution pixels."""
        return self.reader.info.area[2:]

    @property
    def resolution(self) -> Resolution | None:
        """µm/px, or None where the file does not credibly tell."""
        return self.reader.info.resolution

    def read(self, left: int, top: int, width: int, height: int) -> Pixels:
        """Pixels of a rectangle that lies inside the slide."""
        return self.reader.read(left + self.origin[0], top + self.origin[1], width, height, 0)


def read_grid(slide: Slide, grid: Grid) -> Pixels:
    """The slide on a coarser grid: every pixel is the mean of the slide over its area, read block by block."""
    image = np.empty((grid.height, grid.width, 3), dtype=np.uint8)
    tall, wide = (max(1, int(BLOCK / step)) for step in (grid.step_y, grid.step_x))
    for row in range(0, grid.height, tall):
        for column in range(0, grid.width, wide):
            part = image[row : row + tall, column : column + wide]
            down = grid.top + grid.step_y * np.arange(row, row + part.shape[0] + 1)
            across = grid.left + grid.step_x * np.arange(column, column + part.shape[1] + 1)
            part[:] = _block(slide, down, across)
    return image


def _block(slide: Slide, down: NDArray[np.float64], across: NDArray[np.float64]) -> Pixels:
    """Means over the cells between the given row and column borders."""
    left, top = int(np.floor(across[0])), int(np.floor(down[0]))
    # A last border may exceed the slide by rounding alone.
    right, bottom = (
        min(int(np.ceil(b - 1e-6)), limit) for b, limit in zip((across[-1], down[-1]), slide.size, strict=True)
    )
    pixels = slide.read(left, top, right - left, bottom - top)
    if all(np.array_equal(b, np.arange(len(b))) for b in (down - top, across - left)):
        return pixels  # the grid is the slide's own
    means = area_mean(area_mean(pixels, down - top).swapaxes(0, 1), across - left).swapaxes(0, 1)
    return np.floor(means + 0.5).astype(np.uint8)


def area_mean(values: NDArray[Any], borders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean along the first axis between successive borders; cells that a border cuts count by their share.

    >>> area_mean(np.array([10.0, 20.0, 40.0]), np.array([0, 1.5, 3])).round(3).tolist()
    [13.333, 33.333]
    """
    total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0, dtype=np.float64)])
    whole = np.clip(np.floor(borders).astype(int), 0, len(values) - 1)
    share = np.clip(borders - whole, 0, 1).reshape(-1, *[1] * (values.ndim - 1))
    at_border: NDArray[np.float64] = total[whole] + share * values[whole]
    return np.diff(at_border, axis=0) / np.diff(borders).reshape(-1, *[1] * (values.ndim - 1))
