"""Pixels of a slide or a plain image as QuPath counts them, and its µm/px where the file can be believed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tifffile
from numpy.typing import NDArray

from ntrm.data.annotations.rasterise import Grid
from ntrm.data.decode import read_image
from ntrm.errors import DataError
from ntrm.resolution import PLAUSIBLE_MPP, Resolution

SUFFIXES = (
    *(".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".vms", ".vmu", ".bif", ".svslide"),
    *(".png", ".jpg", ".jpeg"),
)
COARSEST_MPP = 20.0
"""Above this a resolution tag is a printer's (72 dpi says 353 µm/px), not a microscope's."""
BLOCK = 1024
"""Side of the largest piece of the slide held in memory, in full-resolution pixels."""
MICROMETRE = {"", "µm", "μm", "um", "&#181;m", "&#xB5;m", "&#956;m"}

RGBImage = NDArray[np.uint8]


class Slide(Protocol):
    """What the import needs of a slide."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in full-resolution pixels."""
        ...

    @property
    def origin(self) -> tuple[int, int]:
        """Where QuPath's (0, 0) lies in the file's own pixels."""
        ...

    @property
    def resolution(self) -> Resolution | None:
        """µm/px of the full resolution, or None where the file does not credibly tell."""
        ...

    def read(self, left: int, top: int, width: int, height: int) -> RGBImage:
        """Pixels of a rectangle that lies inside the slide."""
        ...


@dataclass(frozen=True)
class PlainImage:
    """An image small enough to be held whole."""

    pixels: RGBImage
    resolution: Resolution | None
    origin: tuple[int, int] = (0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]

    def read(self, left: int, top: int, width: int, height: int) -> RGBImage:
        """Pixels of a rectangle."""
        return self.pixels[top : top + height, left : left + width]


@dataclass(frozen=True)
class OpenSlideSlide:
    """A slide read through OpenSlide, piece by piece.

    QuPath shows only the scanned part where a file states one (``openslide.bounds-…``) and counts pixels from
    its top left; so do we.
    """

    handle: Any
    path: Path

    @property
    def origin(self) -> tuple[int, int]:
        """Top left of the scanned part."""
        bounds = self._bounds
        return (0, 0) if bounds is None else (bounds[0], bounds[1])

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the scanned part."""
        bounds = self._bounds
        width, height = self.handle.dimensions if bounds is None else bounds[2:]
        return int(width), int(height)

    @property
    def _bounds(self) -> list[int] | None:
        stated = [self.handle.properties.get(f"openslide.bounds-{key}") for key in ("x", "y", "width", "height")]
        return [int(value) for value in stated] if all(stated) else None

    @property
    def resolution(self) -> Resolution | None:
        """µm/px that OpenSlide tells, else that of the TIFF tags."""
        stated = [self.handle.properties.get(f"openslide.mpp-{axis}") for axis in "xy"]
        return _plausible(*stated) or _tiff_resolution(self.path)

    def read(self, left: int, top: int, width: int, height: int) -> RGBImage:
        """Pixels of a rectangle; what was never scanned takes the slide's background colour."""
        from openslide import OpenSlideError
        from PIL import Image

        corner = (left + self.origin[0], top + self.origin[1])
        try:
            region = self.handle.read_region(corner, 0, (width, height))
        except OpenSlideError as error:
            raise _unreadable(self.path, error) from error
        paper = Image.new("RGBA", region.size, "#" + self.handle.properties.get("openslide.background-color", "FFFFFF"))
        return np.asarray(Image.alpha_composite(paper, region).convert("RGB"))


@contextmanager
def open_slide(path: Path) -> Iterator[Slide]:
    """Open through OpenSlide where it knows the format, else as a plain image."""
    try:
        import openslide
    except ImportError:
        yield _plain(path)
        return
    try:
        handle = openslide.OpenSlide(path)
    except openslide.OpenSlideUnsupportedFormatError:
        yield _plain(path)
        return
    except openslide.OpenSlideError as error:
        raise _unreadable(path, error) from error
    with handle:
        yield OpenSlideSlide(handle, path)


