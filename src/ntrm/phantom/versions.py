"""The versions of the phantom: what each draws its sections from. A version never changes once it is released."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ntrm.core.errors import choices_error
from ntrm.phantom.anatomy.adnexa import AdnexaDetails, AdnexaParameters
from ntrm.phantom.anatomy.dermis import DermisParameters
from ntrm.phantom.anatomy.epithelium import EpidermisParameters, SurfaceParameters
from ntrm.phantom.anatomy.layers import SkinParameters
from ntrm.phantom.anatomy.specimen import DamageParameters, PictureParameters, SpecimenParameters
from ntrm.phantom.anatomy.tumours import Basaloid, InSitu, Invasive
from ntrm.phantom.texture.looks import LookParameters

DEFAULT_VERSION = "1"  # The version of the bundled model and of all tables so far


@dataclass(frozen=True)
class VarietyParameters:
    """How sections of version 2 differ from each other beyond version 1: ranges and chances."""

    epidermis: EpidermisParameters = field(default_factory=EpidermisParameters)
    surface: SurfaceParameters = field(default_factory=SurfaceParameters)
    dermis: DermisParameters = field(default_factory=DermisParameters)
    adnexa: AdnexaDetails = field(default_factory=AdnexaDetails)


@dataclass(frozen=True)
class Anatomy:
    """Ranges from which a section's anatomy is drawn."""

    skin: SkinParameters = field(default_factory=SkinParameters)
    specimen: SpecimenParameters = field(default_factory=SpecimenParameters)
    damage: DamageParameters = field(default_factory=DamageParameters)
    picture: PictureParameters = field(default_factory=PictureParameters)
    adnexa: AdnexaParameters = field(default_factory=AdnexaParameters)
    basaloid: Basaloid = field(default_factory=Basaloid)
    in_situ: InSitu = field(default_factory=InSitu)
    invasive: Invasive = field(default_factory=Invasive)
    variety: VarietyParameters | None = None  # None draws what version 1 draws


@dataclass(frozen=True)
class Version:
    """One version of the phantom."""

    with_cancer: Anatomy
    normal: Anatomy
    looks: LookParameters | None = None
    """How tissues look different from one section to the next; None gives them the same table everywhere."""


_NESTS = Basaloid(
    nodule_half_width=(320.0, 1180.0),
    nodule_half_height=(210.0, 740.0),
    nest_spacing=(130.0, 600.0),
    nest_radius=(0.5, 0.75),
    rounding=0.06,
    retraction=(0.0, 18.0),
)
"""Rounder nests than those of version 1, parted from the stroma more often."""
_NORMAL_EPIDERMIS = EpidermisParameters(
    acanthotic=0.45, irregular=0.55, cut_ridges=0.7, cut_ridges_per_mm=(0.5, 4.0), tangential=0.45, cyst=0.2
)
_SECOND = Anatomy(skin=SkinParameters(papillary=(130.0, 350.0)), variety=VarietyParameters())

VERSIONS = {
    "1": Version(Anatomy(), Anatomy()),
    "2": Version(
        with_cancer=replace(_SECOND, basaloid=_NESTS, in_situ=InSitu(thickness=(140.0, 370.0))),
        normal=replace(_SECOND, variety=VarietyParameters(epidermis=_NORMAL_EPIDERMIS)),
        looks=LookParameters(),
    ),
}


def phantom_version(name: str) -> Version:
    """A version by its name."""
    if name not in VERSIONS:
        raise choices_error("unknown version of the phantom", name, VERSIONS)
    return VERSIONS[name]
