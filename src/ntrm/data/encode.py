"""Images and masks to files as the skin dataset has them: RGB TIFF with µm/px, RGB or indexed PNG masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image

from ntrm.files import whole_file
from ntrm.labels import IGNORE, LabelSchema, Mask
from ntrm.resolution import Resolution

IGNORE_RGB = (255, 255, 255)
"""Colour of unknown pixels in RGB masks: white is no tissue's colour and reads back as ignore."""


def write_image(path: Path, image: NDArray[np.uint8], resolution: Resolution) -> None:
    """Write an RGB TIFF, deflated in strips, with its µm/px in its tags; its bytes depend on nothing else."""
    pixels_per_cm = (1e4 / resolution.x, 1e4 / resolution.y)
    with whole_file(path) as partial:
        tifffile.imwrite(
            partial,
            np.ascontiguousarray(image),
            photometric="rgb",
            compression="zlib",
            predictor=False,
            rowsperstrip=64,
            resolution=pixels_per_cm,
            resolutionunit="CENTIMETER",
            software="ntrm",
            metadata=None,
        )


def write_rgb_mask(path: Path, mask: Mask, schema: LabelSchema) -> None:
    """Write a mask in its palette's colours; ignore becomes white, which reads back as ignore."""
    with whole_file(path) as partial:
        Image.fromarray(schema.colourise(mask, ignore_rgb=IGNORE_RGB)).save(partial, format="PNG", compress_level=6)


def write_indexed_mask(path: Path, mask: Mask, schema: LabelSchema) -> None:
    """Write a mask as indexed PNG: the pixel is the class index, 255 is ignore, the palette is for looking at."""
    picture = Image.fromarray(mask)
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[: len(schema)] = schema.palette
    palette[IGNORE] = IGNORE_RGB
    picture.putpalette(palette.tobytes())
    with whole_file(path) as partial:
        picture.save(partial, format="PNG", compress_level=6)
