"""Keratin as real skin has it: strands along the surface with glass between them, where the phantom draws a solid band.

A section that was drawn already is changed: keratin that borders on glass grows outwards here and there, and its
picture becomes strands. Keratin within a tumour stays as it is. Lengths are in µm: every resolution shows the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.labels import IGNORE, SKIN
from ntrm.phantom.noise import derive, field, field_at, generator

Mask = NDArray[np.uint8]
Picture = NDArray[np.uint8]
Floats = NDArray[np.float32]

KER, BKG, EPI = (SKIN.index(name) for name in ("KER", "BKG", "EPI"))
MARGIN_UM = 150.0
FINE = 3
"""Points a pixel along each axis: strands are finer than pixels."""


class Weave(NamedTuple):
    """How the keratin of one section is woven."""

    periods: tuple[float, float]
    """From strand to strand, of two systems that cross."""
    share: float
    """Of a period that is strand."""
    compact: float
    """Thickness of the solid layer on the epidermis."""
    rim: float
    """Thickness of the outermost strand."""
    tear: float
    """Width of the widest gap along the surface."""
    between: float
    """How much of a strand's colour is left between strands."""
    growth: float
    """By how much keratin grows outwards where it grows most."""
    tint: float
    """From the keratin's own colour (0) to the epidermis's (1)."""
    strength: float
    """Times the optical density."""

    @classmethod
    def draw(cls, seed: int) -> Weave:
        """From tight to loose."""
        chance = generator(seed, "weave")
        return cls(
            periods=(chance.uniform(9, 16), chance.uniform(20, 40)),
            share=chance.uniform(0.18, 0.45),
            compact=chance.uniform(0, 10),
            rim=chance.uniform(2, 7),
            tear=chance.uniform(0, 45),
            between=chance.uniform(0, 0.3),
            growth=chance.uniform(0, 90),
            tint=chance.uniform(0, 0.8),
            strength=chance.uniform(0.6, 1.3),
        )


def loosen(image: Picture, mask: Mask, mpp: float, seed: int) -> tuple[Picture, Mask]:
    """The section with its keratin woven; without keratin at a surface, as it was."""
    keratin = _at_the_surface(mask)
    if not keratin.any():
        return image, mask
    weave = Weave.draw(seed)
    here = _around(keratin, round(MARGIN_UM / mpp))
    changed, grown = image.copy(), mask.copy()
    part = grown[here]
    band = keratin[here] | _growth(keratin[here], part, mpp, seed, weave)
    part[band] = KER
    share = _presence(band, part, mpp, seed, weave)
    glass = np.median(image[mask == BKG], axis=0) if (mask == BKG).any() else np.full(3, 250.0)
    strand = glass * np.exp(-_density(image[here], band & keratin[here], part, glass, weave)[band])
    changed[here][band] = np.round(share[:, None] * strand + (1 - share[:, None]) * glass).clip(0, 255)
    return changed, grown


def _at_the_surface(mask: Mask) -> NDArray[np.bool_]:
    """Pieces of keratin that touch glass."""
    pieces, count = ndimage.label(mask == KER, np.ones((3, 3)))
    near_glass = ndimage.binary_dilation(mask == BKG)
    return np.isin(pieces, np.setdiff1d(np.unique(pieces[near_glass]), 0)) if count else np.zeros_like(mask, bool)


def _around(there: NDArray[np.bool_], margin: int) -> tuple[slice, slice]:
    spans = ndimage.find_objects(there.astype(np.uint8))[0]
    return tuple(  # type: ignore[return-value]
        slice(max(0, span.start - margin), min(size, span.stop + margin))
        for span, size in zip(spans, there.shape, strict=True)
    )


def _growth(keratin: NDArray[np.bool_], mask: Mask, mpp: float, seed: int, weave: Weave) -> NDArray[np.bool_]:
    """Glass over keratin that becomes keratin."""
    other = (mask != BKG) & (mask != KER) & (mask != IGNORE)
    from_keratin = ndimage.distance_transform_edt(~keratin) * mpp
    from_other = ndimage.distance_transform_edt(~other) * mpp if other.any() else np.full(mask.shape, np.inf)
    slow = field(derive(seed, "growth"), mask.shape, mpp, 500.0)
    quick = field(derive(seed, "fringe"), mask.shape, mpp, 60.0)
    reach = weave.growth * (0.5 + 0.5 * slow + 0.12 * quick)
    return np.asarray((mask == BKG) & (from_keratin < reach) & (from_keratin < from_other))


def _presence(band: NDArray[np.bool_], mask: Mask, mpp: float, seed: int, weave: Weave) -> Floats:
    """(N,) share of each pixel of the band that strands cover."""
    inner = (mask != BKG) & (mask != KER) & (mask != IGNORE)
    depth = ndimage.distance_transform_edt(~inner) if inner.any() else np.zeros(mask.shape)
    inside = ndimage.distance_transform_edt(mask != BKG)
    rows, columns = np.nonzero(band)
    offsets = (np.arange(FINE) + 0.5) / FINE - 0.5
    total = np.zeros(len(rows), dtype=np.float32)
    for dy in offsets:
        for dx in offsets:
            places = (rows + dy, columns + dx)
            above, below = (
                ndimage.map_coordinates(each, places, order=1, mode="nearest") * mpp - mpp / 2
                for each in (depth, inside)
            )
            total += _strands(above, below, places[0] * mpp, places[1] * mpp, seed, weave)
    return np.asarray(weave.between + (1 - weave.between) * total / FINE**2, dtype=np.float32)


def _strands(
    above: NDArray[np.float64],
    below: NDArray[np.float64],
    y: NDArray[np.float64],
    x: NDArray[np.float64],
    seed: int,
    weave: Weave,
) -> NDArray[np.bool_]:
    """Whether a point, so far ``above`` living tissue and ``below`` glass, is on a strand."""
    bend, slow = (field_at(derive(seed, name), y, x, wave) for name, wave in (("bend", 90.0), ("tear", 420.0)))
    grain = field_at(derive(seed, "strand"), y, x, 28.0)
    fine, coarse = weave.periods
    first = (above + 9 * bend + 2 * grain) / fine
    second = (above - 22 * bend + 4 * grain) / coarse
    lines = (np.abs(first % 1 - 0.5) < weave.share / 2) | (np.abs(second % 1 - 0.5) < weave.share / 3)
    torn = np.abs(above - weave.compact - weave.tear * 0.6) < weave.tear * 0.5 * np.clip(slow, 0, 1)
    return (lines & ~torn) | (above < weave.compact) | (below < weave.rim)


def _density(image: Picture, own: NDArray[np.bool_], mask: Mask, glass: NDArray[np.float64], weave: Weave) -> Floats:
    """(H, W, 3) optical density of a strand."""
    density = -np.log((image.astype(np.float32) + 1) / (np.float32(glass) + 1)).clip(max=5.5)
    usual, epidermis = np.median(density[own], axis=0), mask == EPI
    other = np.median(density[epidermis], axis=0) if epidermis.any() else usual
    density[~own] = usual  # where keratin has grown there was glass
    colour = (1 - weave.tint) * density + weave.tint * other
    return np.asarray(weave.strength * colour, dtype=np.float32)
