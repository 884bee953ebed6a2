"""How sections of version 2 differ from each other beyond version 1: one bundle of ranges, one of what was drawn."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ntrm.phantom.anatomy.adnexa import AdnexaDetails
from ntrm.phantom.anatomy.bodies import Structure
from ntrm.phantom.anatomy.dermis import Dermis, DermisParameters, draw_dermis, draw_vessels, flatten
from ntrm.phantom.anatomy.epithelium import EpidermisParameters, draw_islands
from ntrm.phantom.anatomy.frame import Body
from ntrm.phantom.anatomy.specimen import Specimen
from ntrm.phantom.anatomy.surface import Surface, SurfaceParameters, draw_surface
from ntrm.phantom.anatomy.tumours import Lesions


@dataclass(frozen=True)
class VarietyParameters:
    """Ranges and chances."""

    epidermis: EpidermisParameters = field(default_factory=EpidermisParameters)
    surface: SurfaceParameters = field(default_factory=SurfaceParameters)
    dermis: DermisParameters = field(default_factory=DermisParameters)
    adnexa: AdnexaDetails = field(default_factory=AdnexaDetails)


@dataclass(frozen=True)
class Variety:
    """What was drawn for one section; its structures are painted into the finished dermis."""

    surface: Surface
    dermis: Dermis
    structures: tuple[Structure, ...]

    def spares(self, body: Body) -> bool:
        """Whether a follicle or a gland can be there: not in a scar."""
        return not any(scar.holds(body) for scar in self.dermis.scars)


def draw_variety(seed: int, specimen: Specimen, lesions: Lesions, kind: VarietyParameters) -> tuple[Lesions, Variety]:
    """Change the layers that the tumours have left."""
    dermis = draw_dermis(seed, specimen, lesions.strata, kind.dermis)
    strata = flatten(lesions.strata, specimen.axis, dermis.scars)
    strata, surface = draw_surface(seed, specimen, strata, lesions.clusters, kind.surface)
    vessels = draw_vessels(seed, specimen, kind.dermis)
    islands = draw_islands(seed, specimen, strata, kind.epidermis)
    return replace(lesions, strata=strata), Variety(surface, dermis, (*vessels, *islands))
