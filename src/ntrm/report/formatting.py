"""Numbers as people read them, the same in every picture and page."""

from __future__ import annotations

NONE = "–"


def area_text(mm2: float) -> str:
    """Area in mm², without the unit.

    >>> area_text(2.057), area_text(0.0004), area_text(0)
    ('2.06', '<0.01', '0.00')
    """
    return "<0.01" if 0 < mm2 < 0.005 else f"{mm2:.2f}"


def share_text(share: float | None) -> str:
    """A share from 0 to 1.

    >>> share_text(0.4803), share_text(0.0001), share_text(None)
    ('48.0%', '<0.1%', '–')
    """
    if share is None:
        return NONE
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def value_text(value: float | None, unit: str) -> str:
    """A measurement with its unit.

    >>> value_text(0.826, "mm"), value_text(242.2, "degrees"), value_text(359.8, "degrees"), value_text(None, "mm")
    ('0.83 mm', '242°', '0°', '–')
    """
    if value is None:
        return NONE
    return f"{round(value) % 360}°" if unit == "degrees" else f"{value:.2f} {unit}"


def confidence_text(value: float | None) -> str:
    """A confidence from 0 to 1; never rounded up to certainty.

    >>> confidence_text(0.9813), confidence_text(0.9999), confidence_text(None)
    ('0.98', '>0.99', '–')
    """
    if value is None:
        return NONE
    return ">0.99" if 0.995 <= value < 1 else f"{value:.2f}"


def count_text(number: int, thing: str) -> str:
    """How many there are of a thing.

    >>> count_text(1, "region"), count_text(1200, "region")
    ('1 region', '1,200 regions')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
