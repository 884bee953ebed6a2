"""Whether a slide is fit for the network: a scan, stained with H&E, in focus, flat and unmarked.

Every column has a score from 0, none of it, to 1, and a flag. Flags make warnings; what to do about them is the
caller's choice. All but the focus and the colours of a mask is judged in the thumbnail.

A mask, unlike a scan, has few colours, and these exactly: 32 of them cover all of a mask, and of no scan. Glass and the
black next to it are left out.

Blurring takes the finest detail first. With the deviations e₀ of what a Gaussian of 1 pixel removes from the density,
and e₁ of what lies between 1 and 2 pixels, e₀ / e₁ was at least 1.02 in 505 sharp sections of skin, colon and prostate,
and at most 0.82 once they were blurred by 1.2 pixels (docs/segment.md). It depends on no stain's strength. Pixels
smaller than ``FINEST_UM`` are put together first: hardly any tissue has detail as fine as that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.arrays import BoolMask, Singles
from ntrm.core.mpp import Resolution
from ntrm.data.resample import area_average
from ntrm.data.tiles import Window
from ntrm.slides.grid import SlideGrid
from ntrm.slides.quality.folds import find_folds
from ntrm.slides.quality.thumbnail import Picture, Thumbnail, green_density, is_glass, tissue_under

COLUMNS = ("not_he", "out_of_focus", "folds", "pen", "drawn")

FLAGGED = {"not_he": 0.3, "out_of_focus": 0.4, "folds": 0.0001, "pen": 0.005, "drawn": 0.97}
"""Scores from which a column is flagged."""

MEANINGS = {
    "not_he": "{score:.0%} of the stain is neither haematoxylin nor eosin: the model knows H&E only",
    "out_of_focus": "out of focus (blur {score:.2f} of 1): fine detail is missing",
    "folds": "{score:.1%} of the tissue lies in folds",
    "pen": "pen marks on {score:.1%} of tissue and marks together",
    "drawn": "not a stained section: {score:.0%} of it in a few flat colours; a mask?",
}

NO_TISSUE = "no tissue found"

DYED = 0.08  # Least density of a pixel whose dye can be identified
HE_RED, HE_BLUE = 0.82, 0.78
"""Red and blue over green density of mixtures of haematoxylin and eosin are below these; brown (DAB) absorbs more blue,
haematoxylin without eosin more red."""

COLOURS = 32  # No schema has more tissues
LEAST_COLOURED = 1000  # Fewer pixels have few colours whatever they show
SIDE_PX = 128  # Largest side of what is read of the slide's own pixels in a window

SHARP, BLURRED = 1.2, 0.4  # Ratios of fine detail that score 0 and 1
FINEST_UM = 1.2  # Focus is judged at no finer µm/px
LEAST_DENSITY, MOST_DENSITY = 0.05, 0.8  # Paler is glass or fat, denser is clipped
LEAST_PIXELS = 300  # Fewer pixels of tissue tell nothing
SAMPLES, SAMPLE_PX = 12, 128  # Windows that are judged, and their side as they are judged


@dataclass(frozen=True)
class Grade:
    """One column: how much, and whether that is too much."""

    score: float
    flag: bool


@dataclass(frozen=True)
class Quality:
    """What the quality columns say about a slide."""

    not_he: Grade
    out_of_focus: Grade
    folds: Grade
    pen: Grade
    has_tissue: bool = True
    drawn: Grade = Grade(0.0, False)
    enlarged: float = 1.0  # µm/px of the scan over that of the model: above 1, pixels were made up

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for every flag; first of all, if nothing was found. Of a mask, nothing else is worth saying."""
        if self.drawn.flag:
            return (MEANINGS["drawn"].format(score=self.drawn.score),)
        flagged = [name for name in COLUMNS if getattr(self, name).flag]
        said = tuple(MEANINGS[name].format(score=getattr(self, name).score) for name in flagged)
        if self.enlarged > 1.1:  # less nobody sees
            coarse = f"scanned {self.enlarged:.2g} times as coarse as the model's pixels and enlarged"
            said = (*said, f"{coarse}: fine detail is missing")
        return said if self.has_tissue else (NO_TISSUE, *said)

    @property
    def serious(self) -> bool:
        """Whether a strict user would not segment the slide.

        Folds alone do not count: too many are missed or imagined for a refusal to mean anything.
        """
        flags = (self.not_he, self.out_of_focus, self.pen, self.drawn)
        return any(grade.flag for grade in flags) or not self.has_tissue

    @property
    def columns(self) -> dict[str, float | bool]:
        """For a table: ``not_he`` (the flag), ``not_he_score`` and so on."""
        grades = [(name, getattr(self, name)) for name in COLUMNS]
        return {key: value for name, one in grades for key, value in ((name, one.flag), (f"{name}_score", one.score))}


