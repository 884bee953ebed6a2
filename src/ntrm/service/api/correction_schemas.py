"""The JSON documents of corrections, as the OpenAPI description of the service shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from ntrm.correction.log import INITIALS, Log, Step
from ntrm.service.corrections.changes import Change, Drawing, Pick, areas_before, followers
from ntrm.service.corrections.reviewing import regions_to_review
from ntrm.service.corrections.slide_corrections import SlideCorrections
from ntrm.service.corrections.units import Units, outlines
from ntrm.service.tiles.region_finder import Ring, thinned

MOST_POINTS = 10_000
"""Of a lasso or a drawing, and of an outline in an answer."""
MOST_PARTS = 500
"""That follow and are listed singly."""
MOST_REGIONS = 2000
"""That a person steps through."""
PREVIEW_POINTS = 40_000
"""Of all that follows together."""
FAR = 2**24

Coordinate = Annotated[float, Field(ge=-FAR, le=FAR, allow_inf_nan=False)]
Point = tuple[Coordinate, Coordinate]
Points = Annotated[list[Point], Field(max_length=MOST_POINTS)]
Tissue = Annotated[str, Field(min_length=1, max_length=64, description="name of a class")]
Version = Annotated[int, Field(ge=0, le=2**31, description="the version that was corrected: `version` of the answer")]
Initials = Annotated[str | None, Field(min_length=1, max_length=INITIALS, description="of whoever corrects")]
Outline = Annotated[list[list[list[float]]], Field(description="rings of [x, y], holes too")]


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

    def pick(self) -> Pick:
        """What was chosen."""
        chosen = self.model_dump(exclude={"version"})
        return Pick(**chosen)


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

    def drawing(self) -> Drawing:
        """What was drawn."""
        return Drawing(**self.model_dump(exclude={"version"}))


class UndoBody(BaseModel):
    """Takes a step back, or does it again."""

    model_config = ConfigDict(extra="forbid")

    version: Version
    by: Initials = None


class StepDocument(BaseModel):
    """One thing that a person did."""

    number: int
    action: Literal["name", "draw", "undo", "redo"]
    tissue: str | None
    regions: int
    area_mm2: float
    spread: bool
    reach: float | None
    origin: str
    by: str | None
    when: str
    active: bool = Field(description="whether it counts: neither undone nor an undo or redo itself")
    of: int | None = Field(description="the step that an undo or redo is about")


class CorrectionsDocument(BaseModel):
    """What people made of a slide's mask."""

    version: int = Field(description="number of the last step; 0 before the first")
    undo: StepDocument | None = Field(description="the step that an undo would take back")
    redo: StepDocument | None = Field(description="the step that a redo would do again")
    steps: list[StepDocument]
    regions: int = Field(description="parts that were named or followed, and drawings")
    area_mm2: float
    graph: Literal["missing", "waiting", "making", "ready", "impossible"] = Field(
        description="the region graph, without which only whole regions are named, and names are not carried on"
    )
    graph_progress: float | None
    graph_reason: str | None = Field(description="why it is impossible, or could not be made")
    corrected: bool = Field(description="whether the files under corrected/ are up to date")
    corrected_reason: str | None = Field(description="why they could not be made the last time")


class PartDocument(BaseModel):
    """A part, or the region around it."""

    tissue: str = Field(description="what it is called now")
    network_tissue: str
    by_hand: bool = Field(description="whether a person named it")
    area_mm2: float
    outline: Outline
    x: float = Field(description="of a point inside")
    y: float


class ReviewedRegion(BaseModel):
    """A region to step to."""

    x: float = Field(description="of a point in the part in its middle")
    y: float
    network_tissue: str
    area_mm2: float
    by_hand: bool = Field(description="whether a person named that part")


class ReviewDocument(BaseModel):
    """Regions of the network's mask in the order in which a person looks at them."""

    version: int
    order: Literal["likely errors", "area"] = Field(description="`area` until the region graph is there")
    regions: list[ReviewedRegion] = Field(description=f"at most {MOST_REGIONS}")


class NamedDocument(BaseModel):
    """What is named itself."""

    regions: int
    area_mm2: float
    outline: Outline


class FollowedDocument(BaseModel):
    """What would follow to one tissue."""

    tissue: str
    before: dict[str, float] = Field(alias="from", description="mm² by what it is called now, the largest first")
    regions: int
    area_mm2: float
    outline: Outline


class FollowerDocument(BaseModel):
    """One part that would follow."""

    x: float
    y: float
    tissue: str
    network_tissue: str
    area_mm2: float
    why: str


