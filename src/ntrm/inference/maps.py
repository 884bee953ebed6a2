"""What the network says about every pixel of a slide: arrays in memory, or mapped files where a slide is large."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ntrm.core.arrays import Bytes
from ntrm.core.io import writing
from ntrm.core.labels import IGNORE

FULL = 255
"""Confidence or probability of 1 in a byte."""
IN_MEMORY = 1 << 29
"""Bytes that the maps of a slide may have together to be kept in memory."""


@dataclass(frozen=True, eq=False)
class Maps:
    """(H, W) bytes each."""

    labels: Bytes
    """Class indices; 255 for nothing."""
    confidence: Bytes
    """Of the label, ``FULL`` for 1."""
    coarse: Bytes | None
    """The coarse head's labels, where they were asked for."""

    @classmethod
    def new(cls, height: int, width: int, folder: Path, *, coarse: bool) -> Maps:
        """Maps that say nothing yet; large ones lie in ``folder``, which the caller deletes."""
        shape, on_disk = (height, width), (3 if coarse else 2) * height * width > IN_MEMORY
        return cls(
            new_map(shape, IGNORE, folder / "labels.u8" if on_disk else None),
            new_map(shape, 0, folder / "confidence.u8" if on_disk else None),
            new_map(shape, IGNORE, folder / "coarse.u8" if on_disk else None) if coarse else None,
        )


def new_map(shape: tuple[int, ...], fill: int, path: Path | None = None) -> Bytes:
    """Bytes that all are ``fill``: in memory, or mapped from the new file ``path``.

    The file has all its room at once, so that a full disk is an error here: later it would end the process.
    """
    if path is None:
        return np.full(shape, fill, dtype=np.uint8)
    with writing(path.name):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x+b") as stream:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(stream.fileno(), 0, math.prod(shape))
            else:
                stream.truncate(math.prod(shape))
        values: Bytes = np.memmap(path, dtype=np.uint8, mode="r+", shape=shape)
    values[...] = fill
    return values
