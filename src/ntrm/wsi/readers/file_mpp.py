"""µm per pixel from what a file says of itself: believed where a microscope could have it, never guessed."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

from ntrm.core.mpp import PLAUSIBLE_MPP, Resolution

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
