"""What every slide reader provides: levels, µm/px, pixels, errors, and a cache of decoded arrays.

Nothing here carries a file's free text: no comments, no names, no label or macro images. Errors name no file either,
since file names can identify a patient; whoever opened the slide knows which one it was.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import BROKEN, DataError, check_number
from ntrm.core.labels import WHITE
from ntrm.core.mpp import PLAUSIBLE_MPP, Resolution
from ntrm.data.image_files import quiet_decoders

Pixels = NDArray[np.uint8]

MAX_SIDE = 2**24
"""Pixels along one side beyond which a header is damaged: a slide of 76 mm has 1.5 million at 0.05 µm/px."""
MAX_READ_PIXELS = 2**27  # Most pixels read at once; more would not fit into memory together with a network
COARSEST_MPP = 20.0  # Above this a resolution tag is a printer's (72 dpi means 353 µm/px), not a microscope's
MAX_ANISOTROPY = 4.0  # Pixels more oblong than this come from damaged tags; line scanners stay far below

StatedMpp = tuple[float, float] | None  # µm/px along x and y as a file states them, credible or not

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|b'[^']*'")
_MICROMETRES = dict.fromkeys(("", "µm", "μm", "um", "micron", "&#181;m", "&#xB5;m", "&#956;m"), 1.0)
_MICROMETRES |= {"nm": 1e-3, "mm": 1e3, "cm": 1e4, "m": 1e6}


@dataclass(frozen=True)
class SlideLevel:
    """One level of a pyramid."""

    width: int
    height: int
    downsample: float
    tile: tuple[int, int] | None = None
    """Width and height of the file's own tiles or strips, where known: reading less costs as much."""

    def __post_init__(self) -> None:
        check_number("width of a level", self.width, 1, MAX_SIDE, whole=True)
        check_number("height of a level", self.height, 1, MAX_SIDE, whole=True)
        check_number("downsample of a level", self.downsample, 0.5, MAX_SIDE)


