"""Pages from ``templates/``: text is escaped, styles and pictures are inside, nothing is fetched."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntrm.core.io import write_text
from ntrm.core.labels import RGB
from ntrm.core.wording import MINUS, area_text, counted, whole_degrees
from ntrm.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

NONE = "–"
_NUMBER = re.compile(rf"[+{MINUS}-]?[\d.,]*(e[+-]?\d+)?\s*%?|{NONE}").fullmatch
NOTICE = "Research use only. Not a medical device; not for diagnosis."

Column = tuple[str, str]  # Name of a column and its class in the style: n for numbers, or none


def share_text(fraction: float | None) -> str:
    """A fraction from 0 to 1.

    >>> share_text(0.4803), share_text(0.0001), share_text(None)
    ('48.0%', '<0.1%', '–')
    """
    if fraction is None:
        return NONE
    return "<0.1%" if 0 < fraction < 0.0005 else f"{fraction:.1%}"


def value_text(value: float | None, unit: str) -> str:
    """A measurement with its unit.

    >>> value_text(0.826, "mm"), value_text(242.2, "degrees"), value_text(359.8, "degrees"), value_text(None, "mm")
    ('0.83 mm', '242°', '0°', '–')
    """
    if value is None:
        return NONE
    return whole_degrees(value) if unit == "degrees" else f"{value:.2f} {unit}"


def confidence_text(value: float | None) -> str:
    """A confidence from 0 to 1; never rounded up to certainty.

    >>> confidence_text(0.9813), confidence_text(0.9999), confidence_text(None)
    ('0.98', '>0.99', '–')
    """
    if value is None:
        return NONE
    return ">0.99" if 0.995 <= value < 1 else f"{value:.2f}"


def render(template: str, **content: object) -> str:
    """The text of a template filled with its content; whatever is missing in the content is an error."""
    return _environment().get_template(template).render(**content)


def write_page(path: Path, template: str, **content: object) -> None:
    """Write one HTML file that needs nothing beside it."""
    write_text(path, render(template, **content) + "\n")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    blocks: Any = {"trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader("ntrm.report"), autoescape=True, undefined=StrictUndefined, **blocks)
    environment.globals.update(notice=NOTICE, version=__version__)
    environment.filters.update(
        area=area_text,
        share=share_text,
        value=value_text,
        confidence=confidence_text,
        counted=counted,
        fixed=lambda number, digits=1: f"{number:.{digits}f}",
        embedded=lambda path: data_uri(path.read_bytes(), "png"),
    )
    return environment


def data_uri(content: bytes, kind: str) -> str:
    """A picture as part of the page.

    >>> data_uri(b"GIF", "gif")
    'data:image/gif;base64,R0lG'
    """
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def css_colours(palette: Sequence[RGB], letter: str) -> str:
    """Colours as properties of the style: ``--c0`` and so on.

    >>> css_colours([(255, 0, 16)], "c")
    '--c0:#ff0010;'
    """
    return "".join(f"--{letter}{k}:#{red:02x}{green:02x}{blue:02x};" for k, (red, green, blue) in enumerate(palette))


def columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Column]:
    """The header with its classes: a column that holds numbers alone stands to the right.

    >>> columns(["name", "share", "gain"], [["a", "5%", "−0.2"], ["b", "–", "1,200"]])
    [('name', ''), ('share', 'n'), ('gain', 'n')]
    """
    body = list(rows)
    return [(name, "n" if body and all(_NUMBER(str(row[k])) for row in body) else "") for k, name in enumerate(header)]
