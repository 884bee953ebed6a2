"""Draw everything about one section before any pixel is painted: the specimen, its skin, its tumour, its damage.

A new kind of section is a function in ``LESIONS`` and a row in ``SAMPLING`` (``specimen.py``). A new structure is a
``Structure`` among those that ``draw_variety``, ``draw_adnexa``, ``draw_damage`` or the function of a lesion returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ntrm.core.errors import choices_error
from ntrm.data.layouts import SKIN_SECTIONS
from ntrm.phantom.anatomy.adnexa import draw_adnexa
from ntrm.phantom.anatomy.bodies import Structure
from ntrm.phantom.anatomy.dermis import Dermis, draw_dermis, draw_vessels, flatten
from ntrm.phantom.anatomy.epithelium import Surface, draw_islands, draw_surface, vary_epidermis
from ntrm.phantom.anatomy.frame import Body, Outline
from ntrm.phantom.anatomy.layers import Span, Strata, Values, between, normal_skin, spread, stretches
from ntrm.phantom.anatomy.specimen import NORMAL, SAMPLING, Specimen, draw_damage, draw_specimen
from ntrm.phantom.anatomy.tumours import Lesions, add_in_situ, add_mass, draw_clusters, draw_companions, envelope
from ntrm.phantom.noise import derive, generator, profile
from ntrm.phantom.versions import DEFAULT_VERSION, Anatomy, VarietyParameters, phantom_version

WITH_IN_SITU = {"SCC": 8 / 21, "BCC": 4 / 24}
"""How often sections filed under an invasive cancer hold IEC as well, as counted in the real masks."""

REACH_UM = 650.0  # Flakes, loose bits and the ragged edge stay within this distance of the section's outline


@dataclass(frozen=True)
class Variety:
    """What was drawn for one section; its structures are painted into the finished dermis."""

    surface: Surface
    dermis: Dermis
    structures: tuple[Structure, ...]


@dataclass(frozen=True)
class Plan:
    """One section, drawn but not yet painted."""

    cancer: str
    specimen: Specimen
    lesions: Lesions
    adnexa: tuple[Structure, ...]
    damage: tuple[Structure, ...]
    outline: Outline
    box_um: tuple[float, float, float, float]  # Top, left, height and width of the picture
    variety: Variety | None = None  # What sections of version 1 do not have


def draw_plan(seed: int, cancer: str | None = None, version: str = DEFAULT_VERSION) -> Plan:
    """Draw a section; ``cancer`` None draws one at random, "none" is normal skin."""
    cancer = draw_cancer(seed) if cancer is None else cancer
    if cancer not in LESIONS:
        raise choices_error("unknown cancer", cancer, LESIONS)
    found, variety = phantom_version(version), None
    anatomy = found.normal if cancer == NORMAL else found.with_cancer
    specimen = draw_specimen(seed, SAMPLING[cancer], anatomy.specimen)
    skin = normal_skin(seed, specimen.axis, anatomy.skin)
    if anatomy.variety is not None:
        skin = vary_epidermis(skin, seed, specimen.axis, anatomy.variety.epidermis)
    lesions = LESIONS[cancer](seed, generator(seed, "lesions"), specimen, skin, anatomy)
    if anatomy.variety is not None:
        lesions, variety = draw_variety(seed, specimen, lesions, anatomy.variety)
    outline = _outline(specimen, lesions.strata)

    def spared(body: Body) -> bool:
        """What tumours and scars have not destroyed."""
        return (
            body.v_um > specimen.axis.value(lesions.strata.mass, body.u_um)
            and not any(
                abs(body.u_um - cluster.u_um) < cluster.half_width_um + body.reach_um
                and abs(body.v_um - cluster.v_um) < cluster.half_height_um + body.reach_um
                for cluster in lesions.clusters
            )
            and not any(scar.holds(body) for scar in (variety.dermis.scars if variety else ()))
        )

    details, picture = anatomy.variety.adnexa if anatomy.variety else None, anatomy.picture
    rng, y, x = generator(seed, "picture"), outline.y, outline.x
    margin = picture.wide_margin if rng.random() < picture.wide_fraction else picture.margin
    top, left, bottom, right = (between(rng, margin) for _ in range(4))
    return Plan(
        cancer=cancer,
        specimen=specimen,
        lesions=lesions,
        adnexa=draw_adnexa(seed, specimen.half_um, specimen.depth_um, spared, anatomy.adnexa, details),
        damage=draw_damage(seed, specimen, anatomy.damage),
        outline=outline,
        box_um=(y.min() - top, x.min() - left, np.ptp(y) + top + bottom, np.ptp(x) + left + right),
        variety=variety,
    )


def draw_variety(seed: int, specimen: Specimen, lesions: Lesions, kind: VarietyParameters) -> tuple[Lesions, Variety]:
    """Change the layers that the tumours have left."""
    dermis = draw_dermis(seed, specimen, lesions.strata, kind.dermis)
    strata = flatten(lesions.strata, specimen.axis, dermis.scars)
    strata, surface = draw_surface(seed, specimen, strata, lesions.clusters, kind.surface)
    vessels = draw_vessels(seed, specimen, kind.dermis)
    islands = draw_islands(seed, specimen, strata, kind.epidermis)
    return replace(lesions, strata=strata), Variety(surface, dermis, (*vessels, *islands))


def draw_cancer(seed: int) -> str:
    """A cancer in the ratio of the real dataset."""
    weights = np.array(list(SKIN_SECTIONS.values()), dtype=np.float64)
    return str(generator(seed, "cancer").choice(list(SKIN_SECTIONS), p=weights / weights.sum()))


def _draw_basaloid(seed: int, rng: np.random.Generator, specimen: Specimen, skin: Strata, anatomy: Anatomy) -> Lesions:
    """Basal cell carcinoma, in some sections with carcinoma in situ elsewhere."""
    if rng.random() < WITH_IN_SITU["BCC"]:
        patch = _draw_patch(seed, rng, specimen, (0.15, 0.5))
        skin = add_in_situ(skin, seed, specimen.axis, patch, anatomy.in_situ)
    return Lesions(skin, draw_clusters(seed, skin, specimen, anatomy.basaloid))


def _draw_invasive(seed: int, rng: np.random.Generator, specimen: Specimen, skin: Strata, anatomy: Anatomy) -> Lesions:
    """A squamous cell carcinoma, in some sections with carcinoma in situ on its shoulders."""
    axis, half, kind = specimen.axis, specimen.half_um, anatomy.invasive
    with_in_situ = rng.random() < WITH_IN_SITU["SCC"]
    width, centre = half * between(rng, (0.5, 1.2)), half * between(rng, (-0.35, 0.35))
    depth = min(spread(rng, kind.depth), 0.85 * specimen.depth_um, 0.9 * width)
    dome = envelope(axis, centre, width, power=between(rng, (1.6, 2.4)))
    if with_in_situ:
        shoulder = _ramp(width + between(rng, (500.0, 2500.0)) - np.abs(axis.u - centre))
        skin = add_in_situ(skin, seed, axis, shoulder, anatomy.in_situ)
    strata = add_mass(skin, seed, axis, dome, depth, kind)
    return Lesions(strata, structures=draw_companions(seed, axis, strata, kind))


LESIONS: dict[str, Callable[[int, np.random.Generator, Specimen, Strata, Anatomy], Lesions]] = {
    "BCC": _draw_basaloid,
    "SCC": _draw_invasive,
    "IEC": lambda seed, rng, specimen, skin, anatomy: Lesions(
        add_in_situ(skin, seed, specimen.axis, _draw_patch(seed, rng, specimen, (0.7, 1.0)), anatomy.in_situ)
    ),
    NORMAL: lambda _seed, _rng, _specimen, skin, _anatomy: Lesions(skin),
}
"""By the kind of section: what its tumours make of normal skin."""


def _draw_patch(seed: int, rng: np.random.Generator, specimen: Specimen, fraction: Span) -> Values:
    """Where carcinoma in situ covers the surface; in half of the sections it stops short of the ends."""
    u, half = specimen.axis.u, specimen.half_um
    patch = stretches(profile(derive(seed, "patch"), u, 5000.0), between(rng, fraction))
    if rng.random() < 0.5:
        patch = patch * _ramp(half * between(rng, (0.75, 0.95)) - np.abs(u))
    core = _ramp(between(rng, (400.0, 900.0)) - np.abs(u - half * between(rng, (-0.5, 0.5))))
    return np.maximum(patch, core)


def _ramp(inside_um: Values) -> Values:
    """0 outside, 1 from 250 µm inside on."""
    return np.clip(inside_um / 250.0, 0.0, 1.0)


def _outline(specimen: Specimen, strata: Strata) -> Outline:
    """Once around the section: along the top of the keratin, down the one side, back along the cut, up the other."""
    inside = np.flatnonzero(specimen.thickness > 0)
    there, back = inside, inside[::-1]
    u = specimen.axis.u[np.concatenate([there, back, there[:1]])]
    above, below = -(strata.lift + strata.keratin), specimen.thickness
    w = np.concatenate([above[there], below[back], above[there[:1]]]).astype(np.float64)
    travelled = np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(u), np.diff(w)))])
    stops = np.arange(0.0, travelled[-1], 40.0)
    y, x = specimen.frame.to_picture(np.interp(stops, travelled, u), np.interp(stops, travelled, w))
    return Outline(y, x, REACH_UM)
