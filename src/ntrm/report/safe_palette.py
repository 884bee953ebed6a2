"""Colours that colour-blind readers can tell apart, beside a dataset's own.

Found by a search over sRGB for the largest least distance in OKLab, as seen with normal, red-, green- and blue-blind
eyes (Machado et al. 2009, full strength): 0.15 for any two, against 0.016 in the skin dataset's own palette.
"""

from __future__ import annotations

from ntrm.core.labels import RGB, LabelSchema

SAFE: tuple[RGB, ...] = (
    (0, 34, 119),
    (136, 0, 221),
    (102, 0, 0),
    (34, 119, 136),
    (170, 119, 255),
    (85, 187, 187),
    (238, 255, 136),
    (204, 119, 34),
    (0, 0, 0),
    (0, 255, 255),
    (221, 187, 0),
    (170, 51, 17),
)
"""By the index of the class; the ninth is the background's in the skin dataset."""


def safe_palette(schema: LabelSchema) -> tuple[RGB, ...] | None:
    """A colour for each class, or None where there are more classes than colours that can be told apart."""
    return SAFE[: len(schema)] if len(schema) <= len(SAFE) else None