class PreviewDocument(BaseModel):
    """What would change."""

    version: int
    named: NamedDocument
    followed: list[FollowedDocument]
    parts: list[FollowerDocument] = Field(description=f"that would follow: at most {MOST_PARTS}, the largest first")
    regions: int
    area_mm2: float


def step_document(step: Step, active: set[int]) -> StepDocument:
    """A step without its pixels."""
    plain = ("number", "tissue", "regions", "area_mm2", "reach", "origin", "by", "when", "of")
    return StepDocument(
        **{key: getattr(step, key) for key in plain},
        action=step.action,  # type: ignore[arg-type]
        spread=step.spread is not None,
        active=step.number in active,
    )


def history(log: Log) -> dict[str, object]:
    """The fields that tell a log's steps."""
    active = {step.number for step in log.active}
    undo, redo = log.undoable, log.redoable
    return {
        "version": log.version,
        "undo": None if undo is None else step_document(undo, active),
        "redo": None if redo is None else step_document(redo, active),
        "steps": [step_document(step, active) for step in log.steps],
    }


def part_document(there: SlideCorrections, units: Units, unit: int, point: tuple[float, float]) -> PartDocument:
    """The part or region under a point."""
    names, (row, column), pixels = there.mask.schema.names, there.place(point), units.pixels(np.array([unit]))
    at = there.flat((row, column))
    x, y = there.point(units.place(unit))
    return PartDocument(
        tissue=names[int(there.names_at(at, units.tissue[[unit]])[0])],
        network_tissue=names[int(units.tissue[unit])],
        by_hand=bool(there.now.by_hand.holds(at)[0]),
        area_mm2=pixels.pixels * there.pixel_mm2,
        outline=_rounded(outlines(pixels, there.mask.shape, there.scale), MOST_POINTS),
        x=x,
        y=y,
    )


def review_document(there: SlideCorrections) -> ReviewDocument:
    """The regions to step through."""
    names, regions = there.mask.schema.names, []
    for each in regions_to_review(there, MOST_REGIONS):
        (x, y), area_mm2 = there.point(each.place), each.pixels * there.pixel_mm2
        tissue = names[each.tissue]
        regions.append(ReviewedRegion(x=x, y=y, network_tissue=tissue, area_mm2=area_mm2, by_hand=each.by_hand))
    order: Literal["likely errors", "area"] = "area" if there.graph is None else "likely errors"
    return ReviewDocument(version=there.log.version, order=order, regions=regions)


def preview_document(there: SlideCorrections, change: Change) -> PreviewDocument:
    """What a click would change."""
    return PreviewDocument(
        version=there.log.version,
        named=NamedDocument(
            regions=change.regions,
            area_mm2=change.named.pixels * there.pixel_mm2,
            outline=_rounded(outlines(change.named, there.mask.shape, there.scale), MOST_POINTS),
        ),
        followed=[_followed(there, change, index) for index in sorted(change.followed)],
        parts=_parts(there, change),
        regions=change.step.regions,
        area_mm2=change.step.area_mm2,
    )


def _followed(there: SlideCorrections, change: Change, index: int) -> FollowedDocument:
    pixels, names, proposal = change.followed[index], there.mask.schema.names, change.proposal
    rings = outlines(pixels, there.mask.shape, there.scale)
    return FollowedDocument.model_validate(
        {
            "tissue": names[index],
            "from": {names[before]: mm2 for before, mm2 in areas_before(there, change, index).items()},
            "regions": 0 if proposal is None else int((proposal.names == index).sum()),
            "area_mm2": pixels.pixels * there.pixel_mm2,
            "outline": _rounded(rings, PREVIEW_POINTS // len(change.followed)),
        }
    )


def _parts(there: SlideCorrections, change: Change) -> list[FollowerDocument]:
    proposal, names = change.proposal, there.mask.schema.names
    if proposal is None or proposal.spread is None:
        return []
    graph, spread, shown = proposal.graph, proposal.spread, []
    for part in followers(change, MOST_PARTS):
        x, y = there.point(part.place)
        shown.append(
            FollowerDocument(
                x=x,
                y=y,
                tissue=names[part.tissue],
                network_tissue=names[int(graph.tissue[part.node])],
                area_mm2=float(graph.area_mm2[part.node]),
                why=spread.why(part.node),
            )
        )
    return shown


def _rounded(rings: Sequence[Ring], most: int) -> list[list[list[float]]]:
    return [ring.round(2).tolist() for ring in thinned(rings, most)]
