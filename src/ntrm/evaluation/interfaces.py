"""Where two tissues meet: how many pixels are wrong there, and how the final prediction differs from the coarse one.

A pixel belongs to the *interface* A-B if its true class is one of the two and the other lies within ``REACH`` pixels
of it (chessboard distance) in the true mask; it may belong to several interfaces. Ignored pixels belong to none. A
pixel that the coarse head had wrong and the final prediction has right is *corrected*, the reverse *broken*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from ntrm.core.labels import CANCERS, Counts, IndexMask, LabelSchema
from ntrm.metrics.boundary import check_masks

REACH = 3  # Pixels from the boundary that still belong to it, the boundary's own among them

CLAIMED = (("BCC", "RET"), ("RET", "HYP"), ("EPI", "KER"))
"""The interfaces at which the paper claims corrections; reported even where they do not occur."""


def interface_name(one: str, other: str, schema: LabelSchema) -> str:
    """The name of an interface, whichever tissue comes first: a cancer is named first, then the order of the classes.

    >>> from ntrm.core.labels import SKIN
    >>> interface_name("RET", "BCC", SKIN), interface_name("KER", "EPI", SKIN)
    ('BCC-RET', 'EPI-KER')
    """
    return "-".join(sorted((one, other), key=lambda name: (name not in CANCERS, schema.index(name))))


@dataclass(frozen=True, eq=False)
class InterfaceCounts:
    """Counts of one section or, added up, of many. All tables are (K, K): true class, class that is near."""

    schema: LabelSchema
    pixels: Counts
    wrong: Counts  # Those that the final prediction has wrong
    corrected: Counts | None = None  # None for networks without a coarse head
    broken: Counts | None = None

    @classmethod
    def total(cls, sections: Sequence[InterfaceCounts]) -> InterfaceCounts:
        """Sections together."""
        counted = ("pixels", "wrong") if sections[0].corrected is None else ("pixels", "wrong", "corrected", "broken")
        tables = (np.sum([getattr(section, name) for section in sections], axis=0) for name in counted)
        return cls(sections[0].schema, *tables)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Interfaces to report: those claimed, where the schema has them, then all that occur."""
        names = self.schema.names
        claimed = [pair for pair in CLAIMED if set(pair) <= set(names)]
        occurring = [(names[i], names[j]) for i, j in np.argwhere(np.triu(self.pixels + self.pixels.T, 1))]
        known = {frozenset(pair) for pair in claimed}
        return (*claimed, *(pair for pair in occurring if frozenset(pair) not in known))

    def of(self, one: str, other: str) -> dict[str, int | None]:
        """Counts of the interface of two tissues, both sides of it together."""
        i, j = self.schema.index(one), self.schema.index(other)

        def both(table: Counts | None) -> int | None:
            return None if table is None else int(table[i, j] + table[j, i])

        corrected, broken = self.corrected, self.broken
        return {
            "pixels": both(self.pixels),
            "coarse_wrong": None if corrected is None or broken is None else both(self.wrong + corrected - broken),
            "wrong": both(self.wrong),
            "corrected": both(corrected),
            "broken": both(broken),
        }

    def as_dict(self) -> dict[str, dict[str, int | None]]:
        """By name, ``A-B``."""
        return {interface_name(*pair, self.schema): self.of(*pair) for pair in self.pairs}


def interface_counts(
    truth: IndexMask, final: IndexMask, coarse: IndexMask | None, schema: LabelSchema
) -> InterfaceCounts:
    """Count one section; ``coarse`` is the coarse head's prediction, None without one.

    >>> from ntrm.core.labels import SKIN
    >>> truth, coarse, final = np.array([[9, 9, 3, 3]]), np.array([[9, 3, 3, 9]]), np.array([[9, 9, 9, 3]])
    >>> interface_counts(truth, final, coarse, SKIN).of("BCC", "RET")
    {'pixels': 4, 'coarse_wrong': 2, 'wrong': 1, 'corrected': 2, 'broken': 1}
    """
    truth, final = np.asarray(truth), np.asarray(final)
    check_masks(truth, final, schema)
    right = final == truth
    counted = [np.ones(truth.shape, dtype=bool), ~right]
    if coarse is not None:
        right_before = np.asarray(coarse) == truth
        counted += [right & ~right_before, right_before & ~right]
    tables = np.zeros((len(counted), len(schema), len(schema)), dtype=np.int64)
    for other in np.flatnonzero(np.bincount(truth.ravel(), minlength=256)[: len(schema)]):
        # Most tissues take a small area of a section: their bounding box and ``REACH`` around it will do.
        ((rows, columns),) = ndimage.find_objects((truth == other).view(np.uint8))
        box = tuple(slice(max(side.start - REACH, 0), side.stop + REACH) for side in (rows, columns))
        window = truth[box]
        near = ndimage.maximum_filter(window == other, size=2 * REACH + 1, mode="constant", cval=False)
        near &= (window != other) & (window < len(schema))
        labels = window[near]
        for table, pixels in zip(tables, counted, strict=True):
            table[:, other] = np.bincount(labels[pixels[box][near]], minlength=len(schema))
    return InterfaceCounts(schema, *tables)