def assess_quality(
    thumbnail: Thumbnail,
    tissue: BoolMask,
    pen: BoolMask,
    *,
    samples: Sequence[Picture] | None = None,
    drawn: float = 0.0,
    enlarged: float = 1.0,
) -> Quality:
    """Quality of a slide from its thumbnail, the tissue (H, W) and the pen marks (coarser grid) found in it.

    ``samples`` are windows at the model's resolution (``sample_windows`` says which) ``as_judged``, where the focus is
    seen; without them it is judged in the thumbnail, which shows a coarse blur only. ``drawn`` is the slide's
    ``synthetic_fraction``, ``enlarged`` as in ``Quality``.
    """
    coarse = thumbnail.downsampled(tissue)
    if samples is None:
        details = [fine_detail(thumbnail.picture, tissue & ~thumbnail.upsampled(pen))]
    else:
        details = [fine_detail(sample, glass=thumbnail.glass) for sample in samples]
    red, green, blue = thumbnail.averaged
    dyed = np.maximum(np.maximum(red, green), blue) > DYED
    # A scan without colours has no tissue that could be found: then whatever is dark is judged.
    judged = dyed & ~pen & (coarse if coarse.any() else True)
    total = (red + green + blue)[judged].clip(min=0)
    # Ink over dense tissue is not always recognised: a few pixels, far denser than any stain, must not decide.
    weight = np.minimum(total, 2 * np.median(total)) if total.size else total
    # What no mixture of haematoxylin and eosin has.
    foreign = weight[((red > HE_RED * green) | (blue > HE_BLUE * green))[judged]].sum()
    folds = find_folds(thumbnail.averaged, coarse & ~pen, thumbnail.coarse)
    return Quality(
        not_he=_grade("not_he", foreign / weight.sum() if weight.any() else 0.0),
        out_of_focus=_grade("out_of_focus", blur_score(details) or 0.0),
        folds=_grade("folds", folds.sum() / max(coarse.sum(), 1)),
        pen=_grade("pen", pen.sum() / max((coarse | pen).sum(), 1)),
        has_tissue=bool(tissue.any()),
        drawn=_grade("drawn", drawn),
        enlarged=enlarged,
    )


def _grade(name: str, score: float) -> Grade:
    return Grade(round(float(score), 4), bool(score >= FLAGGED[name]))


def synthetic_fraction(grid: SlideGrid, windows: Sequence[Window]) -> float:
    """Fraction of a slide that has few colours.

    The slide's own pixels are read in the middle of each of the ``windows`` of the grid: resampling would mix colours.
    """
    (scale_x, scale_y, left, top), own = grid.to_level0, []
    for window in windows:
        width = max(1, min(SIDE_PX, int(window.width * scale_x)))
        height = max(1, min(SIDE_PX, int(window.height * scale_y)))
        x = left + scale_x * (window.left + window.width / 2) - width / 2
        y = top + scale_y * (window.top + window.height / 2) - height / 2
        own.append(grid.reader.read(int(x), int(y), width, height, 0))
    return few_colours(own)