@dataclass(frozen=True)
class SlideInfo:
    """Metadata of a slide; numbers and fixed words only."""

    reader: str  # `openslide`, `tifffile` or `pillow`
    vendor: str
    levels: tuple[SlideLevel, ...]  # From the full resolution to the coarsest
    stated_mpp: StatedMpp = None
    bounds: tuple[int, int, int, int] | None = None
    """The scanned area (x, y, width, height) in level-0 pixels, where the file has one."""

    def __post_init__(self) -> None:
        if not self.levels:
            raise DataError("a slide without its full resolution", got="0 levels")
        if self.bounds is not None:
            x, y, width, height = self.bounds
            inside = min(x, y) >= 0 and x + width <= self.width and y + height <= self.height
            if not inside or min(width, height) < 1:
                raise DataError("the scanned part lies outside the slide", got=self.bounds)

    @property
    def width(self) -> int:
        """Pixels of level 0."""
        return self.levels[0].width

    @property
    def height(self) -> int:
        """Pixels of level 0."""
        return self.levels[0].height

    @property
    def resolution(self) -> Resolution | None:
        """µm/px of level 0; None where the file does not state it, or states what no microscope has."""
        stated = self.stated_mpp
        if stated is None or not all(PLAUSIBLE_MPP[0] <= value <= COARSEST_MPP for value in stated):
            return None
        return Resolution(*stated) if max(stated) <= MAX_ANISOTROPY * min(stated) else None

    @property
    def area(self) -> tuple[int, int, int, int]:
        """The scanned area (x, y, width, height), or all of the slide."""
        return self.bounds or (0, 0, self.width, self.height)

    def scale(self, level: int) -> tuple[float, float]:
        """Level-0 pixels per pixel of ``level`` along x and y.

        Sizes of levels are rounded; an integer ratio that explains them is the true one.
        """
        this = self.levels[level]
        factor = round(this.downsample)
        sizes = ((self.width, this.width), (self.height, this.height))
        if factor >= 1 and all(size in {full // factor, -(-full // factor)} for full, size in sizes):
            return float(factor), float(factor)
        return self.width / this.width, self.height / this.height

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON document."""
        mpp = self.resolution
        return {
            "reader": self.reader,
            "vendor": self.vendor,
            "width": self.width,
            "height": self.height,
            "mpp": None if mpp is None else [mpp.x, mpp.y],
            "bounds": None if self.bounds is None else list(self.bounds),
            "levels": [{"width": one.width, "height": one.height, "downsample": one.downsample} for one in self.levels],
        }


class SlideReader(Protocol):
    """An open slide."""

    info: SlideInfo

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """(height, width, 3) pixels of ``level`` whose top left is the level-0 pixel (x, y); white outside."""

    def close(self) -> None:
        """Close the file; closing twice does no harm."""


def unreadable(got: str, hint: str = "") -> DataError:
    """Error for a file that cannot be read."""
    return DataError(
        "cannot read the slide",
        got=got,
        expected="a sound slide that OpenSlide reads, or an 8-bit RGB TIFF, PNG or JPEG",
        hint=hint or "copy the file again from the scanner, or convert it in QuPath to OME-TIFF",
    )


@contextmanager
def decoding(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """Turn whatever a decoder raises into our own error, without what it may quote from the file or its name.

    ``errors`` are further ones that it is known to raise.
    """
    kinds: tuple[type[Exception], ...] = (*BROKEN, *errors)
    try:
        yield
    except kinds as error:
        hints: dict[type[Exception], str] = {
            PermissionError: "change the file's permissions",
            FileNotFoundError: "check the path; was the drive taken away?",
            MemoryError: "write it again as a tiled TIFF of 8-bit RGB",
        }
        raise unreadable(anonymous(error, path), hints.get(type(error), "")) from error


@contextmanager
def opening(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """``decoding``, and without what libraries warn or log about a header, which may quote it.

    Warnings are silenced for the whole process meanwhile: this is for opening, not for reading in threads.
    """
    with decoding(path, *errors), quiet_decoders():
        yield


def anonymous(error: Exception, path: Path) -> str:
    """An error's message on one line, without the file's name and anything quoted, which may be from the header.

    >>> anonymous(ValueError("/scans/Jane Doe.svs: cannot parse 'Jane Doe' as a date"), Path("/scans/Jane Doe.svs"))
    'ValueError: …: cannot parse … as a date'
    """
    kind = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}"
    text = str(error)
    for spelling in (str(path.absolute()), str(path), path.name, path.stem):
        # Only where no letter adjoins: "a" occurs in most words. A single character alone is no name.
        if len(spelling) > 1:
            text = re.sub(rf"(?<![^\W\d_]){re.escape(spelling)}(?![^\W\d_])", "…", text)
    lines = _QUOTED.sub("…", text).splitlines()
    # A path in another spelling may hold blanks: nothing after its first slash is safe.
    line = lines[0].split("/", 1)[0] if lines else ""
    return f"{kind}: {line[:160]}" if line else kind


def check_request(info: SlideInfo, width: int, height: int, level: int) -> None:
    """Refuse what no reader can give."""
    check_number("level", level, 0, len(info.levels) - 1, whole=True)
    check_number("width of a region", width, 1, MAX_SIDE, whole=True)
    check_number("height of a region", height, 1, MAX_SIDE, whole=True)
    check_number("number of pixels of a region", int(width) * int(height), 1, MAX_READ_PIXELS, whole=True)


def read_padded(
    level: SlideLevel, left: int, top: int, width: int, height: int, read: Callable[[int, int, int, int], Pixels]
) -> Pixels:
    """A rectangle in pixels of a level: ``read(left, top, width, height)`` where it lies inside, white elsewhere."""
    x0, y0 = max(left, 0), max(top, 0)
    x1, y1 = min(left + width, level.width), min(top + height, level.height)
    if (x0, y0, x1, y1) == (left, top, left + width, top + height):
        return read(left, top, width, height)
    out = np.full((height, width, 3), WHITE, dtype=np.uint8)
    if x1 > x0 and y1 > y0:
        out[y0 - top : y1 - top, x0 - left : x1 - left] = read(x0, y0, x1 - x0, y1 - y0)
    return out


class ArrayCache:
    """The arrays used last, as many as fit into ``capacity`` bytes; safe to use from several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._bytes = capacity, 0
        self._arrays: OrderedDict[Hashable, Pixels] = OrderedDict()
        self._making: dict[Hashable, Lock] = {}
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Pixels]) -> Pixels:
        """The array of ``key``, made if it is not held; nobody may write into it.

        A thread that needs what another one is just making waits for it.
        """
        with self._lock:
            if key in self._arrays:
                self._arrays.move_to_end(key)
                return self._arrays[key]
            making = self._making.setdefault(key, Lock())
        with making:
            if (made := self._arrays.get(key)) is not None:
                return made
            made = make()
            made.setflags(write=False)
            with self._lock:
                self._making.pop(key, None)
                self._bytes += 0 if key in self._arrays else made.nbytes
                self._arrays[key] = made
                # The array used last stays even if it alone is larger.
                while self._bytes > self._capacity and len(self._arrays) > 1:
                    self._bytes -= self._arrays.popitem(last=False)[1].nbytes
            return made


