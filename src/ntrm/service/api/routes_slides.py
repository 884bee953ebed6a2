"""``/v1/slides``: list and add slides, cancel, retry and delete their jobs.

Uploads are streamed to disk, paths lie below a root; both are opened by a limited process, then queued.
"""

from __future__ import annotations

import os
import shutil
import time
import unicodedata
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from ntrm.core.errors import NtrmError
from ntrm.core.mpp import Resolution
from ntrm.service.api.access import UPLOAD_TYPE
from ntrm.service.api.app_state import AppState
from ntrm.service.api.schemas import PathRequest, RetryRequest, SlideDocument, SlideList, SlideRequest, UploadRequest
from ntrm.service.core.problems import ProblemError, conflict, disk_full, document_of
from ntrm.service.core.settings import INCOMING, SERVICE_FOLDER, ServiceSettings, upload_path
from ntrm.service.jobs.rows import SlideRow, Status, new_id
from ntrm.slides.grid import check_cost, credible_resolution
from ntrm.slides.inputs import source_fingerprint
from ntrm.slides.slide_folders import has_parts
from ntrm.slides.slide_ids import safe_name

router = APIRouter(prefix="/v1/slides", tags=["slides"])
LONGEST_NAME = 200

SlideKey = Annotated[str, PathParameter(pattern=r"^[0-9a-f]{24}$", description="id of a slide")]


def get_app_state(request: Request) -> AppState:
    """What all requests share."""
    app_state: AppState = request.app.state.app_state
    return app_state


Shared = Annotated[AppState, Depends(get_app_state)]


def get_requested(app_state: Shared, id: SlideKey) -> SlideRow:  # noqa: A002 - the path's own word
    """The slide that the path of a request names."""
    return app_state.store.get(id)


Requested = Annotated[SlideRow, Depends(get_requested)]


def binary(*kinds: str) -> dict[str, Any]:
    """For OpenAPI: a file of one of these kinds."""
    return {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}


