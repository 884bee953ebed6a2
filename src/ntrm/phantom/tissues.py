"""Tissues finer than the labels: what a mask calls reticular dermis may be collagen, muscle, a vessel or a scar.

A *fine mask* holds the labels of the skin schema and, for finer tissues, codes above them: one for each pair of a fine
tissue and a label that it lies under. ``labels_of`` turns it into the mask that a pathologist would draw.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import IGNORE, SKIN, Mask

_DERMIS = ("RET", "PAP", "INF")
_FIRST_CODE = 32

FINE = {
    "sebaceous": ("GLD",),
    "eccrine": ("GLD",),
    "duct": ("GLD",),
    "muscle": ("RET",),
    "nerve": ("RET",),
    "vessel wall": _DERMIS,
    "red cells": _DERMIS,
    "lumen": _DERMIS,
    "elastosis": ("RET", "PAP"),
    "oedema": ("PAP",),
    "scar": ("RET",),
    "crust": ("INF",),
    "basket weave": ("KER",),
}
"""Fine tissues and the labels they lie under."""

PASSING = ("elastosis", "oedema", "scar")
"""Changes of connective tissue, which pass into the dermis around them without a border."""

KINDS = {name: np.uint8(number) for number, name in enumerate(FINE, start=1)}
"""Number of each fine tissue while a section is painted; 0 is what the label says, and no more."""

_PAIRS = tuple((name, label) for name, labels in FINE.items() for label in labels)
CODES = {pair: _FIRST_CODE + number for number, pair in enumerate(_PAIRS)}
"""Value in a fine mask, by fine tissue and label."""


def codes_of(*names: str) -> list[int]:
    """Every code of some fine tissues."""
    return [code for (name, _), code in CODES.items() if name in names]


LABELS = np.arange(IGNORE + 1, dtype=np.uint8)  # Label by the value of a fine mask
_CODE_TABLE = np.tile(np.arange(len(SKIN), dtype=np.uint8), (len(FINE) + 1, 1))  # That value by kind and label
for (_name, _label), _code in CODES.items():
    LABELS[_code] = SKIN.index(_label)
    _CODE_TABLE[KINDS[_name], LABELS[_code]] = _code


def labels_of(fine: NDArray[Any]) -> Mask:
    """The labels of a fine mask.

    >>> labels_of(np.array([[SKIN.index("PAP"), CODES["muscle", "RET"]]])).tolist() == [[5, 3]]
    True
    """
    return np.asarray(LABELS[fine])


def fine_mask(kinds: NDArray[np.uint8], labels: Mask) -> Mask:
    """Both in one mask; a fine tissue that cannot lie under its label has been painted over and is forgotten."""
    return _CODE_TABLE[kinds, labels]
