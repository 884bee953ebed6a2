"""What is said about a slide or a piece: like what the model knows, unlike it, too small to judge, or not judged.

Needs no torch: results are read and shown without a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ntrm.core.wording import NO_MODEL

FAMILIAR, UNFAMILIAR, TOO_SMALL, NO_REFERENCE = "familiar", "unfamiliar", "too small to judge", "no reference"
VERDICTS = (FAMILIAR, UNFAMILIAR, TOO_SMALL, NO_REFERENCE)
NOT_JUDGED = (TOO_SMALL, NO_REFERENCE)  # Verdicts that change nothing
ASPECTS = ("colours", "texture", "anatomy")  # What is compared

UNFAMILIAR_BELOW = 0.05  # P-value from which down a slide is unlike what the model knows

NOT_ASSESSED = "not assessed"  # What stands in place of cancers and of all that is measured from them

NONE = "none"  # Which cancers a model looks for that has no class of one

UNLIKE = "unlike what the model knows"  # What is said of an unfamiliar slide or piece


def cancers_in_words(found: Sequence[str] | None, looked_for: Sequence[str] | None) -> str:
    """What a list of slides says of one that is done.

    >>> cancers_in_words(["BCC"], ["BCC", "SCC"]), cancers_in_words([], ["BCC", "SCC"]), cancers_in_words([], [])
    ('BCC', 'none', 'not looked for')
    """
    if looked_for is not None and not looked_for:
        return "not looked for"
    return NOT_ASSESSED if found is None else ", ".join(found) or NONE


@dataclass(frozen=True)
class Familiarity:
    """Whether a slide or a piece is like the sections that a model was trained on."""

    verdict: str  # One of `VERDICTS`
    p_value: float | None
    """How often a section of the model's own kind, held out, looks as unlike as this; None where it was not judged."""
    aspects: Mapping[str, float]  # P-values by the names of `ASPECTS`; empty where it was not judged
    reasons: tuple[str, ...]  # In plain sentences: why it is unfamiliar, the strongest first, or why it was not judged

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS or (self.verdict == UNFAMILIAR and self.p_value is None):
            raise ValueError(f"no familiarity: {self.verdict!r}")

    @property
    def assessed(self) -> bool:
        """Whether cancers may be read off the mask."""
        return self.verdict != UNFAMILIAR

    @property
    def why_not_assessed(self) -> str:
        """Why cancers, and what is measured from them, are not assessed; empty where they are."""
        if self.assessed:
            return ""
        return UNLIKE if self.p_value is None else f"{UNLIKE} (p = {self.p_value:.2g})"

    @property
    def warning(self) -> str:
        """One sentence for lists of warnings; empty where there is nothing to warn of."""
        return "" if self.assessed else ": ".join(filter(None, (self.why_not_assessed, "; ".join(self.reasons))))

    @property
    def note(self) -> str:
        """One sentence where it was not judged, which changes nothing; else empty."""
        if self.verdict not in NOT_JUDGED:
            return ""
        return ": ".join(filter(None, ("familiarity", self.verdict, "; ".join(self.reasons))))


WITHOUT_REFERENCE = Familiarity(
    NO_REFERENCE, None, {}, ("the model has no reference of its training sections: make one with ntrm calibrate",)
)
WITHOUT_MODEL = Familiarity(NO_REFERENCE, None, {}, (NO_MODEL,))


@dataclass(frozen=True)
class SlideFamiliarity:
    """Of a slide, its pieces, and its windows."""

    slide: Familiarity
    pieces: Mapping[int, Familiarity]  # By number
    windows: tuple[tuple[int, int, int, int, float], ...] = ()
    """Top, left, height and width in pixels of the mask, and p-value of each window with enough tissue: where."""

    def of_piece(self, number: int) -> Familiarity:
        """Of one piece."""
        return self.pieces.get(number, self.slide)

    def ruling(self, number: int) -> Familiarity:
        """What decides on a piece's cancers: of an unfamiliar slide no piece is assessed, be it familiar or not."""
        return self.of_piece(number) if self.slide.assessed else self.slide

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of the slide, or of its pieces that are unfamiliar while the slide is not."""
        if not self.slide.assessed:
            return (self.slide.warning,)
        return tuple(f"piece {number}: {each.warning}" for number, each in self.pieces.items() if not each.assessed)