def _plain(path: Path) -> PlainImage:
    return PlainImage(read_image(path), _tiff_resolution(path))


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(
        f"cannot read {path}",
        got=error,
        expected="a slide that OpenSlide reads, or an 8-bit RGB TIFF, PNG or JPEG",
        mend="copy the file again from the scanner, or convert it in QuPath to OME-TIFF",
    )


def _plausible(x: object, y: object) -> Resolution | None:
    """Resolution from two numbers or texts, or None if they cannot be that of a microscope."""
    try:
        values = float(str(x)), float(str(y))
    except ValueError:
        return None
    return Resolution(*values) if all(PLAUSIBLE_MPP[0] <= value <= COARSEST_MPP for value in values) else None


def _tiff_resolution(path: Path) -> Resolution | None:
    """µm/px from OME-XML or from resolution tags with a real unit."""
    if path.suffix.lower() not in (".tif", ".tiff", ".svs"):
        return None
    try:
        with tifffile.TiffFile(path) as tiff:
            return _ome_resolution(tiff.ome_metadata or "") or _tag_resolution(tiff.pages.first.tags)
    except (tifffile.TiffFileError, OSError, ValueError):
        return None


def _ome_resolution(xml: str) -> Resolution | None:
    found = []
    for axis in "XY":
        value = re.search(rf'\bPhysicalSize{axis}="([^"]*)"', xml)
        unit = re.search(rf'\bPhysicalSize{axis}Unit="([^"]*)"', xml)
        if value is None or (unit is not None and unit[1] not in MICROMETRE):
            return None
        found.append(value[1])
    return _plausible(*found)


def _tag_resolution(tags: Any) -> Resolution | None:
    micrometres = {2: 25_400, 3: 10_000}.get(int(tags.valueof("ResolutionUnit", 0)))
    per_unit = [tags.valueof(f"{axis}Resolution", (0, 1)) for axis in "XY"]
    if micrometres is None or any(numerator == 0 or denominator == 0 for numerator, denominator in per_unit):
        return None
    return _plausible(*(float(micrometres / Fraction(*ratio)) for ratio in per_unit))


def read_grid(slide: Slide, grid: Grid) -> RGBImage:
    """The slide on a coarser grid: every pixel is the mean of the slide over its area, read block by block."""
    image = np.empty((grid.height, grid.width, 3), dtype=np.uint8)
    tall, wide = (max(1, int(BLOCK / step)) for step in (grid.step_y, grid.step_x))
    for row in range(0, grid.height, tall):
        for column in range(0, grid.width, wide):
            part = image[row : row + tall, column : column + wide]
            down = grid.top + grid.step_y * np.arange(row, row + part.shape[0] + 1)
            across = grid.left + grid.step_x * np.arange(column, column + part.shape[1] + 1)
            part[:] = _block(slide, down, across)
    return image


def _block(slide: Slide, down: NDArray[np.float64], across: NDArray[np.float64]) -> RGBImage:
    """Means over the cells between the given row and column borders."""
    left, top = int(np.floor(across[0])), int(np.floor(down[0]))
    # A last border may exceed the slide by rounding alone.
    right, bottom = (
        min(int(np.ceil(b - 1e-6)), limit) for b, limit in zip((across[-1], down[-1]), slide.size, strict=True)
    )
    pixels = slide.read(left, top, right - left, bottom - top)
    if all(np.array_equal(b, np.arange(len(b))) for b in (down - top, across - left)):
        return pixels  # the grid is the slide's own
    means = area_mean(area_mean(pixels, down - top).swapaxes(0, 1), across - left).swapaxes(0, 1)
    return np.floor(means + 0.5).astype(np.uint8)


def area_mean(values: NDArray[Any], borders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean along the first axis between successive borders; cells that a border cuts count by their share.

    >>> area_mean(np.array([10.0, 20.0, 40.0]), np.array([0, 1.5, 3])).round(3).tolist()
    [13.333, 33.333]
    """
    total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0, dtype=np.float64)])
    whole = np.clip(np.floor(borders).astype(int), 0, len(values) - 1)
    share = np.clip(borders - whole, 0, 1).reshape(-1, *[1] * (values.ndim - 1))
    at_border: NDArray[np.float64] = total[whole] + share * values[whole]
    return np.diff(at_border, axis=0) / np.diff(borders).reshape(-1, *[1] * (values.ndim - 1))
