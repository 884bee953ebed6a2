"""µm per pixel, and the downsample factors that relate one resolution to another. Nothing here guesses."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real

from ntrm.core.errors import RefusedError, UsageError

TOLERANCE = 0.05  # Two resolutions within 5 % of each other count as the same

PLAUSIBLE_MPP = (0.05, 100.0)  # Outside this range a number is a mistake (nm, mm, dots per inch), not a scan of tissue

BASE_MPP = 0.67  # µm/px of the skin dataset's originals; its folders 1x … 10x are downsample factors of this

LEVELS = ("1x", "2x", "5x", "10x")


@dataclass(frozen=True, order=True)
class Resolution:
    """µm per pixel along x and y.

    >>> Resolution(0.5, 0.5).downsampled(4)
    Resolution(x=2.0, y=2.0)
    >>> Resolution(0.5, 0.5).same_as(Resolution(0.51, 0.5))
    True
    """

    x: float
    y: float

    def __post_init__(self) -> None:
        low, high = PLAUSIBLE_MPP
        for axis, value in (("x", self.x), ("y", self.y)):
            if not low <= value <= high:  # NaN fails, too
                raise RefusedError(
                    f"implausible µm per pixel along {axis}",
                    got=value,
                    expected=f"a number between {low:g} and {high:g} µm/px",
                    hint="look the scan resolution up in the scanner's metadata: in µm, not in nm, mm or dots per inch",
                )
            # 1 and 1.0 must read the same in every output.
            object.__setattr__(self, axis, float(value))

    @classmethod
    def square(cls, mpp: float) -> Resolution:
        """Same µm/px along both axes."""
        return cls(float(mpp), float(mpp))

    @property
    def mean(self) -> float:
        """Geometric mean of x and y: the side of a square pixel of the same area."""
        return math.sqrt(self.x * self.y)

    @property
    def pixel_area_um2(self) -> float:
        """Area of one pixel in µm²."""
        return self.x * self.y

    def downsampled(self, factor: float) -> Resolution:
        """Resolution after shrinking the image by ``factor``."""
        return Resolution(self.x * factor, self.y * factor)

    def same_as(self, other: Resolution) -> bool:
        """Whether both axes agree within ``TOLERANCE`` (relative, symmetric)."""
        return all(abs(a - b) <= TOLERANCE * max(a, b) for a, b in ((self.x, other.x), (self.y, other.y)))

    def __str__(self) -> str:
        same = math.isclose(self.x, self.y, rel_tol=1e-9)
        return f"{self.x:g} µm/px" if same else f"{self.x:g} × {self.y:g} µm/px"


def stated_resolution(mpp: object) -> Resolution:
    """What a user gave as µm/px: a number, for both axes, or a resolution.

    >>> stated_resolution(0.5)
    Resolution(x=0.5, y=0.5)
    """
    if isinstance(mpp, Resolution):
        return mpp
    if getattr(mpp, "shape", None) == ():
        mpp = mpp.item()  # type: ignore[attr-defined]  # a number as numpy.load and torch have it
    if isinstance(mpp, bool) or not isinstance(mpp, Real):
        expected = "a number, or ntrm.core.mpp.Resolution(x, y) for pixels that are not square"
        raise UsageError("impossible µm per pixel", got=repr(mpp), expected=expected)
    return Resolution.square(float(mpp))


def level_factor(level: str) -> int:
    """Downsample factor behind a level's name.

    >>> level_factor("10x")
    10
    """
    match = re.fullmatch(r"([1-9][0-9]{0,2})x", level)
    if match is None:
        expected = "a downsample factor from 1x to 999x, such as 2x, 5x or 10x"
        raise UsageError("unknown resolution level", got=repr(level), expected=expected)
    return int(match.group(1))


def level_resolution(level: str) -> Resolution:
    """µm/px of a level of the skin dataset.

    >>> level_resolution("10x")
    Resolution(x=6.7, y=6.7)
    """
    return Resolution.square(round(BASE_MPP * level_factor(level), 6))


def parse_levels(text: str) -> tuple[str, ...]:
    """Levels from a comma-separated list, coarsest first, without repeats.

    >>> parse_levels("2x,10x,2x")
    ('10x', '2x')
    """
    levels = {level.strip() for level in text.split(",") if level.strip()}
    if not levels:
        raise UsageError("no resolution level given", got=repr(text), expected="for example 10x or 10x,5x,2x")
    return tuple(sorted(levels, key=level_factor, reverse=True))
