"""How the same tissue looks different from one section to the next, and how fine tissues look.

Version 1 paints every section by one table. Real skin varies: at 6.7 µm/px its dermis may be pale fibres with glass
between them, and its epidermis as dark and even as a carcinoma. A look draws rows of the table for one section, so
that darkness alone says nothing of cancer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ntrm.phantom.noise import Field, generator
from ntrm.phantom.texture.table import TEXTURES, Texture, Textures

Span = tuple[float, float]

EPITHELIA = TEXTURES | {
    "EPI": replace(TEXTURES["EPI"], rim=0.6),
    "FOL": replace(TEXTURES["FOL"], rim=0.6),
    "BCC": replace(TEXTURES["BCC"], rim=1.2, palisade=1.2, cleft=1.6),
    "SCC": replace(TEXTURES["SCC"], rim=0.2),
    "IEC": replace(TEXTURES["IEC"], rim=0.1),
}
"""Version 2: the outer row of a nest is darker than its middle, and the stroma parts from it."""

FINE_TEXTURES = {
    "sebaceous": Texture(
        eosin=0.17, haematoxylin=0.02, mottle=0.12, grain=0.08, foam=1.0,
        nuclei_per_mm2=14000, nucleus_radius_um=2.1, nucleus_elongation=1.15, nucleus_haematoxylin=0.45,
    ),
    "eccrine": replace(TEXTURES["GLD"], acini=0.0, coil=1.0),
    "duct": Texture(
        eosin=0.24, haematoxylin=0.14, mottle=0.10, grain=0.15,
        nuclei_per_mm2=12000, nucleus_radius_um=2.4, nucleus_elongation=1.2, nucleus_haematoxylin=0.40,
    ),
    "muscle": Texture(
        eosin=0.27, haematoxylin=0.02, mottle=0.10, grain=0.10, fibrils=0.25,
        nuclei_per_mm2=2200, nucleus_radius_um=2.2, nucleus_elongation=4.0, nucleus_haematoxylin=0.40,
    ),
    "nerve": Texture(
        eosin=0.12, haematoxylin=0.04, mottle=0.08, grain=0.12, fibrils=0.45,
        nuclei_per_mm2=2600, nucleus_radius_um=2.0, nucleus_elongation=3.5, nucleus_haematoxylin=0.45,
    ),
    "vessel wall": Texture(
        eosin=0.22, haematoxylin=0.05, mottle=0.08, grain=0.12,
        nuclei_per_mm2=6500, nucleus_radius_um=2.2, nucleus_elongation=2.5, nucleus_haematoxylin=0.50,
    ),
    "red cells": Texture(eosin=0.46, mottle=0.08, grain=0.30),
    "lumen": Texture(),
    "elastosis": Texture(
        eosin=0.06, haematoxylin=0.10, mottle=0.15, grain=0.30, bundles=0.10, fibrils=0.20,
        nuclei_per_mm2=500, nucleus_radius_um=2.1, nucleus_spread=0.2, nucleus_elongation=2.5,
        nucleus_haematoxylin=0.50,
    ),
    "oedema": Texture(
        eosin=0.055, haematoxylin=0.005, mottle=0.20, grain=0.35, fibrils=1.5,
        nuclei_per_mm2=900, nucleus_radius_um=2.2, nucleus_spread=0.2, nucleus_elongation=1.8,
        nucleus_haematoxylin=0.50,
    ),
    "scar": Texture(
        eosin=0.21, haematoxylin=0.01, mottle=0.06, grain=0.06, bundles=0.05, parallels=0.45,
        nuclei_per_mm2=1500, nucleus_radius_um=2.0, nucleus_spread=0.15, nucleus_elongation=4.5,
        nucleus_haematoxylin=0.55,
    ),
    "crust": Texture(
        eosin=0.34, haematoxylin=0.06, mottle=0.25, grain=0.30, bundles=0.35,
        nuclei_per_mm2=3800, nucleus_radius_um=1.8, nucleus_spread=0.25, nucleus_elongation=1.3,
        nucleus_haematoxylin=0.60,
    ),
    "basket weave": replace(TEXTURES["KER"], lamellae=0.0, weave=1.0),
}  # fmt: skip


def loosen(seed: int, tissues: Textures) -> Textures:
    """A dermis from the phantom's own to pale fibres with gaps of glass and dark, scattered nuclei."""
    chance = generator(seed, "loose dermis")
    amount = chance.uniform(0.3, 1.0)
    paler, darker, denser = 1 - 0.65 * amount, 1 + 0.5 * amount * chance.uniform(), np.exp(chance.uniform(-0.3, 0.8))
    gaps, grain = amount * chance.uniform(0.0, 1.0), amount * chance.uniform(0.0, 0.4)
    return {
        name: replace(
            tissues[name],
            eosin=tissues[name].eosin * paler * chance.uniform(0.85, 1.15),
            bundles=tissues[name].bundles + gaps * chance.uniform(0.2, 0.8),
            fibrils=tissues[name].fibrils + gaps,
            grain=tissues[name].grain + grain,
            nuclei_per_mm2=tissues[name].nuclei_per_mm2 * (denser if name != "INF" else 1.0),
            nucleus_haematoxylin=tissues[name].nucleus_haematoxylin * darker,
        )
        for name in ("RET", "PAP", "INF")
    }


