"""A measurement or the reason why there is none. For research, not for diagnosis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ntrm.core.errors import UsageError

PURPOSE = "for research, not for diagnosis"

UNITS = ("mm", "degrees")

FRAGMENTED = "fragmented: the cut margin cannot be told"
SCAN_EDGE = "the piece is cut by the scan's edge"

Line = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Measured:
    """One number with its unit and the line it was taken along, or the reason why it cannot be assessed."""

    name: str
    value: float | None
    unit: str = "mm"
    reason: str = ""
    line: Line | None = None
    """Two points as (row, column) in pixels of the mask."""

    def __post_init__(self) -> None:
        right = self.unit in UNITS and (self.value is None) == bool(self.reason)
        if not right or (self.value is not None and not (math.isfinite(self.value) and self.value >= 0)):
            raise UsageError(
                f"impossible measurement of {self.name}",
                got=f"{self.value} {self.unit}, reason {self.reason!r}",
                expected=f"a number from 0 in one of {', '.join(UNITS)}, or None and the reason",
            )

    @property
    def value_mm(self) -> float | None:
        """The value, if it is a length."""
        return self.value if self.unit == "mm" else None

    def shifted(self, row: float, column: float) -> Measured:
        """The same in the pixels of a larger picture, of which the piece begins at (row, column)."""
        if self.line is None:
            return self
        (r0, c0), (r1, c1) = self.line
        moved = ((r0 + row, c0 + column), (r1 + row, c1 + column))
        return Measured(self.name, self.value, self.unit, self.reason, moved)

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}: not assessed ({self.reason})"
        return f"{self.name}: {self.value:.2f} mm" if self.unit == "mm" else f"{self.name}: {self.value:.0f}°"

    def as_dict(self) -> dict[str, Any]:
        """For JSON; the unit is part of the document."""
        line = None if self.line is None else [list(point) for point in self.line]
        return {"value": self.value, "unit": self.unit, "reason": self.reason, "line_px": line, "purpose": PURPOSE}


def not_assessed(name: str, reason: str, unit: str = "mm") -> Measured:
    """The reason in place of a number."""
    return Measured(name, None, unit, reason)
