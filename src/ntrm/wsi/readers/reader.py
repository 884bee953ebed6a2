"""What every reader of slides gives, and what guards all of them.

Nothing here carries a file's free text: no comments, no names, no label or macro images. Errors name no file either,
since file names can identify a patient; whoever opened the slide knows which one it was.
"""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError, check_number
from ntrm.core.labels import WHITE
from ntrm.core.mpp import PLAUSIBLE_MPP, Resolution
from ntrm.data.image_files import BROKEN

Pixels = NDArray[np.uint8]

MAX_SIDE = 2**24
"""Pixels along one side beyond which a header is damaged: a slide of 76 mm has 1.5 million at 0.05 µm/px."""

MAX_READ_PIXELS = 2**27
"""Most pixels asked for at once; more would not fit beside a network."""

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|b'[^']*'")


@dataclass(frozen=True)
class SlideLevel:
    """One level of a pyramid."""

    width: int
    height: int
    downsample: float
    tile: tuple[int, int] | None = None
    """Width and height of the pieces in which the file holds it, where known: reading less costs as much."""

    def __post_init__(self) -> None:
        check_number("width of a level", self.width, 1, MAX_SIDE, whole=True)
        check_number("height of a level", self.height, 1, MAX_SIDE, whole=True)
        check_number("downsample of a level", self.downsample, 0.5, MAX_SIDE)


@dataclass(frozen=True)
class SlideInfo:
    """What is known of a slide; numbers and fixed words only."""

    reader: str
    """``openslide``, ``openslide+tifffile``, ``tifffile`` or ``pillow``."""
    width: int
    height: int
    resolution: Resolution | None
    """µm/px of level 0; None where the file does not tell, or nothing that a microscope could have."""
    levels: tuple[SlideLevel, ...]
    bounds: tuple[int, int, int, int] | None
    """The scanned part (x, y, width, height) in level-0 pixels, where a file has one."""
    vendor: str
    stated_mpp: tuple[float, float] | None = None
    """What the file says of µm/px even if it cannot be believed, for the message that refuses it."""

    def __post_init__(self) -> None:
        if not self.levels or (self.levels[0].width, self.levels[0].height) != (self.width, self.height):
            raise DataError("a slide without its full resolution", got=f"{len(self.levels)} levels")
        if self.bounds is not None:
            x, y, width, height = self.bounds
            inside = min(x, y) >= 0 and x + width <= self.width and y + height <= self.height
            if not inside or min(width, height) < 1:
                raise DataError(
                    "the scanned part lies outside the slide",
                    got=self.bounds,
                    expected=f"a part of {self.width} × {self.height} pixels",
                )

    @property
    def area(self) -> tuple[int, int, int, int]:
        """The scanned part, or the whole slide."""
        return self.bounds or (0, 0, self.width, self.height)

    def scale(self, level: int) -> tuple[float, float]:
        """Level-0 pixels per pixel of ``level`` along x and y.

        A level's size is rounded, so that the ratio of sizes is slightly off; a whole ratio that explains the size is
        the true one.
        """
        this = self.levels[level]
        whole = round(this.downsample)
        if _explains(whole, self.width, this.width) and _explains(whole, self.height, this.height):
            return float(whole), float(whole)
        return self.width / this.width, self.height / this.height

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "reader": self.reader,
            "vendor": self.vendor,
            "width": self.width,
            "height": self.height,
            "mpp": None if self.resolution is None else [self.resolution.x, self.resolution.y],
            "bounds": None if self.bounds is None else list(self.bounds),
            "levels": [{"width": one.width, "height": one.height, "downsample": one.downsample} for one in self.levels],
        }


