"""Where the tiles of a section lie: pure arithmetic on sizes, no files. Tiles cover the section and never leave it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE, WHITE

TILE_SIZE = 256  # Side of a tile in pixels, as in the paper

GLASS = WHITE  # Image colour where there is no section: empty glass under transmitted light


@dataclass(frozen=True, order=True)
class Window:
    """A rectangle inside a section, and how much padding makes it a full tile.

    Only a section smaller than the tile needs padding, and then below and to the right.

    >>> Window(top=0, left=0, height=200, width=256, pad_bottom=56).tile_shape
    (256, 256)
    """

    top: int
    left: int
    height: int
    width: int
    pad_bottom: int = 0
    pad_right: int = 0

    @property
    def slices(self) -> tuple[slice, slice]:
        """Rows and columns of the section that the window shows."""
        return slice(self.top, self.top + self.height), slice(self.left, self.left + self.width)

    @property
    def tile_shape(self) -> tuple[int, int]:
        """Height and width of the tile, padding included."""
        return self.height + self.pad_bottom, self.width + self.pad_right


def grid_positions(length: int, size: int, overlap: int = 0) -> tuple[int, ...]:
    """Where windows of ``size`` start along an axis: the fewest that cover it and share at least ``overlap`` pixels.

    The first starts at 0, the last ends at ``length``, and all gaps are equal to within one pixel.

    >>> grid_positions(600, 256)
    (0, 172, 344)
    >>> grid_positions(600, 256, overlap=128)
    (0, 114, 229, 344)
    >>> grid_positions(100, 256)
    (0,)
    """
    if length < 1 or size < 1:
        raise UsageError("nothing to tile", got=f"length {length}, tile {size}", expected="at least one pixel each")
    if not 0 <= overlap < size:
        raise UsageError("impossible overlap of tiles", got=overlap, expected=f"0 to {size - 1} pixels")
    span = length - size
    if span <= 0:
        return (0,)
    steps = -(-span // (size - overlap))
    return tuple(step * span // steps for step in range(steps + 1))


def tile_windows(height: int, width: int, size: int = TILE_SIZE, overlap: int = 0) -> tuple[Window, ...]:
    """Windows of ``size`` × ``size`` pixels that cover a section, row by row.

    They are the fewest possible and evenly spaced; with ``overlap``, neighbours share at least so many pixels.
    A section smaller than the tile gives a window of its own size with padding.

    >>> [(w.top, w.left) for w in tile_windows(256, 300)]
    [(0, 0), (0, 44)]
    """
    tops, lefts = grid_positions(height, size, overlap), grid_positions(width, size, overlap)
    inner_height, inner_width = min(height, size), min(width, size)
    pad_bottom, pad_right = size - inner_height, size - inner_width
    return tuple(Window(top, left, inner_height, inner_width, pad_bottom, pad_right) for top in tops for left in lefts)


def cut(array: NDArray[Any], window: Window, fill: int | tuple[int, ...]) -> NDArray[Any]:
    """The tile of ``array`` ((H, W) or (H, W, C)) under ``window``, padded with ``fill``; always a copy.

    >>> cut(np.zeros((1, 2), dtype=np.uint8), Window(0, 0, 1, 2, pad_bottom=1), fill=255).tolist()
    [[0, 0], [255, 255]]
    """
    tile = np.empty(window.tile_shape + array.shape[2:], dtype=array.dtype)
    if window.pad_bottom or window.pad_right:
        tile[:] = fill
    tile[: window.height, : window.width] = array[window.slices]
    return tile


def foreground_windows(
    mask: NDArray[np.uint8], windows: Iterable[Window], background_index: int | None
) -> tuple[Window, ...]:
    """The windows with at least one pixel that is neither background (if there is such a class) nor ignore."""
    empty = {IGNORE, IGNORE if background_index is None else background_index}
    return tuple(window for window in windows if not np.isin(mask[window.slices], list(empty)).all())
