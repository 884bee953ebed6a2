"""The JSON documents that tell of corrections, as the OpenAPI description of the service shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from ntrm.correct.ask import MOST_POINTS
from ntrm.correct.engine import Proposal
from ntrm.correct.log import Log, Step
from ntrm.correct.pixels import PixelSet
from ntrm.correct.slide import Part, SlideCorrections
from ntrm.correct.units import outlines
from ntrm.service.tiles.region_finder import thinned

MOST_PARTS = 500  # That follow and are listed singly
MOST_REGIONS = 2000  # That a person steps through
PREVIEW_POINTS = 40_000  # Of all that follows together

Outline = Annotated[list[list[list[float]]], Field(description="rings of [x, y], holes too")]


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
    revision: str = Field(description="for the addresses of tiles of this version, as that of the tile source")
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


class PlacedDocument(BaseModel):
    """Something in the mask."""

    x: float = Field(description="of a point inside")
    y: float
    network_tissue: str
    area_mm2: float


class PartDocument(PlacedDocument):
    """A part, or the region around it."""

    tissue: str = Field(description="what it is called now")
    by_hand: bool = Field(description="whether a person named it")
    outline: Outline


class ReviewedRegion(PlacedDocument):
    """A region to step to."""

    by_hand: bool = Field(description="whether a person named the part in its middle")


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


class FollowedDocument(NamedDocument):
    """What would follow to one tissue."""

    tissue: str
    before: dict[str, float] = Field(alias="from", description="mm² by what it is called now, the largest first")


class FollowerDocument(PlacedDocument):
    """One part that would follow."""

    tissue: str
    why: str


class PreviewDocument(BaseModel):
    """What would change."""

    version: int
    named: NamedDocument
    followed: list[FollowedDocument]
    parts: list[FollowerDocument] = Field(description=f"that would follow: at most {MOST_PARTS}, the largest first")
    regions: int
    area_mm2: float


def history(log: Log) -> dict[str, Any]:
    """The fields that tell a log's steps, without their pixels."""
    active = {step.number for step in log.active}

    def told(steps: tuple[Step, ...]) -> list[StepDocument]:
        more = [{"spread": step.spread is not None, "active": step.number in active} for step in steps]
        return [StepDocument.model_validate({**vars(step), **each}) for step, each in zip(steps, more, strict=True)]

    undo, redo = told(log.active[-1:]), told(log.undone[-1:])
    last = {"undo": undo[0] if undo else None, "redo": redo[0] if redo else None}
    return {"version": log.version, **last, "steps": told(log.steps)}


def part_document(current: SlideCorrections, part: Part) -> PartDocument:
    """The part or region under a point."""
    names, (x, y) = current.mask.schema.names, current.point(part.place)
    shape = _shape(current, part.pixels, MOST_POINTS)
    tissue, network = names[part.tissue], names[part.network]
    return PartDocument(tissue=tissue, network_tissue=network, by_hand=part.by_hand, x=x, y=y, **shape)


def review_document(current: SlideCorrections) -> ReviewDocument:
    """The regions to step through."""
    review, names, version = current.engine.order(current.mask), current.mask.schema.names, current.log.version
    first, tissue, pixels = (column[:MOST_REGIONS] for column in (review.first, review.tissue, review.pixels))
    named, regions = current.state().by_hand.holds(first), []
    for at, index, count, by_hand in zip(*map(np.ndarray.tolist, (first, tissue, pixels, named)), strict=True):
        x, y = current.point(divmod(at, current.mask.shape[1]))
        area_mm2 = count * current.pixel_mm2
        regions.append(ReviewedRegion(x=x, y=y, network_tissue=names[index], area_mm2=area_mm2, by_hand=by_hand))
    return ReviewDocument(version=version, order=review.order, regions=regions)  # type: ignore[arg-type]


def preview_document(current: SlideCorrections, proposal: Proposal, version: int) -> PreviewDocument:
    """What a click on this version would change."""
    units, names, followed, parts = proposal.units, current.mask.schema.names, [], []
    for index, pixels in sorted(proposal.followed.items()):
        before = {names[tissue]: mm2 for tissue, mm2 in current.area_by_tissue(pixels, units).items()}
        content = _shape(current, pixels, PREVIEW_POINTS // len(proposal.followed)) | {"from": before}
        content |= {"tissue": names[index], "regions": int((proposal.names == index).sum())}
        followed.append(FollowedDocument.model_validate(content))
    count = np.bincount(units.of[units.of >= 0], units.runs.length[units.of >= 0], units.count)
    order = np.argsort(-count[proposal.followers], kind="stable")[:MOST_PARTS]
    for node, tissue in zip(proposal.followers[order].tolist(), proposal.names[order].tolist(), strict=True):
        (x, y), network = current.point(units.place(node)), names[int(units.tissue[node])]
        area_mm2, why = float(count[node]) * current.pixel_mm2, proposal.why(node)
        part = FollowerDocument(x=x, y=y, tissue=names[tissue], network_tissue=network, area_mm2=area_mm2, why=why)
        parts.append(part)
    named = NamedDocument(regions=len(proposal.nodes), **_shape(current, proposal.named, MOST_POINTS))
    regions, area_mm2 = proposal.regions, proposal.pixels * current.pixel_mm2
    return PreviewDocument(
        version=version, named=named, followed=followed, parts=parts, regions=regions, area_mm2=area_mm2
    )


def _shape(current: SlideCorrections, pixels: PixelSet, most: int) -> dict[str, Any]:
    """Area and outline of pixels."""
    rings = thinned(outlines(pixels, current.mask.shape, current.scale), most)
    return {"area_mm2": pixels.pixels * current.pixel_mm2, "outline": [ring.round(2).tolist() for ring in rings]}
