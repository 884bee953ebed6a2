"""Small pictures of a segmented slide, sampled from masks that stay on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.files import whole_file
from ntrm.labels import IGNORE, LabelSchema

OPACITY = 0.45
"""Of the tissue colours over the slide's own."""

Image = NDArray[np.uint8]


def sampled(labels: NDArray[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """``labels`` at the pixels nearest to those of a picture of ``shape`` that shows the same.

    >>> sampled(np.arange(8).reshape(2, 4), (1, 2)).tolist()
    [[5, 7]]
    """
    rows, columns = (
        np.minimum(((np.arange(size) + 0.5) * full / size).astype(np.int64), full - 1)
        for size, full in zip(shape, labels.shape, strict=True)
    )
    # Row by row: fancy indexing of both axes at once would read the whole map.
    return np.stack([np.asarray(labels[row])[columns] for row in rows])


def overlay(picture: Image, labels: NDArray[np.uint8], schema: LabelSchema) -> Image:
    """The slide's picture with the tissues' colours over it; background and what was not looked at stay as they are."""
    seen = sampled(labels, (picture.shape[0], picture.shape[1])).astype(np.uint8)
    background = IGNORE if schema.background_index is None else schema.background_index
    shown = (seen != IGNORE) & (seen != background)
    mixed = (1 - OPACITY) * picture + OPACITY * schema.colourise(seen)
    return np.where(shown[..., None], np.rint(mixed), picture).astype(np.uint8)


def write_png(path: Path, picture: Image) -> None:
    """A whole PNG file or none; nothing but pixels in it."""
    from PIL import Image as Pillow

    with whole_file(path) as partial:
        Pillow.fromarray(picture).save(partial, format="PNG")
