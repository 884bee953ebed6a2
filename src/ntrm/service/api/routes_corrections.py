"""``/v1/slides/{id}/corrections``: name parts and regions, draw, undo; and the files of the corrected mask."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Response
from fastapi.responses import FileResponse

from ntrm.core.io import writing
from ntrm.correction.log import REDO, UNDO, ConflictError, Step, append
from ntrm.results.paths import CORRECTED, GRAPH, MASK, OVERLAY, REGIONS, REPORT, SUMMARY
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
from ntrm.service.api.routes_results import REPORT_POLICY, Coordinate, SlideFile, slide_file
from ntrm.service.api.routes_slides import Requested, Shared, problems
from ntrm.service.core.problems import ProblemError
from ntrm.service.corrections.changes import (
    ORIGIN,
    ClickBody,
    DrawBody,
    UndoBody,
    click_proposal,
    drawing_step,
    no_region_graph,
)
from ntrm.service.corrections.slide_corrections import SlideCorrections
from ntrm.service.jobs.graph_jobs import FAILED
from ntrm.service.jobs.slide_record import Slide

router = APIRouter(prefix="/v1/slides/{id}", tags=["corrections"], responses=problems(404))
FILES = {
    "summary": (SUMMARY, "application/json"),
    "graph": (GRAPH, "application/json"),
    "regions.geojson": (REGIONS, "application/geo+json"),
    "mask": (MASK, "image/tiff"),
    "report": (REPORT, "text/html"),
    "overlay.png": (OVERLAY, "image/png"),
}
NETWORK_WORDS = "What the network said"
NETWORK_LINK = f'<a href="../{REPORT}">{NETWORK_WORDS}</a>'.encode()
DOWNLOADED = ("regions.geojson", "mask")
FileName = Literal["summary", "graph", "regions.geojson", "mask", "report", "overlay.png"]
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
        app_state.store.graphs.ask(slide.id)
        app_state.audit.note("region graph", slide.slide_id)
        app_state.supervisor.wake()
    return _document(app_state, slide)


@router.delete("/corrections/graph", status_code=202, responses=problems(503, 507))
def cancel_graph(app_state: Shared, slide: Requested) -> CorrectionsDocument:
    """End the making of the region graph; what is done of it is kept, and so is a graph that is there."""
    app_state.store.graphs.drop(slide.id)
    app_state.audit.note("cancel region graph", slide.slide_id)
    return _document(app_state, slide)


@router.get("/corrections/part", responses=problems(400, 409))
def part(
    app_state: Shared, slide: Requested, x: Coordinate, y: Coordinate, whole_region: WholeRegion = False
) -> PartDocument:
    """The part under a point, in pixels of the full resolution; without a region graph, whole regions alone."""
    current = app_state.corrections_of(slide, graph=True)
    units = current.units(whole_regions=whole_region)
    if units is None:
        raise no_region_graph()
    return part_document(current, units, units.at(current.place((x, y))), (x, y))


@router.get("/corrections/regions")
def regions(app_state: Shared, slide: Requested) -> ReviewDocument:
    """Regions of the network's mask in the order in which a person looks at them: likely errors first."""
    return review_document(app_state.corrections_of(slide, graph=True))


@router.post("/corrections/preview", responses=problems(400, 408, 409, 413, 503))
async def preview(app_state: Shared, slide: Requested, wanted: ClickBody) -> PreviewDocument:
    """What a click would change, and what would follow; nothing is written."""

    def work() -> PreviewDocument:
        current = _current(app_state, slide, wanted.version, graph=True)
        return preview_document(current, click_proposal(current, wanted))

    return await run_sync(work, limiter=app_state.heavy)


_WRITES = problems(400, 408, 409, 413, 503, 507)


@router.post("/corrections", status_code=201, responses=_WRITES)
async def name(app_state: Shared, slide: Requested, wanted: ClickBody) -> CorrectionsDocument:
    """Name parts or regions, and what follows from it."""

    def work() -> CorrectionsDocument:
        current = _current(app_state, slide, wanted.version, graph=True)
        step = click_proposal(current, wanted).step(ORIGIN, wanted.by)
        return _record_step(app_state, slide, current, step)

    return await run_sync(work, limiter=app_state.heavy)


@router.post("/corrections/draw", status_code=201, responses=_WRITES)
async def draw(app_state: Shared, slide: Requested, wanted: DrawBody) -> CorrectionsDocument:
    """Name the pixels under a brush, within an area, or on one side of a line through a region."""

    def work() -> CorrectionsDocument:
        current = _current(app_state, slide, wanted.version)
        return _record_step(app_state, slide, current, drawing_step(current, wanted))

    return await run_sync(work, limiter=app_state.heavy)


@router.post("/corrections/undo", status_code=201, responses=_WRITES)
async def undo(app_state: Shared, slide: Requested, wanted: UndoBody) -> CorrectionsDocument:
    """Undo the last step that counts."""
    return await run_sync(_undo_or_redo, app_state, slide, wanted, UNDO)


