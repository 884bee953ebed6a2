"""The passes before a section is predicted, for networks that see beyond the window.

Sums over windows are all that is kept, so that a section of any size takes as little memory as one window. Whatever a
user hands over as one picture is one section: the same in training, evaluation and on slides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ntrm.data.tiles import GLASS, Window, cut, tile_windows
from ntrm.inference.predictor import Image, Predictor
from ntrm.models.section.sums import SectionSums

Context = Sequence[SectionSums]
"""Sums of a whole section, one row for each pass."""


class Gathered(NamedTuple):
    """How far a pass has come."""

    sums: SectionSums | None
    """Of the windows so far, in double precision; None before the first."""
    windows: int
    """How many these are."""


def one_pass(
    predictor: Predictor,
    windows: Sequence[Window],
    read: Callable[[Window], Image],
    before: Context = (),
    begin: Gathered | None = None,
) -> Iterator[Gathered]:
    """Go over ``windows``, which should cover the section once; yields the sums after each batch.

    ``before`` holds the sums of earlier passes. From ``begin`` it ends with the same sums, to the last bit.
    """
    sums, done = begin or (None, 0)
    while done < len(windows):
        some = windows[done : done + predictor.batch]
        found = predictor.gather(np.stack([read(window) for window in some]), before)
        sums = found if sums is None else sums + found
        done += len(some)
        yield Gathered(sums, done)


def gather(predictor: Predictor, windows: Sequence[Window], read: Callable[[Window], Image]) -> Context | None:
    """All passes that the network wants; None for one that predicts windows as they are, or without windows."""
    context: list[SectionSums] = []
    for _ in range(predictor.passes if windows else 0):
        for sums, done in one_pass(predictor, windows, read, context):
            if sums is not None and done == len(windows):
                context.append(predictor.finished(sums))
    return context or None


def gather_image(predictor: Predictor, image: Image, side: int) -> Context | None:
    """All passes over windows of ``side`` pixels that cover an image (H, W, 3) about once."""
    height, width = image.shape[:2]
    windows = tile_windows(height, width, side) if predictor.passes else ()
    return gather(predictor, windows, lambda window: cut(image, window, fill=GLASS))
