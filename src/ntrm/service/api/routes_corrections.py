"""``/v1/slides/{id}/corrections``: name parts and regions, draw, undo; and the files of the corrected mask."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from ntrm.core.io import writing
from ntrm.correct.ask import MOST_POINTS, Ask, Name
from ntrm.correct.pixels import PixelSet
from ntrm.correct.slide import SlideCorrections
from ntrm.correct.units import outlines
from ntrm.results.paths import CORRECTED
from ntrm.service.api.app_state import AppState
from ntrm.service.api.routes_results import CONTENT, Coordinate, FileName, slide_file
from ntrm.service.api.routes_slides import Requested, Shared
from ntrm.service.core.problems import ProblemError
from ntrm.service.jobs.rows import SlideRow
from ntrm.service.tiles.region_finder import thinned

router = APIRouter(prefix="/v1/slides/{id}", tags=["corrections"])
ORIGIN = "page"
REST_SECONDS = 2.0  # Without a further step, before the corrected files are made
WholeRegion = Annotated[bool, Query(description="the connected region around the part")]
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
        description="the texture of the slide, without which names are not carried on"
    )
    graph_progress: float | None
    graph_reason: str | None = Field(description="why it is impossible, or could not be made")
    corrected: bool = Field(description="whether the files under corrected/ are up to date")
    corrected_reason: str | None = Field(description="why they could not be made the last time")


class PartDocument(BaseModel):
    """A part, or the region around it, with as much as the question is about."""

    x: float = Field(description="of a point inside")
    y: float
    network_tissue: str
    area_mm2: float
    tissue: str = Field(default="", description="what it is called now, or what it would become")
    by_hand: bool = Field(default=False, description="whether a person named it, or the part in its middle")
    why: str = Field(default="", description="why it would follow")
    outline: Outline = []


class ReviewDocument(BaseModel):
    """Where to look next: places or regions in the order in which a person looks at them."""

    version: int
    order: Literal["doubt and novelty", "likely errors"] = Field(
        description="without a model places that are most worth a click, else regions"
    )
    regions: list[PartDocument] = Field(description=f"at most {MOST_REGIONS}")


class ChangeDocument(BaseModel):
    """What is named itself, or what would follow to one tissue."""

    regions: int
    area_mm2: float
    outline: Outline
    tissue: str = Field(default="", description="of what would follow")
    before: dict[str, float] = Field({}, alias="from", description="mm² by what it is called now, the largest first")


class TouchedDocument(BaseModel):
    """What was accepted in an earlier step and would get another name."""

    step: int = Field(description="its number")
    area_mm2: float


class PreviewDocument(BaseModel):
    """What would change."""

    version: int
    named: ChangeDocument
    followed: list[ChangeDocument]
    parts: list[PartDocument] = Field(description=f"that would follow: at most {MOST_PARTS}, the largest first")
    regions: int
    area_mm2: float
    touched: list[TouchedDocument]


@router.get("/corrections")
def corrections(app_state: Shared, slide: Requested) -> CorrectionsDocument:
    """The steps so far, their result, and whether texture and corrected files are there."""
    return _document(app_state, slide)


@router.post("/corrections/graph", status_code=202)
def make_graph(app_state: Shared, slide: Requested) -> CorrectionsDocument:
    """Have the texture of the original read, before the next slide; nothing where it is there."""
    current = app_state.corrections_of(slide)
    graph = _graph_state(app_state, slide, current)
    if graph["graph"] == "impossible":
        raise ProblemError(409, "impossible", "the texture cannot be read", got=graph["graph_reason"])
    if graph["graph"] == "missing":
        app_state.store.ask(slide.id, "prepare")
        app_state.audit.note("texture", slide.slide_id)
    return _document(app_state, slide)


@router.delete("/corrections/graph", status_code=202)
def cancel_graph(app_state: Shared, slide: Requested) -> CorrectionsDocument:
    """End the reading of the texture; what is there is kept."""
    app_state.store.stop(slide.id, "prepare")
    app_state.audit.note("cancel texture", slide.slide_id)
    return _document(app_state, slide)


@router.get("/corrections/part", response_model_exclude_unset=True)
def part(
    app_state: Shared, slide: Requested, x: Coordinate, y: Coordinate, whole_region: WholeRegion = False
) -> PartDocument:
    """What a click at a point would name, in pixels of the full resolution."""
    current = app_state.corrections_of(slide)
    part, names = current.part((x, y), whole_region=whole_region), current.mask.schema.names
    inside, shape = current.point(part.place), _shape(current, part.pixels, MOST_POINTS)
    said = {"tissue": names[part.tissue], "network_tissue": names[part.network], "by_hand": part.by_hand}
    return PartDocument.model_validate({"x": inside[0], "y": inside[1], **said, **shape})


@router.get("/corrections/regions", response_model_exclude_unset=True)
def regions(app_state: Shared, slide: Requested) -> ReviewDocument:
    """Where to look next, in the order in which a person does."""
    current = app_state.corrections_of(slide)
    found, names = current.suggestions()[:MOST_REGIONS], current.mask.schema.names
    first = np.array([row * current.mask.shape[1] + column for (row, column), *_ in found], dtype=np.int64)
    named, shown = current.state().by_hand.holds(first).tolist(), []
    for each, by_hand in zip(found, named, strict=True):
        (x, y), area_mm2 = current.point(each.place), each.pixels * current.pixel_mm2
        part = {"x": x, "y": y, "network_tissue": names[each.tissue], "area_mm2": area_mm2, "by_hand": by_hand}
        shown.append(PartDocument.model_validate(part | ({"why": each.why} if each.why else {})))
    order: Literal["doubt and novelty", "likely errors"] = (
        "doubt and novelty" if shown and found[0].why else "likely errors"
    )
    return ReviewDocument(version=current.log.version, order=order, regions=shown)


@router.post("/corrections/preview", response_model_exclude_unset=True)
async def preview(app_state: Shared, slide: Requested, ask: Name) -> PreviewDocument:
    """What a click would change, and what would follow; nothing is written."""
    return await run_sync(_preview, app_state, slide, ask, limiter=app_state.heavy)


@router.post("/corrections", status_code=201)
async def correct(app_state: Shared, slide: Requested, ask: Ask) -> CorrectionsDocument:
    """Name parts or regions and what follows from it, draw, undo or redo; one with a ``key`` that is known was done."""
    return await run_sync(_correct, app_state, slide, ask, limiter=app_state.heavy)


def _correct(app_state: AppState, slide: SlideRow, ask: Ask) -> CorrectionsDocument:
    current = app_state.corrections_of(slide)
    before = current.log.version
    with writing("the corrections"):
        step = current.take(ask, origin=ORIGIN)
    if step.number > before:
        outcome = f"parts: {max(step.regions, 1)}" if step.of is None else f"step: {step.of}"
        app_state.audit.note(f"correct: {step.action}", slide.slide_id, outcome)
    app_state.store.ask(slide.id, "correct", REST_SECONDS)
    return _document(app_state, slide)


@router.get("/corrected/{file}", response_class=FileResponse, responses=CONTENT)
def corrected_file(app_state: Shared, slide: Requested, file: FileName, download: bool = False) -> Response:
    """A file of the corrected mask, as those of the network's; made some seconds after the last step."""
    current = app_state.corrections_of(slide)
    ready, reason = app_state.corrected(slide, current)
    hint = reason or ("correct the slide first" if ready else "it is being made: ask again in a moment")
    folder, begin = app_state.folder(slide) / CORRECTED, f"{slide.slide_id}-corrected"
    return slide_file(folder, file, begin, hint=hint, download=download)


