"""``/v1/slides/{id}/corrections``: name parts and regions, draw, undo; and the files of the corrected mask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse

from ntrm.core.io import writing
from ntrm.correct.ask import Ask, Name
from ntrm.correct.engine import NotReadyError
from ntrm.correct.log import ConflictError
from ntrm.correct.slide import SlideCorrections
from ntrm.results.paths import CORRECTED
from ntrm.service.api.app_state import AppState
from ntrm.service.api.correction_schemas import (
    CorrectionsDocument,
    PartDocument,
    PreviewDocument,
    ReviewDocument,
    history,
    part_document,
    preview_document,
    review_document,
)
from ntrm.service.api.routes_results import CONTENT, Coordinate, FileName, slide_file
from ntrm.service.api.routes_slides import Requested, Shared, problems
from ntrm.service.core.problems import ProblemError
from ntrm.service.jobs.slide_record import SlideRow

router = APIRouter(prefix="/v1/slides/{id}", tags=["corrections"], responses=problems(404))
ORIGIN = "page"
REST_SECONDS = 2.0  # Without a further step, before the corrected files are made
WholeRegion = Annotated[bool, Query(description="the connected region around the part")]


@router.get("/corrections")
def corrections(app_state: Shared, slide: Requested) -> CorrectionsDocument:
    """The steps so far, their result, and whether the region graph and the corrected files are there."""
    return _document(app_state, slide)


@router.post("/corrections/graph", status_code=202, responses=problems(409, 503, 507))
def make_graph(app_state: Shared, slide: Requested) -> CorrectionsDocument:
    """Have the region graph made from original and model, before the next slide; nothing where it is there."""
    current = app_state.corrections_of(slide)
    graph = _graph_state(app_state, slide, current)
    if graph["graph"] == "impossible":
        raise ProblemError(409, "impossible", "the region graph cannot be made", got=graph["graph_reason"])
    if graph["graph"] == "missing":
        app_state.store.ask(slide.id, "prepare")
        app_state.audit.note("region graph", slide.slide_id)
    return _document(app_state, slide)


@router.delete("/corrections/graph", status_code=202, responses=problems(503, 507))
def cancel_graph(app_state: Shared, slide: Requested) -> CorrectionsDocument:
    """End the making of the region graph; a graph that is there is kept."""
    app_state.store.stop(slide.id, "prepare")
    app_state.audit.note("cancel region graph", slide.slide_id)
    return _document(app_state, slide)


@router.get("/corrections/part", responses=problems(400, 409))
def part(
    app_state: Shared, slide: Requested, x: Coordinate, y: Coordinate, whole_region: WholeRegion = False
) -> PartDocument:
    """The part under a point, in pixels of the full resolution; without a region graph, whole regions alone."""
    current = app_state.corrections_of(slide)
    with _refusals():
        return part_document(current, current.part((x, y), whole_region=whole_region))


@router.get("/corrections/regions")
def regions(app_state: Shared, slide: Requested) -> ReviewDocument:
    """Regions of the network's mask in the order in which a person looks at them: likely errors first."""
    return review_document(app_state.corrections_of(slide))


@router.post("/corrections/preview", responses=problems(400, 408, 409, 413, 503))
async def preview(app_state: Shared, slide: Requested, ask: Name) -> PreviewDocument:
    """What a click would change, and what would follow; nothing is written."""

    def work() -> PreviewDocument:
        current = app_state.corrections_of(slide)
        with _refusals():
            return preview_document(current, current.propose(ask), ask.version)

    return await run_sync(work, limiter=app_state.heavy)


@router.post("/corrections", status_code=201, responses=problems(400, 408, 409, 413, 503, 507))
async def correct(app_state: Shared, slide: Requested, ask: Ask) -> CorrectionsDocument:
    """Name parts or regions and what follows from it, draw, undo or redo; one with a ``key`` that is known was done."""

    def work() -> CorrectionsDocument:
        current = app_state.corrections_of(slide)
        before = current.log.version
        with _refusals(), writing("the corrections"):
            step = current.take(ask, origin=ORIGIN)
        if step.number > before:
            outcome = f"parts: {max(step.regions, 1)}" if step.of is None else f"step: {step.of}"
            app_state.audit.note(f"correct: {step.action}", slide.slide_id, outcome)
        app_state.store.ask(slide.id, "correct", REST_SECONDS)
        return _document(app_state, slide)

    return await run_sync(work, limiter=app_state.heavy)


@contextmanager
def _refusals() -> Iterator[None]:
    """What a person can mend by looking again, or by waiting for the region graph."""
    try:
        yield
    except (ConflictError, NotReadyError) as error:
        code = "corrected_elsewhere" if isinstance(error, ConflictError) else "no_region_graph"
        raise ProblemError(409, code, error.what, got=error.got, expected=error.expected, hint=error.hint) from error


@router.get("/corrected/{file}", response_class=FileResponse, responses=CONTENT)
def corrected_file(app_state: Shared, slide: Requested, file: FileName, download: bool = False) -> Response:
    """A file of the corrected mask, as those of the network's; made some seconds after the last step."""
    current = app_state.corrections_of(slide)
    ready = app_state.is_corrected(slide, current)
    hint = "correct the slide first" if ready else "it is being made: ask again in a moment"
    hint = app_state.corrected_failure(slide) or hint
    folder, begin = app_state.folder(slide) / CORRECTED, f"{slide.slide_id}-corrected"
    return slide_file(folder, file, begin, hint=hint, download=download)


def _document(app_state: AppState, slide: SlideRow) -> CorrectionsDocument:
    current = app_state.corrections_of(slide)
    log, now, ready = current.log, current.state(), app_state.is_corrected(slide, current)
    return CorrectionsDocument(
        **history(log),
        revision=app_state.tile_revision(slide, now),
        regions=now.regions,
        area_mm2=sum(pixels.pixels for pixels in now.tissue.values()) * current.pixel_mm2,
        corrected=ready,
        corrected_reason=None if ready else app_state.corrected_failure(slide),
        **_graph_state(app_state, slide, current),
    )


def _graph_state(app_state: AppState, slide: SlideRow, current: SlideCorrections) -> dict[str, Any]:
    """The state of the region graph, how far it is, and why there is none."""
    job, state, progress, reason = app_state.store.job(slide.id, "prepare"), "missing", None, None
    if current.is_ready:
        state = "ready"
    elif (reason := _impossible(app_state, slide, current)) is not None:
        state = "impossible"
    elif job is not None and job.status == "failed":
        reason = (job.error or {}).get("got") or (job.error or {}).get("what")
    elif job is not None:
        state, progress = "making" if job.status == "running" else "waiting", round(job.progress, 4)
    return {"graph": state, "graph_progress": progress, "graph_reason": reason}


def _impossible(app_state: AppState, slide: SlideRow, current: SlideCorrections) -> str | None:
    """Why the region graph cannot be made, if so."""
    refusal, model = app_state.supervisor.refusal, app_state.model
    if app_state.supervisor.state == "off":
        return "the service runs without workers"
    if refusal is not None:
        return str(refusal["what"])
    if not slide.has_image:
        return "the original of this slide is not there"
    if model is not None and model.sha256 != current.mask.summary.model.get("sha256"):
        return "the slide was segmented with another model"
    return None
