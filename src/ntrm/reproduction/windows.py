"""Windows of the test part to show: one for each cancer, with as many tissues as possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import CANCERS, IGNORE
from ntrm.data.cache import TileCache
from ntrm.data.dataset import Case
from ntrm.data.split import DatasetSplits
from ntrm.data.tiles import GLASS, Window, cut, tile_windows

VISIBLE = 0.005
"""Share of a window from which on a tissue counts as shown."""
ROWS = 3
"""Windows shown where the classes hold no cancer."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A window with its truth."""

    name: str
    image: NDArray[np.uint8]
    """(S, S, 3)"""
    truth: NDArray[np.uint8]
    """(S, S); 255 where nothing is known."""
    tissues: int


@dataclass(frozen=True)
class _Candidate:
    case: Case
    window: Window
    shares: tuple[float, ...]
    """Share of each class in the window."""

    @property
    def tissues(self) -> int:
        return sum(share >= VISIBLE for share in self.shares)


def choose_windows(parts: DatasetSplits, size: int) -> tuple[Shown, ...]:
    """One window each of BCC, SCC and IEC as far as the test part has them; else three of different sections."""
    schema, found = parts.schema, _candidates(parts, size)
    cancers = [name for name in CANCERS if name in schema.names]
    if not cancers:
        best: dict[str, _Candidate] = {}
        for candidate in sorted(found, key=lambda each: (-each.tissues, each.case.name, each.window)):
            best.setdefault(candidate.case.name, candidate)
        return tuple(_show(parts, candidate, candidate.case.name) for candidate in [*best.values()][:ROWS])
    rows = []
    for cancer in cancers:
        place = schema.index(cancer)
        having = [candidate for candidate in found if candidate.shares[place] >= VISIBLE]
        if having:
            best_one = max(having, key=lambda each: (each.tissues, each.shares[place]))
            rows.append(_show(parts, best_one, f"{cancer} ({best_one.case.name})"))
    return tuple(rows)


def _candidates(parts: DatasetSplits, size: int) -> list[_Candidate]:
    found = []
    for case in parts["test"]:
        section = TileCache().open(case, parts.schema)
        for window in tile_windows(*section.shape, size=size, overlap=size // 2):
            counts = np.bincount(section.mask[window.slices].ravel(), minlength=IGNORE + 1)[: len(parts.schema)]
            # By the whole window: one that lies half outside the section shows little.
            found.append(_Candidate(case, window, tuple((counts / (size * size)).tolist())))
    return found


def _show(parts: DatasetSplits, candidate: _Candidate, name: str) -> Shown:
    section = TileCache().open(candidate.case, parts.schema)
    image = cut(section.image, candidate.window, fill=GLASS)
    truth = cut(section.mask, candidate.window, fill=IGNORE)
    return Shown(name, image, truth, candidate.tissues)
