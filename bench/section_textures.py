"""Sections whose tissues look different from one section to the next: a loose dermis, epithelia of any darkness.

The phantom paints every tissue by one table (``ntrm.phantom.texture.table``), the same for all sections. Its dermis is
a dense felt, its epidermis pink with clear nuclei and always paler than BCC. Real skin varies, and at 6.7 µm/px has
pale fibres with glass between them and an even, dark epidermis. A *look* draws rows of that table for one section;
``painted`` puts them in place while the section is rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np

from ntrm.phantom.noise import generator
from ntrm.phantom.texture.table import TEXTURES, Texture

Textures = dict[str, Texture]
Look = Callable[[int], Textures]
"""Rows of the texture table for the section of a seed."""

MOST_NUCLEI = 17000.0
"""Per mm²; the phantom's lattice holds about 20,000."""


def loose(seed: int) -> Textures:
    """A dermis from the phantom's own to pale fibres with gaps of glass and dark, scattered nuclei."""
    chance = generator(seed, "loose dermis")
    amount = chance.uniform(0.3, 1.0)
    paler, darker, denser = 1 - 0.65 * amount, 1 + 0.5 * amount * chance.uniform(), np.exp(chance.uniform(-0.3, 0.8))
    gaps, grain = amount * chance.uniform(0.0, 1.0), amount * chance.uniform(0.0, 0.4)
    return {
        name: replace(
            TEXTURES[name],
            eosin=TEXTURES[name].eosin * paler * chance.uniform(0.85, 1.15),
            bundles=TEXTURES[name].bundles + gaps * chance.uniform(0.2, 0.8),
            fibrils=TEXTURES[name].fibrils + gaps,
            grain=TEXTURES[name].grain + grain,
            nuclei_per_mm2=TEXTURES[name].nuclei_per_mm2 * (denser if name != "INF" else 1.0),
            nucleus_haematoxylin=TEXTURES[name].nucleus_haematoxylin * darker,
        )
        for name in ("RET", "PAP", "INF")
    }


def dark(seed: int) -> Textures:
    """Epithelia from pale to dark and from speckled to even, each tissue by itself: darkness says nothing of cancer."""
    chance = generator(seed, "dark epithelium")
    changed = {}
    for name in ("EPI", "FOL", "BCC", "SCC", "IEC"):
        usual = TEXTURES[name]
        changed[name] = replace(
            usual,
            eosin=usual.eosin * chance.uniform(0.25, 1.25),
            haematoxylin=chance.uniform(0.05, 0.38),
            grain=usual.grain * chance.uniform(0.3, 1.2),
            palisade=min(1.3, usual.palisade * chance.uniform(0.6, 1.6)),
            nuclei_per_mm2=min(MOST_NUCLEI, usual.nuclei_per_mm2 * chance.uniform(0.8, 1.6)),
            nucleus_haematoxylin=usual.nucleus_haematoxylin * chance.uniform(0.4, 1.4),
        )
    keratin = TEXTURES["KER"]
    changed["KER"] = replace(
        keratin, eosin=keratin.eosin * chance.uniform(0.4, 1.15), haematoxylin=chance.uniform(0.0, 0.2)
    )
    return changed


LOOKS: Mapping[str, Look] = {"loose": loose, "dark": dark}
"""By the word that names them in a kind of sections."""


@contextmanager
def painted(looks: tuple[str, ...], seed: int) -> Iterator[None]:
    """Sections rendered within have the looks of ``seed``."""
    rows: Textures = {}
    for name in looks:
        rows |= LOOKS[name](seed)
    with patch.dict(TEXTURES, rows):
        yield
