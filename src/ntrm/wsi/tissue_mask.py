"""Where the tissue lies on a slide, from a small picture of it, and which windows see any.

Light that passes tissue loses colour; light that passes dust, a coverslip's edge or an uneven lamp only loses
brightness. With the optical density d of each channel against the slide's own glass, averaged over the width of a
cell, a place is plainly tissue where

    max(d_red, d_green, d_blue) − min(d_red, d_green, d_blue) > a little

What is plainly tissue or plainly dark is then set aside, so that it does not shine over the glass beside it, and the
faint rest is looked at in wider averages: where it has colour, or texture that glass has not, and is not plainly grey,
it is tissue, too, if it hangs together with what plainly is. So fat is found, which is nearly white: the walls of its
cells are pink, but few, and JPEG takes most of so faint a colour away. Pens are told by what they absorb (``pen.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.errors import DataError, UsageError
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window
from ntrm.wsi.quality.morphology import (
    BoolMask,
    Floats,
    blurred,
    near,
    regions_of,
    shrunk,
    spread,
    without_holes,
    without_specks,
)
from ntrm.wsi.quality.thumbnail import Picture, Thumbnail, as_resolution, pen_in

WHITE = 255

STRONG = 0.04
"""Colour (a difference of optical densities) of what is plainly tissue."""
LEAST_PURITY = 0.15
"""Colour over density: less is dirt, however dark it is."""
DARK = 0.08
"""Density of dirt, and of surgical ink, that would spoil the averages beside it."""
BESIDE_UM = 40.0
"""The faint rest is looked at this far from what is plainly tissue or dark: nearer, that blurs into it."""

WEAK, AVERAGED_UM = 0.011, 30.0
"""Colour of the faintest tissue, and the standard deviation of its average: about a fat cell."""
FAINT, NOISE_FACTOR = (0.0026, 0.006), 3.0
"""Texture (standard deviation of the density) of fat: this factor above that of glass, within these limits."""
CLIPPED = 0.03
"""Denser places count as this dense in the texture: the walls of fat cells are no denser."""
WIDER_UM, WIDER_PURITY, TOO_FAINT = 80.0, 0.2, 0.02
"""Average to look for colour in what has texture, how pure it must be, and the density below which nobody can tell."""
WIDER_STEP = 2
"""That average is taken of every second row and column."""
LEAST_SHARE = 0.05
"""An average over less than this share of its weights tells nothing."""
GLASS_DENSITY = 0.015
"""Pixels less dense than this tell how noisy the glass is."""

MARGIN_UM = 14.0
"""Tissue is taken to reach this much further: its border lies anywhere in a pixel of the coarser grid."""
HOLE_MM2 = 0.3
"""Gaps inside tissue up to this size belong to it: lumina, cysts, clefts."""
SPECK_MM2 = 0.015
"""Anything smaller is dust."""
BESIDE_PEN_UM = 100.0
"""Average of what is seen beside a pen's stroke, to tell whether it was drawn over tissue or over glass."""


def find_tissue(thumbnail: Picture, mpp: float | Resolution) -> BoolMask:
    """Where tissue lies in a picture (H, W, 3) of a slide at ``mpp`` µm/px, ``grid.THUMBNAIL_MPP`` or about that.

    Generous by some 25 µm. Pen on glass, dust and the coverslip's edge are no tissue; under a pen's stroke there is
    taken to be tissue where there is tissue on both sides of it.
    """
    seen = Thumbnail.of(thumbnail, mpp)
    return tissue_in(seen, pen_in(seen))


def tissue_in(seen: Thumbnail, pen: BoolMask) -> BoolMask:
    """The same of what was seen, with the strokes of a pen on its coarser grid."""
    scale = seen.coarse
    most, colour = _most_and_colour(seen.averaged)
    plain = (colour > STRONG) & (colour > LEAST_PURITY * most) & ~pen
    dark = (most > DARK) & ~plain & ~pen
    beside = near(plain, BESIDE_UM, scale)
    aside = beside | near(dark, BESIDE_UM, scale)
    faint = _faint(seen, aside, pen)
    # Between what is plain, or the ink on a margin, and what is faint lies tissue, too.
    between = aside & near(faint, BESIDE_UM, scale)
    tissue = _connected(beside | faint | between, plain) & (plain | faint | between)
    if pen.any():
        tissue = _under_pen(tissue, pen, scale)
    tissue = without_holes(without_specks(tissue, SPECK_MM2, scale), HOLE_MM2, scale)
    return _widened(seen.spread(tissue), seen.scale)


def _most_and_colour(planes: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats]:
    """Density, the largest of the channels, and colour: both (H, W)."""
    red, green, blue = planes
    most = np.maximum(np.maximum(red, green), blue)
    return most, most - np.minimum(np.minimum(red, green), blue)


