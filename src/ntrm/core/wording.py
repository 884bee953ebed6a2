"""Numbers and phrases as people read them, the same on every page, in every table and sentence."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

MINUS = "−"
OUTSIDE = "outside"  # What tissue meets at its surface and at a margin, as graphs and tables call it
PURPOSE = "for research, not for diagnosis"
NO_MODEL = "annotated from nothing: no model"  # What stands where a model would be named
NO_TUMOUR, NOTHING_INVADES = "no tumour in the piece", "no invasive tumour in the piece"
"""Why a piece has no clearance or depth where nothing is left open by that."""
SHORT = 60  # Characters of a value that short_repr shows as it is


def signed(value: float, digits: int) -> str:
    """A number with its sign, also where it rounds to 0: the sign shows on which side of 0 it lies.

    >>> signed(1.25, 2), signed(-0.5, 1), signed(-0.001, 2)
    ('+1.25', '−0.5', '−0.00')
    """
    return with_minus(f"{value:+.{digits}f}")


def with_minus(number: str) -> str:
    """A number that was made a text, with a minus instead of a hyphen."""
    return number.replace("-", MINUS)


def counted(number: int, thing: str) -> str:
    """A number with its noun.

    >>> counted(1, "section"), counted(1200, "section")
    ('1 section', '1,200 sections')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def area_text(mm2: float) -> str:
    """Area in mm², without the unit.

    >>> area_text(2.057), area_text(0.0004), area_text(0)
    ('2.06', '<0.01', '0.00')
    """
    return "<0.01" if 0 < mm2 < 0.005 else f"{mm2:.2f}"


def whole_degrees(value: float) -> str:
    """A direction, from 0° to 359°.

    >>> whole_degrees(242.2), whole_degrees(359.8)
    ('242°', '0°')
    """
    return f"{round(value) % 360}°"


def short_repr(result: Any) -> str:
    """``__repr__`` of results: of arrays the type and shape, of other long values how many they hold."""
    names = getattr(result, "_fields", None) or [field.name for field in fields(result) if field.repr]
    shown = ", ".join(f"{name}={_short(getattr(result, name))}" for name in names)
    return f"{type(result).__name__}({shown})"


def _short(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} {tuple(value.shape)}"
    if (isinstance(value, tuple | list | dict)) and len(value) > SHORT:
        return f"{type(value).__name__} of {len(value)}"  # whose text alone may take seconds to make
    text = repr(value)
    if len(text) <= SHORT or not hasattr(value, "__len__"):
        return text
    return f"{type(value).__name__} of {len(value)}"
