"""Whether a slide is fit for the network: a scan, stained with H&E, in focus, flat and unmarked.

Every column has a score from 0, none of it, to 1, and a flag. Flags make warnings; what to do about them is the
caller's choice. All but the focus and the colours of a mask is seen in the thumbnail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ntrm.core.errors import DataError, UsageError
from ntrm.core.mpp import Resolution
from ntrm.wsi.quality.focus import blur_score, fine_detail
from ntrm.wsi.quality.folds import folds_in
from ntrm.wsi.quality.morphology import BoolMask
from ntrm.wsi.quality.thumbnail import Picture, Thumbnail, pen_in

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
ENLARGED = "scanned {factor:.2g} times as coarse as the model's pixels and enlarged: fine detail is missing"
TOLERATED = 1.1
"""Times the model's µm/px up to which nobody sees a difference."""

DYED = 0.08
"""Least density of a place whose dye can be told."""
HE_RED, HE_BLUE = 0.82, 0.78
"""Red and blue over green density of mixtures of haematoxylin and eosin are below these; brown (DAB) absorbs more blue,
haematoxylin without eosin more red."""

MOST_WEIGHT = 2.0
"""Times the usual density that a place counts at most."""


@dataclass(frozen=True)
class Grade:
    """One column: how much, and whether that is too much."""

    score: float
    flag: bool

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise UsageError("impossible score of quality", got=self.score, expected="a number from 0 to 1")


@dataclass(frozen=True)
class Quality:
    """What the quality columns say about a slide."""

    not_he: Grade
    out_of_focus: Grade
    folds: Grade
    pen: Grade
    has_tissue: bool = True
    drawn: Grade = Grade(0.0, False)
    enlarged: float = 1.0
    """µm/px of the scan over that of the model: above 1, pixels were made up."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for every flag; first of all, if nothing was found. Of a mask, nothing else is worth saying."""
        if self.drawn.flag:
            return (MEANINGS["drawn"].format(score=self.drawn.score),)
        grades = {name: getattr(self, name) for name in COLUMNS}
        said = tuple(MEANINGS[name].format(score=grade.score) for name, grade in grades.items() if grade.flag)
        if self.enlarged > TOLERATED:
            said = (*said, ENLARGED.format(factor=self.enlarged))
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
        table: dict[str, float | bool] = {}
        for name in COLUMNS:
            grade: Grade = getattr(self, name)
            table[name], table[f"{name}_score"] = grade.flag, grade.score
        return table

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**self.columns, "has_tissue": self.has_tissue, "warnings": list(self.warnings)}


def assess(
    thumbnail: Picture, tissue: BoolMask, mpp: float | Resolution, *, samples: Sequence[Picture] | None = None
) -> Quality:
    """Quality of a slide from its thumbnail (H, W, 3) at ``mpp`` µm/px and the tissue (H, W) found in it.

    ``samples`` are windows at the model's resolution (``sample_windows`` says which) ``as_judged``, where the focus is
    seen; without them it is judged in the thumbnail, which shows a coarse blur only.
    """
    seen = Thumbnail.of(thumbnail, mpp)
    return quality_of(seen, tissue, pen_in(seen), samples=samples)


def quality_of(
    seen: Thumbnail,
    tissue: BoolMask,
    pen: BoolMask,
    *,
    samples: Sequence[Picture] | None = None,
    drawn: float = 0.0,
    enlarged: float = 1.0,
) -> Quality:
    """The same of what was seen, with the strokes of a pen on its coarser grid, and with its ``drawn_share``."""
    if tissue.shape != seen.shape or tissue.dtype != np.bool_:
        raise DataError(
            "the tissue mask does not fit the thumbnail",
            got=f"{tissue.dtype} {tissue.shape}",
            expected=f"bool {seen.shape}",
        )
    coarse = seen.shrunk(tissue)
    if samples is None:
        details = [fine_detail(seen.picture, tissue & ~seen.spread(pen))]
    else:
        details = [fine_detail(sample, glass=seen.glass) for sample in samples]
    return Quality(
        not_he=_grade("not_he", _foreign(seen, coarse, pen)),
        out_of_focus=_grade("out_of_focus", blur_score(details) or 0.0),
        folds=_grade("folds", _share(folds_in(seen.averaged, coarse & ~pen, seen.coarse), coarse)),
        pen=_grade("pen", _share(pen, coarse | pen)),
        has_tissue=bool(tissue.any()),
        drawn=_grade("drawn", drawn),
        enlarged=enlarged,
    )


def _grade(name: str, score: float) -> Grade:
    return Grade(round(score, 4), score >= FLAGGED[name])


def _foreign(seen: Thumbnail, tissue: BoolMask, pen: BoolMask) -> float:
    """Share of the tissue's density that no mixture of haematoxylin and eosin has."""
    red, green, blue = seen.averaged
    dyed = np.maximum(np.maximum(red, green), blue) > DYED
    # A scan without colours has no tissue that could be found: then whatever is dark is judged.
    places = dyed & ~pen & (tissue if tissue.any() else True)
    total = (red + green + blue)[places].clip(min=0)
    # Ink over dense tissue is not always known for ink: a few places, far denser than any stain, must not decide.
    weight = np.minimum(total, MOST_WEIGHT * np.median(total)) if total.size else total
    foreign = ((red > HE_RED * green) | (blue > HE_BLUE * green))[places]
    return float(weight[foreign].sum() / weight.sum()) if weight.any() else 0.0


def _share(part: BoolMask, whole: BoolMask) -> float:
    return float(part.sum()) / max(float(whole.sum()), 1.0)