def positive_pair(x: object, y: object) -> StatedMpp:
    """Two positive numbers from numbers or texts, or None."""
    try:
        values = float(str(x)), float(str(y))
    except ValueError:
        return None
    return values if all(math.isfinite(value) and value > 0 for value in values) else None


def mpp_from_ome(xml: str, width: int, height: int) -> StatedMpp:
    """PhysicalSizeX and Y of an image of an OME-XML document: its only one, or the first of this size."""
    # Without a parser: the document is large in some files and hostile in others.
    images = [dict(re.findall(r'\b(\w+)="([^"]*)"', pixels)) for pixels in re.findall(r"<(?:\w+:)?Pixels\b[^>]*", xml)]
    size = str(width), str(height)
    of_size = (image for image in images if len(images) == 1 or (image.get("SizeX"), image.get("SizeY")) == size)
    attributes = next(of_size, {})
    sizes = positive_pair(*(attributes.get(f"PhysicalSize{axis}") for axis in "XY"))
    factors = [_MICROMETRES.get(attributes.get(f"PhysicalSize{axis}Unit", "")) for axis in "XY"]
    if sizes is None or None in factors:
        return None
    x, y = (round(size * factor, 9) for size, factor in zip(sizes, factors, strict=True) if factor)
    return x, y


def mpp_from_tags(tags: Any) -> StatedMpp:
    """XResolution, YResolution and ResolutionUnit of a TIFF page; without a real unit they mean nothing."""
    micrometres = {2: 25_400, 3: 10_000}.get(int(tags.valueof("ResolutionUnit", 0)))
    ratios = [tags.valueof(f"{axis}Resolution", (0, 1)) for axis in "XY"]
    if micrometres is None or any(ratio[0] == 0 or ratio[1] == 0 for ratio in ratios):
        return None
    return positive_pair(*(float(micrometres / Fraction(*ratio)) for ratio in ratios))


def mpp_from_aperio(description: str) -> StatedMpp:
    """The MPP entry of an Aperio description."""
    entry = re.search(r"\|\s*MPP\s*=\s*([0-9.]+)", description)
    return positive_pair(entry[1], entry[1]) if entry and description.startswith("Aperio") else None


def mpp_from_dpi(dpi: object) -> StatedMpp:
    """Dots per inch as Pillow gives them for PNG and JPEG files."""
    if not isinstance(dpi, tuple) or len(dpi) != 2 or min(dpi) <= 0:
        return None
    return positive_pair(*(25_400 / float(value) for value in dpi))