def darken(seed: int, tissues: Textures) -> Textures:
    """Epithelia from pale to dark and from speckled to even, each tissue by itself: darkness says nothing of cancer."""
    chance = generator(seed, "dark epithelium")
    changed = {}
    for name in ("EPI", "FOL", "BCC", "SCC", "IEC"):
        usual = tissues[name]
        changed[name] = replace(
            usual,
            eosin=usual.eosin * chance.uniform(0.25, 1.25),
            haematoxylin=chance.uniform(0.05, 0.38),
            grain=usual.grain * chance.uniform(0.3, 1.2),
            palisade=min(1.3, usual.palisade * chance.uniform(0.6, 1.6)),
            # The lattice of nuclei holds about 20,000.
            nuclei_per_mm2=min(17000.0, usual.nuclei_per_mm2 * chance.uniform(0.8, 1.6)),
            nucleus_haematoxylin=usual.nucleus_haematoxylin * chance.uniform(0.4, 1.4),
        )
    keratin = tissues["KER"]
    changed["KER"] = replace(
        keratin, eosin=keratin.eosin * chance.uniform(0.4, 1.15), haematoxylin=chance.uniform(0.0, 0.2)
    )
    return changed


@dataclass(frozen=True)
class LookParameters:
    """How often sections depart from the table, and how far."""

    loose: float = 0.5  # Fraction of sections with a loose dermis
    dark: float = 0.5  # Fraction of sections with epithelia of any darkness
    pigmented: float = 0.35  # Fraction of sections with melanin
    melanin: Span = (0.08, 0.45)  # Optical density in the basal layer
    melanophages: Span = (0.0, 0.25)  # Fraction of sites in the papillary dermis
    fine_period: Span = (9.0, 16.0)
    """From strand to strand of the keratin, in µm, for two systems of strands that cross."""
    coarse_period: Span = (20.0, 40.0)
    strand: Span = (0.14, 0.42)  # Part of a period that is strand
    outer_strand: Span = (2.0, 6.0)  # Thickness of the outermost strand, in µm
    between: Span = (0.0, 0.22)  # How much of a strand's colour is left between strands


@dataclass(frozen=True)
class Weave:
    """How the keratin of one section is woven: two systems of strands along its borders that cross."""

    fine_period_um: float
    coarse_period_um: float
    strand: float
    outer_um: float
    between: float

    @classmethod
    def draw(cls, seed: int, kind: LookParameters) -> Weave:
        """From tight to loose."""
        chance = generator(seed, "weave")
        spans = (kind.fine_period, kind.coarse_period, kind.strand, kind.outer_strand, kind.between)
        return cls(*(float(chance.uniform(*span)) for span in spans))

    def presence(self, depth_um: Field, bend: Field, grain: Field, mpp: float) -> Field:
        """How much of the dye is kept at points so far inside keratin, 1 on a strand, given noises of unit height."""
        fine = self._on_strand(depth_um + 16.0 * bend + 2.0 * grain, self.fine_period_um, mpp)
        coarse = self._on_strand(depth_um - 30.0 * bend + 4.0 * grain, self.coarse_period_um, mpp)
        outer = np.clip((np.float32(self.outer_um) - depth_um) / max(mpp, 2.0) + 0.5, 0.0, 1.0)
        strands = np.maximum(np.maximum(fine, 0.8 * coarse), outer)
        return np.asarray(self.between + (1.0 - self.between) * strands, dtype=np.float32)

    def _on_strand(self, bent_um: Field, period_um: float, mpp: float) -> Field:
        """Fraction of a pixel that lies on a strand."""
        thickness, width = self.strand * period_um, max(mpp, 1.0)
        from_middle = np.abs((bent_um / np.float32(period_um)) % 1.0 - 0.5) * np.float32(period_um)
        covered = np.clip((0.5 * thickness - from_middle) / width + 0.5, 0.0, min(1.0, thickness / width))
        return np.asarray(covered, dtype=np.float32)


@dataclass(frozen=True)
class Look:
    """How the tissues of one section look."""

    tissues: Textures
    fine: Textures
    weave: Weave

    @classmethod
    def draw(cls, seed: int, kind: LookParameters) -> Look:
        """The look of the section of ``seed``."""
        chance, tissues, fine = generator(seed, "look"), EPITHELIA, FINE_TEXTURES
        loose, dark, pigmented = (chance.random() < each for each in (kind.loose, kind.dark, kind.pigmented))
        if loose:
            tissues = tissues | loosen(seed, tissues)
        if dark:
            tissues = tissues | darken(seed, tissues)
            woven = replace(fine["basket weave"], eosin=tissues["KER"].eosin, haematoxylin=tissues["KER"].haematoxylin)
            fine = fine | {"basket weave": woven}
        if pigmented:
            # Most in the epidermis, and macrophages below.
            chance = generator(seed, "melanin")
            amount, phages = float(chance.uniform(*kind.melanin)), float(chance.uniform(*kind.melanophages))
            for name, share in {"EPI": 1.0, "IEC": 0.5, "FOL": 0.4, "BCC": 0.3, "SCC": 0.1}.items():
                tissues = tissues | {name: replace(tissues[name], melanin=amount * share)}
            for name, share in {"PAP": 1.0, "INF": 0.3}.items():
                tissues = tissues | {name: replace(tissues[name], melanophages=phages * share)}
        return cls(tissues, fine, Weave.draw(seed, kind))