def _explains(whole: int, full: int, size: int) -> bool:
    return whole >= 1 and size in {full // whole, -(-full // whole)}


class SlideReader(Protocol):
    """A slide that is open."""

    info: SlideInfo

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """(height, width, 3) pixels of ``level`` whose top left is the level-0 pixel (x, y); white outside."""
        ...

    def close(self) -> None:
        """Give the file back; closing twice does no harm."""
        ...


def damaged(found: str, hint: str = "") -> DataError:
    """Error for a file that cannot be read."""
    return DataError(
        "cannot read the slide",
        got=found,
        expected="a sound slide that OpenSlide reads, or an 8-bit RGB TIFF, PNG or JPEG",
        hint=hint or "copy the file again from the scanner, or convert it in QuPath to OME-TIFF",
    )


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Turn whatever a decoder raises into our own error, without what it may quote from the file or its name."""
    try:
        yield
    except PermissionError as error:
        raise damaged("no permission to read it", "change the file's permissions") from error
    except FileNotFoundError as error:
        raise damaged("there is no such file", "check the path; was the drive taken away?") from error
    except MemoryError as error:
        raise damaged("more memory wanted than there is", "write it again as a tiled TIFF of 8-bit RGB") from error
    except BROKEN as error:
        raise damaged(in_short(error, path)) from error


@contextmanager
def opening(path: Path) -> Iterator[None]:
    """``guarded``, and without what libraries warn or log of a header, which may quote it.

    Warnings are silenced for the whole process meanwhile, so that this is for opening, not for reading in threads.
    """
    log = logging.getLogger("tifffile")
    log.addFilter(_mute)
    try:
        with guarded(path), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.removeFilter(_mute)


def _mute(_record: logging.LogRecord) -> bool:
    return False


def in_short(error: Exception, path: Path) -> str:
    """What an error says, on one line, without the file's name and anything quoted, which may be from the header.

    >>> in_short(ValueError("/scans/Jane Doe.svs: cannot parse 'Jane Doe' as a date"), Path("/scans/Jane Doe.svs"))
    'ValueError: …: cannot parse … as a date'
    >>> in_short(ValueError("invalid in.tif"), Path("in.tif"))
    'ValueError: invalid …'
    """
    kind = type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{kind}: {error.strerror}"
    text = str(error)
    for spelling in (str(path.absolute()), str(path), path.name, path.stem):
        # Where no letter adjoins it: "a" stands in most words. Alone, a single character is no name.
        if len(spelling) > 1:
            text = re.sub(rf"(?<![^\W\d_]){re.escape(spelling)}(?![^\W\d_])", "…", text)
    lines = _QUOTED.sub("…", text).splitlines()
    # A path in another spelling may hold blanks: nothing behind its first stroke is safe.
    line = lines[0].split("/", 1)[0] if lines else ""
    return f"{kind}: {line[:160]}" if line else kind


def check_request(info: SlideInfo, width: int, height: int, level: int) -> None:
    """Refuse what no reader can give."""
    check_number("level", level, 0, len(info.levels) - 1, whole=True)
    check_number("width of a region", width, 1, MAX_SIDE, whole=True)
    check_number("height of a region", height, 1, MAX_SIDE, whole=True)
    check_number("number of pixels of a region", width * height, 1, MAX_READ_PIXELS, whole=True)


def on_glass(
    size: tuple[int, int],
    left: int,
    top: int,
    width: int,
    height: int,
    read: Callable[[int, int, int, int], Pixels],
) -> Pixels:
    """A rectangle of a level of ``size`` (width, height), read where there is something and white elsewhere.

    All numbers are pixels of the level. ``read`` takes left, top, width, height of a part that lies inside.
    """
    right, bottom = min(left + width, size[0]), min(top + height, size[1])
    first_column, first_row = max(left, 0), max(top, 0)
    if (first_column, first_row, right, bottom) == (left, top, left + width, top + height):
        return read(left, top, width, height)
    out = np.full((height, width, 3), WHITE, dtype=np.uint8)
    if right > first_column and bottom > first_row:
        part = read(first_column, first_row, right - first_column, bottom - first_row)
        out[first_row - top : bottom - top, first_column - left : right - left] = part
    return out


# µm per pixel from what a file says of itself: believed where a microscope could have it, never guessed.


COARSEST_MPP = 20.0
"""Above this a resolution tag is a printer's (72 dpi says 353 µm/px), not a microscope's."""
MAX_ANISOTROPY = 4.0
"""Pixels more oblong than this come from damaged tags; line scanners stay far below."""

Stated = tuple[float, float] | None

_MICROMETRES = {
    **dict.fromkeys(("", "µm", "μm", "um", "micron", "&#181;m", "&#xB5;m", "&#956;m"), 1.0),
    "nm": 1e-3,
    "mm": 1e3,
    "cm": 1e4,
    "m": 1e6,
}


def believed(stated: Stated) -> Resolution | None:
    """A resolution, unless the numbers cannot be a microscope's (72 dpi says 353 µm/px).

    >>> believed((0.25, 0.5)), believed((352.8, 352.8))
    (Resolution(x=0.25, y=0.5), None)
    """
    if stated is None or not all(PLAUSIBLE_MPP[0] <= value <= COARSEST_MPP for value in stated):
        return None
    return Resolution(*stated) if max(stated) <= MAX_ANISOTROPY * min(stated) else None


def numbers(x: object, y: object) -> Stated:
    """Two positive numbers from numbers or texts, or None."""
    try:
        values = float(str(x)), float(str(y))
    except ValueError:
        return None
    return values if all(math.isfinite(value) and value > 0 for value in values) else None


def from_ome(xml: str) -> Stated:
    """PhysicalSizeX and Y of the first image of an OME-XML document.

    >>> from_ome('<Pixels PhysicalSizeX="500" PhysicalSizeXUnit="nm" PhysicalSizeY="0.5"/>')
    (0.5, 0.5)
    """
    # Without a parser: the document is large in some files and hostile in others.
    pixels = re.search(r"<(?:\w+:)?Pixels\b[^>]*", xml)
    found = []
    for axis in "XY":
        value = re.search(rf'\bPhysicalSize{axis}="([^"]*)"', pixels[0] if pixels else "")
        unit = re.search(rf'\bPhysicalSize{axis}Unit="([^"]*)"', pixels[0] if pixels else "")
        factor = _MICROMETRES.get(unit[1] if unit else "")
        size = numbers(value[1], 1) if value else None
        if factor is None or size is None:
            return None
        found.append(round(size[0] * factor, 9))
    return found[0], found[1]


def from_tags(tags: Any) -> Stated:
    """XResolution, YResolution and ResolutionUnit of a TIFF page; without a real unit they mean nothing."""
    micrometres = {2: 25_400, 3: 10_000}.get(int(tags.valueof("ResolutionUnit", 0)))
    ratios = [tags.valueof(f"{axis}Resolution", (0, 1)) for axis in "XY"]
    if micrometres is None or any(ratio[0] == 0 or ratio[1] == 0 for ratio in ratios):
        return None
    return numbers(*(float(micrometres / Fraction(*ratio)) for ratio in ratios))


def from_aperio(description: str) -> Stated:
    """The MPP entry of an Aperio description."""
    found = re.search(r"\|\s*MPP\s*=\s*([0-9.]+)", description)
    return numbers(found[1], found[1]) if found and description.startswith("Aperio") else None


def from_dots(dots: object, unit_is_real: bool) -> Stated:
    """Dots per inch as Pillow tells them for PNG and JPEG files."""
    if not unit_is_real or not isinstance(dots, tuple) or len(dots) != 2 or min(dots) <= 0:
        return None
    return numbers(*(25_400 / float(value) for value in dots))