@router.post("/corrections/redo", status_code=201, responses=_WRITES)
async def redo(app_state: Shared, slide: Requested, wanted: UndoBody) -> CorrectionsDocument:
    """Redo the step that was undone last."""
    return await run_sync(_undo_or_redo, app_state, slide, wanted, REDO)


_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the file",
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for _, kind in FILES.values()},
    }
}


@router.get("/corrected/{file}", response_class=FileResponse, responses=_CONTENT)
def corrected_file(app_state: Shared, slide: Requested, file: FileName, download: bool = False) -> Response:
    """A file of the corrected mask, as those of the network's; made some seconds after the last step."""
    current, (filename, kind) = app_state.corrections_of(slide), FILES[file]
    ready = app_state.is_corrected(slide, current)
    hint = "correct the slide first" if ready else "it is being made: ask again in a moment"
    hint = app_state.corrected.failure(current.mask.folder) or hint
    answer = slide_file(
        app_state.folder(slide) / CORRECTED,
        filename,
        kind,
        hint=hint,
        download_as=f"{slide.slide_id}-corrected" if download or file in DOWNLOADED else None,
    )
    return _without_link(answer) if file == "report" else answer


def _without_link(report: SlideFile) -> Response:
    """The report for a browser: in its sandbox, or saved by itself, the link to the network's leads nowhere."""
    page = report.content().replace(NETWORK_LINK, f"{NETWORK_WORDS}: Download › Report".encode())
    kept = {name: report.headers[name] for name in ("cache-control", "content-disposition") if name in report.headers}
    return Response(page, media_type=report.media_type, headers={**kept, "content-security-policy": REPORT_POLICY})


def _current(app_state: AppState, slide: Slide, version: int, *, graph: bool = False) -> SlideCorrections:
    """The corrections now, refused where they are not those that the person saw."""
    current = app_state.corrections_of(slide, graph=graph)
    if current.log.version != version:
        raise _conflict(f"version {version}", f"version {current.log.version}")
    return current


def _undo_or_redo(app_state: AppState, slide: Slide, wanted: UndoBody, action: str) -> CorrectionsDocument:
    current = _current(app_state, slide, wanted.version)
    return _record_step(app_state, slide, current, Step(action=action, origin=ORIGIN, by=wanted.by))


def _record_step(app_state: AppState, slide: Slide, current: SlideCorrections, step: Step) -> CorrectionsDocument:
    """Write a step down, tell the audit log, and have the files made."""
    try:
        with writing("the corrections"):
            log = append(current.mask.folder, current.mask.record, step, after=current.log.version)
    except ConflictError as error:
        raise _conflict(error.got, error.expected) from error
    done = log.steps[-1]
    outcome = f"parts: {max(done.regions, 1)}" if done.of is None else f"step: {done.of}"
    app_state.audit.note(f"correct: {done.action}", slide.slide_id, outcome)
    app_state.corrected.ask(current.mask.folder)
    return _document(app_state, slide)


def _conflict(got: object, expected: object) -> ProblemError:
    return ProblemError(
        409,
        "corrected_elsewhere",
        "the slide was corrected elsewhere meanwhile",
        got=got,
        expected=expected,
        hint="look at the slide as it is now, and correct it again",
    )


def _document(app_state: AppState, slide: Slide) -> CorrectionsDocument:
    current = app_state.corrections_of(slide)
    return CorrectionsDocument.model_validate(
        {
            **history(current.log),
            "revision": app_state.tile_revision(slide, current.now),
            "regions": current.now.regions,
            "area_mm2": sum(pixels.pixels for pixels in current.now.tissue.values()) * current.pixel_mm2,
            "corrected": (ready := app_state.is_corrected(slide, current)),
            "corrected_reason": None if ready else app_state.corrected.failure(current.mask.folder),
            **_graph_state(app_state, slide, current),
        }
    )


def _graph_state(app_state: AppState, slide: Slide, current: SlideCorrections) -> dict[str, Any]:
    """The state of the region graph, how far it is, and why there is none."""
    if app_state.has_region_graph(slide):
        return {"graph": "ready", "graph_progress": None, "graph_reason": None}
    job, reason = app_state.store.graphs.get(slide.id), _impossible(app_state, slide, current)
    if reason is not None:
        return {"graph": "impossible", "graph_progress": None, "graph_reason": reason}
    if job is None or job.status == FAILED:
        failure = None if job is None or job.error is None else job.error.get("got") or job.error.get("what")
        return {"graph": "missing", "graph_progress": None, "graph_reason": failure}
    return {"graph": job.status, "graph_progress": round(job.progress, 4), "graph_reason": None}


def _impossible(app_state: AppState, slide: Slide, current: SlideCorrections) -> str | None:
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
