"""``/v1/slides``: list and add slides, cancel, retry and delete their jobs."""

from __future__ import annotations

from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from ntrm.service.api.access import UPLOAD_TYPE
from ntrm.service.api.app_state import AppState
from ntrm.service.api.intake import check_file_name, check_name, receive, submit_path, submit_upload
from ntrm.service.api.schemas import ErrorDocument, PathRequest, RetryRequest, SlideDocument, SlideList
from ntrm.service.core.problems import ProblemError
from ntrm.service.jobs.slide_record import SlideRow, Status

router = APIRouter(prefix="/v1/slides", tags=["slides"])


SlideKey = Annotated[str, Path(pattern=r"^[0-9a-f]{24}$", description="id of a slide")]
Mpp = Annotated[
    float | None, Query(ge=0.05, le=100, allow_inf_nan=False, description="µm per pixel, where the file lacks it")
]
Name = Annotated[str, Query(max_length=255, description="name of an uploaded file, for its slide_id")]
SafeName = Annotated[
    str | None,
    Query(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$", description="name of an upload's results"),
]


def get_app_state(request: Request) -> AppState:
    """What all requests share."""
    app_state: AppState = request.app.state.app_state
    return app_state


Shared = Annotated[AppState, Depends(get_app_state)]


def get_requested(app_state: Shared, id: SlideKey) -> SlideRow:  # noqa: A002 - the path's own word
    """The slide that the path of a request names."""
    return app_state.store.get(id)


Requested = Annotated[SlideRow, Depends(get_requested)]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: refusals besides those that every request may meet."""
    return {status: {"model": ErrorDocument} for status in statuses}


@router.get("")
def list_slides(app_state: Shared, status: Status | None = None) -> SlideList:
    """Every slide, the newest first."""
    waiting = app_state.store.waiting()
    return SlideList(slides=[app_state.document(slide, waiting) for slide in app_state.store.every(status)])


_BODY = {
    "required": True,
    "content": {
        "application/json": {"schema": PathRequest.model_json_schema()},
        UPLOAD_TYPE: {"schema": {"type": "string", "format": "binary"}},
    },
}


@router.post(
    "",
    status_code=202,
    responses=problems(403, 408, 409, 413, 415, 429, 503, 507),
    openapi_extra={"requestBody": _BODY},
)
async def add_slide(
    request: Request, app_state: Shared, name: Name = "slide", mpp: Mpp = None, slide_id: SafeName = None
) -> SlideDocument:
    """Add a slide: the file itself as the body, or a JSON document that names one under an allowed root.

    A file is sent as ``application/octet-stream`` with its ``name`` and, where it lacks them, its ``mpp`` in the query.
    One without µm/px is refused (``mpp_missing``) but kept: ``retry`` with ``mpp`` takes it up without a new upload.
    """
    _check_worker(app_state)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        try:
            wanted = PathRequest.model_validate_json(await request.body())
        except ValidationError as error:
            raise RequestValidationError(error.errors()) from error
        slide = await run_sync(submit_path, app_state, wanted)
        return await run_sync(app_state.document, slide)
    if kind != UPLOAD_TYPE:
        expected = f"application/json or {UPLOAD_TYPE}"
        raise ProblemError(415, "media_type", "unknown kind of body", got=kind, expected=expected)
    # Before gigabytes are sent in vain.
    check_file_name(name)
    await run_sync(check_name, app_state, slide_id)
    await run_sync(app_state.store.check_room, app_state.settings.limits.queue)
    length, most = request.headers.get("content-length", ""), app_state.settings.limits.uploads
    if app_state.uploads >= most:
        wait = {"Retry-After": "10"}
        raise ProblemError(429, "uploads", "too many uploads at a time", expected=f"at most {most}", headers=wait)
    app_state.uploads += 1
    try:
        incoming = await receive(app_state, request.stream(), int(length) if length.isdecimal() else 0)
        slide = await run_sync(submit_upload, app_state, incoming, name, mpp, slide_id)
    finally:
        app_state.uploads -= 1
    return await run_sync(app_state.document, slide)


@router.get("/{id}", responses=problems(404))
def get_slide(app_state: Shared, slide: Requested) -> SlideDocument:
    """One slide: its job and the short version of its results."""
    return app_state.document(slide)


@router.delete("/{id}", status_code=204, responses=problems(404, 409, 500))
def delete_slide(app_state: Shared, slide: Requested) -> Response:
    """End its jobs, remove its upload and its results, also on a full disk. A file under a root stays."""
    app_state.catalogue.delete(slide)
    return Response(status_code=204)


@router.post("/{id}/cancel", responses=problems(404, 409))
def cancel_slide(app_state: Shared, slide: Requested) -> SlideDocument:
    """Take it out of the queue, or end its job."""
    slide = app_state.store.cancel(slide.id)
    app_state.audit.note("cancel", slide.slide_id)
    return app_state.document(slide)


@router.post("/{id}/retry", responses=problems(404, 408, 409, 413, 429, 503))
def retry_slide(app_state: Shared, slide: Requested, wanted: RetryRequest | None = None) -> SlideDocument:
    """Queue it again, on request with its µm/px; it begins again."""
    _check_worker(app_state)
    mpp = None if wanted is None or wanted.mpp is None else (wanted.mpp, wanted.mpp)
    slide = app_state.store.retry(slide.id, mpp, app_state.settings.limits.queue)
    app_state.audit.note("retry", slide.slide_id)
    return app_state.document(slide)


def _check_worker(app_state: AppState) -> None:
    refusal = app_state.supervisor.refusal
    if refusal is not None:
        reason = {key: refusal.get(key) for key in ("got", "expected")}
        raise ProblemError(503, "no_worker", refusal["what"], **reason, hint=refusal.get("hint") or "")


def invalid(errors: Any) -> ProblemError:
    """What is wrong with a request, by its first error; quotes nothing of the request."""
    first = errors[0] if errors else {"loc": (), "msg": "unusable"}
    where = ".".join(str(key) for key in first["loc"] if isinstance(key, str | int)).removeprefix("body.")
    # Who has only the name of the results would search for the id in vain.
    hint = "GET /v1/slides lists the id of every slide" if where == "path.id" else ""
    what, expected = "the request cannot be understood", str(first["msg"])
    return ProblemError(422, "usage", what, got=where or None, expected=expected, hint=hint)
