"""What a person asks for with a click, a lasso or a drawing, and what it would change, before anything is written down.

Points are (x, y) in pixels of the full resolution of the scanned area.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ntrm.core.arrays import Floats
from ntrm.core.errors import UsageError
from ntrm.correction.drawing import area, split_by_line, stroke
from ntrm.correction.engine import DEFAULT, Click, Proposal
from ntrm.correction.engine.propose import check_tissue, propose, propose_regions
from ntrm.correction.log import DRAW, INITIALS, Place, Step
from ntrm.correction.pixels import PixelSet
from ntrm.correction.units import Units
from ntrm.service.core.problems import ProblemError
from ntrm.service.corrections.slide_corrections import SlideCorrections

ORIGIN = "page"
MOST_POINTS = 10_000
"""Of a lasso or a drawing, and of an outline in an answer."""
FAR = 2**24

Coordinate = Annotated[float, Field(ge=-FAR, le=FAR, allow_inf_nan=False)]
Point = tuple[Coordinate, Coordinate]
Points = Annotated[list[Point], Field(max_length=MOST_POINTS)]
Tissue = Annotated[str, Field(min_length=1, max_length=64, description="name of a class")]
Version = Annotated[int, Field(ge=0, le=2**31, description="the version that was corrected: `version` of the answer")]
Initials = Annotated[str | None, Field(min_length=1, max_length=INITIALS, description="of whoever corrects")]


class ClickBody(BaseModel):
    """Parts or regions, and the tissue that they are; points in pixels of the full resolution."""

    model_config = ConfigDict(extra="forbid")

    version: Version
    points: Points = []
    lasso: Annotated[list[Point] | None, Field(min_length=3, max_length=MOST_POINTS)] = None
    tissue: Tissue
    whole_regions: bool = False
    spread: bool = True
    reach: float = Field(1.0, ge=0.25, le=4.0, allow_inf_nan=False, description="how far the name is carried")
    left_out: Points = Field([], description="parts that must not follow")
    by: Initials = None


class DrawBody(BaseModel):
    """Something drawn, and the tissue that it is."""

    model_config = ConfigDict(extra="forbid")

    version: Version
    kind: Literal["brush", "area", "divide"]
    points: Annotated[list[Point], Field(min_length=1, max_length=MOST_POINTS)]
    width_um: float = Field(0.0, ge=0, le=10_000, allow_inf_nan=False, description="of the brush")
    side: Point | None = Field(None, description="on the side of the line that gets the name")
    tissue: Tissue
    by: Initials = None


class UndoBody(BaseModel):
    """Takes a step back, or does it again."""

    model_config = ConfigDict(extra="forbid")

    version: Version
    by: Initials = None


def click_proposal(current: SlideCorrections, pick: ClickBody) -> Proposal:
    """Name parts or regions; needs the region graph unless whole regions alone are named."""
    check_tissue(current.mask.schema, pick.tissue)
    units = current.units(whole_regions=pick.whole_regions)
    if units is None or (current.graph is None and pick.spread):
        raise no_region_graph()
    click = Click(
        _places(current, units, pick),
        pick.tissue,
        whole_regions=pick.whole_regions,
        how=DEFAULT if pick.spread else None,
        reach=pick.reach,
        left_out=tuple(current.place(point) for point in pick.left_out),
    )
    if current.graph is None:
        return propose_regions(current.opened.regions, current.mask.schema, click)
    return propose(current.graph, current.now, click)


def _places(current: SlideCorrections, units: Units, pick: ClickBody) -> tuple[Place, ...]:
    """A pixel of each part or region that was chosen."""
    if pick.lasso is None:
        return units.one_each([current.place(point) for point in pick.points])
    inside = area(_in_mask(current, pick.lasso), current.mask.shape)
    is_glass = current.names_at(units.first, units.tissue) == current.mask.schema.background_index
    return tuple(units.place(unit) for unit in units.inside(inside, is_glass).tolist())


def drawing_step(current: SlideCorrections, drawing: DrawBody) -> Step:
    """What a person draws."""
    check_tissue(current.mask.schema, drawing.tissue)
    points, mask = _in_mask(current, drawing.points), current.mask
    if drawing.kind == "brush":
        named = stroke(points, drawing.width_um, mask.shape, mask.resolution)
    elif drawing.kind == "area":
        named = area(points, mask.shape)
    elif drawing.side is None:
        raise UsageError("the side of the line that gets the name is missing", expected="side: [x, y]")
    else:
        named = split_by_line(current.labels(), points, current.place(drawing.side), mask.resolution)
    if not named:
        raise UsageError("nothing of the drawing lies on the section", hint="draw on the section")
    mm2 = named.pixels * current.pixel_mm2
    return Step(action=DRAW, tissue=drawing.tissue, named=named.text, area_mm2=mm2, origin=ORIGIN, by=drawing.by)


def areas_before(current: SlideCorrections, pixels: PixelSet, units: Units) -> dict[int, float]:
    """mm² of pixels by the class that they have now, the largest first."""
    count = units.by_tissue(pixels, len(current.mask.schema))
    for tissue, called in current.now.tissue.items():
        moved = pixels & called
        count -= units.by_tissue(moved, len(count))
        count[tissue] += moved.pixels
    order = np.argsort(-count, kind="stable")
    return {int(tissue): float(count[tissue]) * current.pixel_mm2 for tissue in order if count[tissue]}


def no_region_graph() -> ProblemError:
    """409: parts can be named, and names carried on, only once the region graph is there."""
    return ProblemError(
        409,
        "no_region_graph",
        "the parts of this slide are not known yet",
        hint="start computing its region graph, or name whole regions without spreading the name",
    )


def _in_mask(current: SlideCorrections, points: Sequence[tuple[float, float]]) -> Floats:
    """(n, 2) in pixels of the mask."""
    return np.asarray(np.array(points, dtype=np.float64).reshape(-1, 2) / np.array(current.scale))