def _document(app_state: AppState, slide: SlideRow) -> CorrectionsDocument:
    current = app_state.corrections_of(slide)
    log, now, (ready, reason) = current.log, current.state(), app_state.corrected(slide, current)
    active = {step.number for step in log.active}
    steps = {
        step.number: StepDocument.model_validate(
            {**vars(step), "spread": step.spread is not None, "active": step.number in active}
        )
        for step in log.steps
    }
    return CorrectionsDocument(
        version=log.version,
        undo=steps[log.active[-1].number] if log.active else None,
        redo=steps[log.undone[-1].number] if log.undone else None,
        steps=[*steps.values()],
        revision=app_state.tile_revision(slide, now),
        regions=now.regions,
        area_mm2=sum(pixels.pixels for pixels in now.tissue.values()) * current.pixel_mm2,
        corrected=ready,
        corrected_reason=reason,
        **_graph_state(app_state, slide, current),
    )


def _graph_state(app_state: AppState, slide: SlideRow, current: SlideCorrections) -> dict[str, Any]:
    """The state of the texture, how far it is, and why there is none."""
    job, refusal = app_state.store.job(slide.id, "prepare"), app_state.supervisor.refusal
    state, progress, reason = "impossible", None, None
    if current.is_ready:
        state = "ready"
    elif app_state.supervisor.state == "off":
        reason = "the service runs without workers"
    elif refusal is not None:
        reason = refusal["what"]
    elif not slide.has_image:
        reason = "the original of this slide is not there"
    elif job is None:
        state = "missing"
    elif job.status == "failed":
        state, reason = "missing", (job.error or {}).get("got") or (job.error or {}).get("what")
    else:
        state, progress = "making" if job.status == "running" else "waiting", round(job.progress, 4)
    return {"graph": state, "graph_progress": progress, "graph_reason": reason}


def _preview(app_state: AppState, slide: SlideRow, ask: Name) -> PreviewDocument:
    current = app_state.corrections_of(slide)
    proposal = current.propose(ask)
    names, followed, parts = current.mask.schema.names, [], []
    for index, pixels in sorted(proposal.followed.items()):
        before = {names[tissue]: mm2 for tissue, mm2 in current.area_by_tissue(pixels).items()}
        content = _shape(current, pixels, PREVIEW_POINTS // len(proposal.followed)) | {"from": before}
        content |= {"tissue": names[index], "regions": sum(each.tissue == index for each in proposal.pieces)}
        followed.append(ChangeDocument.model_validate(content))
    shown = proposal.pieces[:MOST_PARTS]
    for piece, network in zip(shown, current.network_at([each.place for each in shown]), strict=True):
        (x, y), area_mm2 = current.point(piece.place), piece.pixels * current.pixel_mm2
        tissue, why = names[piece.tissue], piece.why
        parts.append(PartDocument(x=x, y=y, tissue=tissue, network_tissue=names[network], area_mm2=area_mm2, why=why))
    named = ChangeDocument(regions=len(proposal.click.places), **_shape(current, proposal.named, MOST_POINTS))
    whole: dict[str, Any] = {"regions": proposal.regions, "area_mm2": proposal.pixels * current.pixel_mm2}
    whole["touched"] = [
        TouchedDocument(step=number, area_mm2=pixels * current.pixel_mm2) for number, pixels in proposal.touched.items()
    ]
    return PreviewDocument(version=ask.version, named=named, followed=followed, parts=parts, **whole)


def _shape(current: SlideCorrections, pixels: PixelSet, most: int) -> dict[str, Any]:
    """Area and outline of pixels."""
    rings = thinned(outlines(pixels, current.mask.shape, current.scale), most)
    return {"area_mm2": pixels.pixels * current.pixel_mm2, "outline": [ring.round(2).tolist() for ring in rings]}
