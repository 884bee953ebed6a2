"""Whether a picture was drawn, as masks are, and not scanned: it has few colours, and these exactly.

Places that have one colour exactly, with all their neighbours, are looked for in what was read anyway. Scans have none
but for very strong compression. Where there are some, the slide's own pixels tell: 32 colours cover all of a mask, and
no scan. Glass and the black beside it are left out: an empty slide is flat, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ntrm.data.tiles import Window
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.quality.morphology import BoolMask
from ntrm.wsi.quality.thumbnail import Picture, is_glass

LEAST_FLAT = 0.01
"""Share of flat places from which on the slide's own pixels are looked at: scans had 0.001, masks 0.02 and more."""
COLOURS = 32
"""More tissues than these has no schema."""
LEAST_PIXELS = 1000
"""Fewer pixels have few colours whatever they show."""
SIDE_PX = 512
"""Largest side of what is read of the slide's own pixels at a place."""


def drawn_share(grid: SlideGrid, windows: Sequence[Window], pictures: Sequence[Picture]) -> float:
    """How much of a slide has few flat colours, 0 to 1.

    ``pictures`` were read of it already; its own pixels are read in the ``windows`` of the grid if these have flat
    places.
    """
    if flat_share(pictures) < LEAST_FLAT:
        return 0.0
    return few_colours([_own_pixels(grid, window) for window in windows])


def flat_share(pictures: Sequence[Picture]) -> float:
    """Share of the pixels whose eight neighbours have the very same colour.

    >>> flat_share([np.full((9, 9, 3), (181, 9, 130), dtype=np.uint8)])
    1.0
    """
    flat, judged = 0, 0
    for picture in pictures:
        if min(picture.shape[:2]) >= 3:
            codes, inner = _codes(picture), _judged(picture)[1:-1, 1:-1]
            flat += int((_constant(codes) & inner).sum())
            judged += int(inner.sum())
    return flat / judged if judged else 0.0


def few_colours(pictures: Sequence[Picture]) -> float:
    """Share of the pixels that have one of the commonest colours of all the pictures; 0 where too few tell."""
    codes = [_codes(picture)[_judged(picture)] for picture in pictures]
    counts = np.unique(np.concatenate(codes), return_counts=True)[1] if codes else np.zeros(0, dtype=np.int64)
    total = int(counts.sum())
    return float(np.sort(counts)[-COLOURS:].sum() / total) if total >= LEAST_PIXELS else 0.0


def _own_pixels(grid: SlideGrid, window: Window) -> Picture:
    """The middle of a window as it is in the file: resampling would mix colours."""
    scale_x, scale_y, left, top = grid.to_level0
    width, height = (
        max(1, min(SIDE_PX, int(side * scale))) for side, scale in ((window.width, scale_x), (window.height, scale_y))
    )
    x = left + scale_x * (window.left + window.width / 2) - width / 2
    y = top + scale_y * (window.top + window.height / 2) - height / 2
    return grid.reader.read(int(x), int(y), width, height, 0)


def _judged(picture: Picture) -> BoolMask:
    return np.asarray(~is_glass(picture) & picture.any(axis=2))


def _codes(picture: Picture) -> NDArray[np.uint32]:
    red, green, blue = (picture[..., k].astype(np.uint32) for k in range(3))
    return np.asarray(red << 16 | green << 8 | blue)


def _constant(codes: NDArray[np.uint32]) -> BoolMask:
    """Whether all nine are equal, of every pixel but the outermost."""
    rows = (codes[1:-1] == codes[:-2]) & (codes[1:-1] == codes[2:])
    level = (codes[:, 1:-1] == codes[:, :-2]) & (codes[:, 1:-1] == codes[:, 2:])
    return np.asarray(rows[:, 1:-1] & level[1:-1] & level[:-2] & level[2:])
