"""Names of array types that every layer uses, and what users give as one; what it means is said where it is used."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntrm.core.errors import UsageError
from ntrm.core.io import writing

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
BoolMask = NDArray[np.bool_]
FULL = 255  # A confidence or probability of 1 in a byte


def new_map(shape: tuple[int, ...], folder: Path | None = None, fill: int = 0) -> Bytes:
    """Bytes that all are ``fill``: in memory, or in a file in ``folder`` that has no name, so that none is left behind.

    The file has all its room at once, so that a full disk is an error here: later it would end the process.
    """
    if folder is None:
        return np.full(shape, fill, dtype=np.uint8)
    with writing(f"a map of {math.prod(shape):,} bytes"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as stream:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(stream.fileno(), 0, math.prod(shape))
            values: Bytes = np.memmap(stream, dtype=np.uint8, mode="w+", shape=shape)
    if fill:
        values[...] = fill
    return values


def plain_array(what: str, values: ArrayLike) -> NDArray[Any]:
    """What a user gave as an array; refuses masked ones, whose masked pixels would count like the others.

    >>> plain_array("the mask", [[7, 0]]).shape
    (1, 2)
    """
    if isinstance(values, np.ma.MaskedArray):
        count = int(np.ma.getmaskarray(values).sum())
        raise UsageError(
            f"{what} is a masked array",
            got=f"{count} masked pixel{'' if count == 1 else 's'} of {values.size}",
            expected="a plain array",
            hint="say what masked pixels are: mask.filled(255) has them ignored",
        )
    try:
        return np.asarray(values)
    except ValueError as error:
        raise UsageError(f"{what} is no array", got=error, expected="rows of one length") from error


def ranges(first: Ints, length: Ints) -> Ints:
    """All integers of several ranges, one range after the other.

    >>> ranges(np.array([3, 10]), np.array([2, 3])).tolist()
    [3, 4, 10, 11, 12]
    """
    return np.repeat(first - (np.cumsum(length) - length), length) + np.arange(length.sum())