def few_colours(pictures: Sequence[Picture]) -> float:
    """Fraction of the pixels that have one of the commonest colours of all the pictures; 0 where there are too few."""
    codes = []
    for picture in pictures:
        judged = picture[~is_glass(picture) & picture.any(axis=2)]
        codes.append(judged @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32))
    counts = np.unique(np.concatenate(codes), return_counts=True)[1] if codes else np.zeros(0, dtype=np.int64)
    total = int(counts.sum())
    return float(np.sort(counts)[-COLOURS:].sum() / total) if total >= LEAST_COLOURED else 0.0


def fine_detail(
    picture: Picture, tissue: BoolMask | None = None, *, glass: NDArray[np.float32] | None = None
) -> float | None:
    """e₀ / e₁ of the tissue in a picture (H, W, 3) that is ``as_judged``; None where it shows too little of it.

    ``glass`` (3,) is the colour of the slide's glass, where it is known: a small picture may show none.
    """
    green = np.clip(green_density(picture, glass), -LEAST_DENSITY, MOST_DENSITY)
    smooth: list[Singles] = [ndimage.gaussian_filter(green, sigma, mode="nearest", truncate=3.0) for sigma in (1, 2, 4)]
    judged = smooth[2] > LEAST_DENSITY
    if tissue is not None:
        judged &= tissue
    # The border of the tissue is an edge, not its detail.
    judged = ndimage.binary_erosion(judged, iterations=3)
    if np.count_nonzero(judged) < LEAST_PIXELS:
        return None
    fine, coarse = (green - smooth[0])[judged].std(), (smooth[0] - smooth[1])[judged].std()
    return float(fine / coarse) if coarse > 0 else None


def blur_score(details: Sequence[float | None]) -> float | None:
    """0, sharp, to 1, blurred: from the median of the windows that are not None; None if all are."""
    known = [detail for detail in details if detail is not None]
    if not known:
        return None
    return round(float(np.clip((SHARP - np.median(known)) / (SHARP - BLURRED), 0.0, 1.0)), 4)


def sample_windows(
    tissue: BoolMask,
    thumb_mpp: Resolution,
    model_mpp: Resolution,
    shape: tuple[int, int],
    *,
    count: int = SAMPLES,
    size: int = SAMPLE_PX,
) -> tuple[Window, ...]:
    """Up to ``count`` windows with much tissue, spread over the model's grid of ``shape`` (height, width) pixels.

    They have ``size`` pixels a side once ``as_judged`` has coarsened them. Always the same ones for the same slide: the
    windows that tile the grid, row by row, at equal distances among the half with more tissue.
    """
    down, across = _coarsening(model_mpp)
    height, width = min(size * down, shape[0]), min(size * across, shape[1])
    corners = product(range(0, shape[0] - height + 1, height), range(0, shape[1] - width + 1, width))
    windows = [Window(top, left, height, width) for top, left in corners]
    found, touched = tissue_under(windows, tissue, thumb_mpp, model_mpp)
    if not found.any():
        return ()
    fractions = found / touched
    full = np.flatnonzero((fractions > 0) & (fractions >= np.median(fractions[fractions > 0])))
    return tuple(windows[k] for k in full[np.unique(np.linspace(0, len(full) - 1, count).round().astype(int))])


def as_judged(sample: Picture, mpp: Resolution) -> Picture:
    """A window at ``mpp``, coarsened to at least ``FINEST_UM`` a pixel."""
    down, across = _coarsening(mpp)
    return sample if down == across == 1 else area_average(sample, down, across)


def _coarsening(mpp: Resolution) -> tuple[int, int]:
    """Rows and columns that make one pixel of what is judged; µm/px in tags are rounded."""
    down, across = (max(1, math.ceil(FINEST_UM / one - 0.01)) for one in (mpp.y, mpp.x))
    return down, across