async def receive(app_state: AppState, chunks: AsyncIterator[bytes], declared: int = 0) -> Path:
    """Write an upload of so many bytes, where known, to disk; where it ends early, nothing is left behind."""
    path, written = app_state.settings.hidden / INCOMING / new_id(), 0
    _check_size(app_state.settings, declared, more=declared)
    try:
        async with await anyio.open_file(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            async for chunk in chunks:
                written += len(chunk)
                _check_size(app_state.settings, written, more=len(chunk))
                await stream.write(chunk)
            await stream.flush()
            await run_sync(os.fsync, stream.wrapped.fileno())
        if written == 0:
            raise ProblemError(422, "unreadable", "the upload is empty", expected="the bytes of a slide")
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _check_size(settings: ServiceSettings, size: int, *, more: int) -> None:
    """Refuse an upload that is too large, or one of which as much as follows has no room."""
    most, hint = settings.limits.upload_bytes, "name it by path"
    if size > most:
        raise ProblemError(413, "too_large", "the upload is too large", expected=f"at most {most:,} bytes", hint=hint)
    if shutil.disk_usage(settings.hidden).free - more < settings.limits.reserve_bytes:
        raise disk_full()


def check_file_name(name: str) -> None:
    """Refuse a file that is by its name only one of a slide's: its content may look like a whole picture."""
    if has_parts(PurePosixPath(name)):
        got, expected = f"a file that ends in {PurePosixPath(name).suffix.lower()}", "a slide that is one file"
        hint = "name it by its path below a --root of the service, or convert it in QuPath to OME-TIFF"
        raise ProblemError(422, "unreadable", "a slide of several files", got=got, expected=expected, hint=hint)


def submit_upload(app_state: AppState, incoming: Path, wanted: UploadRequest) -> SlideRow:
    """Queue a file that was uploaded; without µm/px it is kept and waits for them."""
    key = new_id()
    path = upload_path(app_state.settings.hidden, key)
    incoming.rename(path)
    try:
        slide, problem = _add(app_state, key, path, wanted.name, wanted, is_upload=True)
    except BaseException:
        app_state.readers.forget(path)
        path.unlink(missing_ok=True)
        raise
    app_state.audit.note("upload", slide.slide_id, "kept" if problem else "queued")
    if problem is not None:
        problem.more["slide"] = slide.id
        raise problem
    return slide


def submit_path(app_state: AppState, wanted: PathRequest) -> SlideRow:
    """Queue a file of the server."""
    path = file_under(app_state.settings.roots, wanted.path)
    slide, _ = _add(app_state, new_id(), path, path.name, wanted, is_upload=False)
    app_state.audit.note("path", slide.slide_id, "queued")
    return slide


def _add(
    app_state: AppState, key: str, path: Path, file: str, wanted: SlideRequest, *, is_upload: bool
) -> tuple[SlideRow, ProblemError | None]:
    """Add a slide under the name that was asked for, or under a free one; refuses at once what a worker would refuse.

    An upload without µm/px is added, too, as one that failed for that reason.
    """
    limits, mpp, slide_id, problem = app_state.settings.limits, wanted.mpp, wanted.slide_id, None
    # It stays open for a while: whoever sends a slide views it.
    with app_state.readers.using(path, alone=is_upload) as opened:
        info = opened.info
    if info.width * info.height > limits.pixels:
        got, most = f"{info.width} × {info.height}", f"at most {limits.pixels:,}"
        raise ProblemError(413, "too_many_pixels", "the slide has too many pixels", got=got, expected=most)
    try:
        resolution = credible_resolution(info) if mpp is None else Resolution.square(mpp)
    except NtrmError as error:
        hint = "look the scan resolution up and give it as mpp; it is never guessed"
        problem = ProblemError(422, "mpp_missing", error.what, got=error.got, expected=error.expected, hint=hint)
        if not is_upload:
            raise problem from error
    else:
        if app_state.model.mpp is not None:
            check_cost(info, resolution, app_state.model.mpp, path.stat().st_size)
    name, now = display_name(file), time.time()
    stem = name.rsplit(".", 1)[0] if "." in name.strip(".") else name
    slide = SlideRow(
        id=key,
        slide_id=slide_id or safe_name(stem or "slide"),
        # A slide_id that was asked for stands for the file's own name everywhere.
        name=slide_id or stem or "slide",
        origin="upload" if is_upload else "path",
        source=path,
        mpp=None if mpp is None else (mpp, mpp),
        status="failed" if problem else "queued",
        created=now,
        # A file below a root is recognised by its content, wherever its root lies the next time.
        fingerprint=None if is_upload else source_fingerprint(path),
        error=document_of(problem)["error"] if problem else None,
        finished=now if problem else None,
        area=info.area,
        file_mpp=None if info.resolution is None else (info.resolution.x, info.resolution.y),
    )
    # One at a time: files of one name may come in together.
    with app_state.naming:
        check_name(app_state, slide_id)
        names = chain([slide.slide_id], (f"{slide.slide_id[:90]}-{number}" for number in count(2)))
        free = slide_id or next(name for name in names if not _is_taken(app_state, name))
        return app_state.store.add(replace(slide, slide_id=free), limits.queue), problem


def check_name(app_state: AppState, name: str | None) -> None:
    """Refuse a name that was asked for but is not safe, or taken."""
    if name is None:
        return
    if safe_name(name) != name:
        expected = "1 to 100 of A-Z a-z 0-9 . _ -, and not the name of a file of the results"
        raise ProblemError(422, "usage", "a slide_id that is not a safe name", got=name, expected=expected)
    if _is_taken(app_state, name):
        raise conflict("the name is taken", got=name, hint="choose another slide_id")


def _is_taken(app_state: AppState, name: str) -> bool:
    # Also by files that are no slide, such as the tables.
    return name.lower() in app_state.store.taken_names() or (app_state.settings.out / name).exists()


def file_under(roots: Sequence[Path], text: str) -> Path:
    """The file that ``text`` names, absolute or below a root; refuses whatever lies outside, also through links.

    The answer is the same for a file outside and for one that does not exist.
    """
    refusal = ProblemError(
        403,
        "outside",
        "no such slide under an allowed root",
        expected="a file below a folder that was given with --root",
        hint="start the service with --root FOLDER, or upload the slide",
    )
    for root in roots:
        base = root.resolve()
        try:
            path = (base / text).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            continue
        # After every link is followed: what counts is where the file lies. The service's own files are no slides.
        if path.is_relative_to(base) and path != base and SERVICE_FOLDER not in path.parts:
            if path.is_dir():
                raise ProblemError(422, "unreadable", "the path names a folder", expected="the slide's main file")
            if path.is_file():
                return path
    raise refusal


def display_name(text: str) -> str:
    r"""A file's name as it may be shown: one line, no control characters, no change of writing direction.

    >>> display_name("a\x1b[31m\u202eb.svs")
    'a[31mb.svs'
    """
    last = text.replace("\\", "/").rsplit("/", 1)[-1]
    shown = "".join(letter for letter in last if unicodedata.category(letter)[0] != "C")
    return " ".join(shown.split())[:LONGEST_NAME]


@router.get("")
def list_slides(app_state: Shared, status: Status | None = None) -> SlideList:
    """Every slide, the newest first."""
    waiting = app_state.store.waiting()
    return SlideList(slides=[app_state.document(slide, waiting) for slide in app_state.store.every(status)])


_BODY = {"application/json": {"schema": PathRequest.model_json_schema()}, **binary(UPLOAD_TYPE)}


@router.post("", status_code=202, openapi_extra={"requestBody": {"required": True, "content": _BODY}})
async def add_slide(request: Request, app_state: Shared, upload: Annotated[UploadRequest, Query()]) -> SlideDocument:
    """Add a slide: the file itself as the body, or a JSON document that names one under an allowed root.

    A file is sent as ``application/octet-stream`` with its ``name`` and, where it lacks them, its ``mpp`` in the query.
    One without µm/px is refused (``mpp_missing``) but kept: ``retry`` with ``mpp`` takes it up without a new upload.
    """
    app_state.check_worker()
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
    check_file_name(upload.name)
    await run_sync(check_name, app_state, upload.slide_id)
    await run_sync(app_state.store.check_room, app_state.settings.limits.queue)
    length, most = request.headers.get("content-length", ""), app_state.settings.limits.uploads
    if app_state.uploads >= most:
        wait = {"Retry-After": "10"}
        raise ProblemError(429, "uploads", "too many uploads at a time", expected=f"at most {most}", headers=wait)
    app_state.uploads += 1
    try:
        incoming = await receive(app_state, request.stream(), int(length) if length.isdecimal() else 0)
        slide = await run_sync(submit_upload, app_state, incoming, upload)
    finally:
        app_state.uploads -= 1
    return await run_sync(app_state.document, slide)


@router.get("/{id}")
def get_slide(app_state: Shared, slide: Requested) -> SlideDocument:
    """One slide: its job and the short version of its results."""
    return app_state.document(slide)


@router.delete("/{id}", status_code=204)
def delete_slide(app_state: Shared, slide: Requested) -> Response:
    """End its jobs, remove its upload and its results, also on a full disk. A file under a root stays."""
    app_state.catalogue.delete(slide)
    app_state.audit.note("delete", slide.slide_id)
    return Response(status_code=204)


@router.post("/{id}/cancel")
def cancel_slide(app_state: Shared, slide: Requested) -> SlideDocument:
    """Take it out of the queue, or end its job."""
    slide = app_state.store.cancel(slide.id)
    app_state.audit.note("cancel", slide.slide_id)
    return app_state.document(slide)


@router.post("/{id}/retry")
def retry_slide(app_state: Shared, slide: Requested, wanted: RetryRequest | None = None) -> SlideDocument:
    """Queue it again, on request with its µm/px; it begins again."""
    app_state.check_worker()
    mpp = None if wanted is None or wanted.mpp is None else (wanted.mpp, wanted.mpp)
    slide = app_state.store.retry(slide.id, mpp, app_state.settings.limits.queue)
    app_state.audit.note("retry", slide.slide_id)
    return app_state.document(slide)
