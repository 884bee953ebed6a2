"""Numbers as people read them, the same on every page, in every table and sentence."""

from __future__ import annotations

MINUS = "−"


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


def whole_degrees(value: float) -> str:
    """A direction, from 0° to 359°.

    >>> whole_degrees(242.2), whole_degrees(359.8)
    ('242°', '0°')
    """
    return f"{round(value) % 360}°"