class _Average(NamedTuple):
    """Averages of the places that count, and of them only."""

    counted: Floats
    share: Floats
    um: float
    scale: Resolution

    @classmethod
    def over(cls, places: BoolMask, um: float, scale: Resolution) -> _Average:
        counted = places.astype(np.float32)
        return cls(counted, np.maximum(blurred(counted, um, scale), LEAST_SHARE), um, scale)

    def of(self, plane: Floats) -> Floats:
        return blurred(plane * self.counted, self.um, self.scale) / self.share


def _faint(seen: Thumbnail, aside: BoolMask, pen: BoolMask) -> BoolMask:
    """Where something lies on the glass that is neither dirt nor plainly tissue, be it nearly white."""
    scale, picture = seen.coarse, seen.picture
    # Readers paint what was never scanned pure white.
    unscanned = np.minimum(np.minimum(picture[..., 0], picture[..., 1]), picture[..., 2]) == WHITE
    rest = ~aside & ~pen
    if unscanned.any():
        rest &= shrunk(unscanned, seen.factors) == 0
    close = _Average.over(rest, AVERAGED_UM, scale)
    red, green, blue = (close.of(plane) for plane in seen.planes)
    most, colour = _most_and_colour((red, green, blue))
    coloured = (colour > WEAK) & (colour > LEAST_PURITY * most)
    return np.asarray(rest & (coloured | (_textured(seen, close, rest) & _no_dirt(seen, rest))))


def _textured(seen: Thumbnail, close: _Average, rest: BoolMask) -> BoolMask:
    green = np.clip(seen.density[..., 1], -CLIPPED, CLIPPED)
    mean, square = close.of(shrunk(green, seen.factors)), close.of(shrunk(green * green, seen.factors))
    texture = np.sqrt(np.maximum(square - mean * mean, 0))
    red, green, blue = (np.abs(plane) for plane in seen.planes)
    glass = rest & (np.maximum(np.maximum(red, green), blue) < GLASS_DENSITY)
    noise = float(np.median(texture[glass])) if glass.any() else 0.0
    return np.asarray(texture > np.clip(NOISE_FACTOR * noise, *FAINT))


def _no_dirt(seen: Thumbnail, rest: BoolMask) -> BoolMask:
    # So wide an average needs no fine grid.
    scale = Resolution(seen.coarse.x * WIDER_STEP, seen.coarse.y * WIDER_STEP)
    counted, factors = rest.astype(np.float32), (WIDER_STEP, WIDER_STEP)
    share = np.maximum(blurred(shrunk(counted, factors), WIDER_UM, scale), LEAST_SHARE)
    red, green, blue = (
        np.asarray(blurred(shrunk(plane * counted, factors), WIDER_UM, scale) / share, np.float32)
        for plane in seen.planes
    )
    most, colour = _most_and_colour((red, green, blue))
    return spread((colour > WIDER_PURITY * most) | (most < TOO_FAINT), factors, rest.shape)


def _connected(weak: BoolMask, strong: BoolMask) -> BoolMask:
    """Regions of ``weak`` that hold a ``strong`` place."""
    regions, sizes = regions_of(weak)
    kept = np.zeros(len(sizes), dtype=bool)
    kept[regions[strong]] = True
    kept[0] = False
    return np.asarray(kept[regions])


def _under_pen(tissue: BoolMask, pen: BoolMask, scale: Resolution) -> BoolMask:
    """Under a stroke lies what lies nearest beside it."""
    if pen.all():
        return np.zeros_like(tissue)
    seen = blurred((~pen).astype(np.float32), BESIDE_PEN_UM, scale)
    beside = blurred((tissue & ~pen).astype(np.float32), BESIDE_PEN_UM, scale) > 0.5 * seen
    nearest = ndimage.distance_transform_edt(
        pen, sampling=(scale.y, scale.x), return_distances=False, return_indices=True
    )
    return np.asarray(np.where(pen, beside[tuple(nearest)], tissue))


def _widened(tissue: BoolMask, scale: Resolution) -> BoolMask:
    """With its margin; but only what itself lies at the picture's edge touches that edge."""
    wide = near(tissue, MARGIN_UM, scale)
    for edge in ((0,), (-1,), (slice(None), 0), (slice(None), -1)):
        wide[edge] = tissue[edge]
    return wide


# Windows that see tissue: the others need no network.


WINDOW_MARGIN_UM = 60.0
"""Windows this near to tissue count, too: the mask was found in a coarser picture."""


def windows_with_tissue(
    windows: Sequence[Window],
    tissue: BoolMask,
    thumb_mpp: float | Resolution,
    model_mpp: float | Resolution,
    *,
    margin_um: float = WINDOW_MARGIN_UM,
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
    tissue: BoolMask,
    rows: tuple[NDArray[np.int64], NDArray[np.int64]],
    columns: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Pixels of tissue in each rectangle, from one table of sums however many windows there are."""
    sums = np.zeros((tissue.shape[0] + 1, tissue.shape[1] + 1), dtype=np.int64)
    np.cumsum(tissue, axis=0, out=sums[1:, 1:])
    np.cumsum(sums[1:, 1:], axis=1, out=sums[1:, 1:])
    (top, bottom), (left, right) = rows, columns
    return np.asarray(sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left])
