"""Sections of the phantom's version 1 whose tissues look different from one section to the next.

Version 1 paints every tissue by one table (``ntrm.phantom.texture.table``), the same for all sections. A *look* of
version 2 draws rows of that table for one section; ``painted`` puts them in place while a section is rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from ntrm.phantom.texture.looks import darken, loosen
from ntrm.phantom.texture.table import TEXTURES, Textures

Look = Callable[[int, Textures], Textures]
"""Rows of the texture table for the section of a seed."""

LOOKS: Mapping[str, Look] = {"loose": loosen, "dark": darken}
"""By the word that names them in a kind of sections."""


@contextmanager
def painted(looks: tuple[str, ...], seed: int) -> Iterator[None]:
    """Sections rendered within have the looks of ``seed``."""
    rows: Textures = {}
    for name in looks:
        rows |= LOOKS[name](seed, TEXTURES)
    with patch.dict(TEXTURES, rows):
        yield
