"""Slides that come in: streamed to disk, looked into by a limited process, then queued."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from anyio.to_thread import run_sync

from ntrm.core.errors import NtrmError
from ntrm.core.mpp import Resolution
from ntrm.service.api.app_state import AppState
from ntrm.service.core.disk import disk_full
from ntrm.service.core.problems import ProblemError, document_of
from ntrm.service.core.settings import ServiceLimits
from ntrm.service.core.shared_paths import INCOMING, display_name, upload_path
from ntrm.service.jobs.database import FAILED, MPP_MISSING, PATH, QUEUED, UPLOAD, Slide, new_id
from ntrm.wsi.cost import check_cost
from ntrm.wsi.grid import credible_resolution
from ntrm.wsi.inputs import source_fingerprint
from ntrm.wsi.naming import safe_name
from ntrm.wsi.readers.reader import SlideInfo

BUFFER = 2**20
CHECK_BYTES = 64 * 2**20
"""The free space is looked at again after so many bytes."""


async def receive(app_state: AppState, chunks: AsyncIterator[bytes], declared: int | None) -> Path:
    """Write an upload to disk; whatever ends it early leaves nothing behind."""
    limits = app_state.settings.limits
    _check_size(declared or 0, limits.upload_bytes)
    path = app_state.settings.hidden / INCOMING / new_id()
    _check_space(path.parent, declared or 0, limits.reserve_bytes)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    complete = False
    try:
        written, checked, buffer = 0, 0, bytearray()
        async for chunk in steadily(chunks, limits):
            buffer += chunk
            _check_size(written + len(buffer), limits.upload_bytes)
            if len(buffer) >= BUFFER:
                written += await run_sync(_write, descriptor, bytes(buffer))
                buffer.clear()
            if written - checked >= CHECK_BYTES:
                checked = written
                _check_space(path.parent, 0, limits.reserve_bytes)
        written += await run_sync(_write, descriptor, bytes(buffer))
        await run_sync(os.fsync, descriptor)
        if written == 0:
            raise ProblemError(422, "unreadable", "the upload is empty", expected="the bytes of a slide")
        complete = True
    finally:
        os.close(descriptor)
        if not complete:
            path.unlink(missing_ok=True)
    return path


def submit_upload(app_state: AppState, incoming: Path, name: str, mpp: float | None, slide_id: str | None) -> Slide:
    """Queue a file that was uploaded; without µm/px it is kept and waits for them."""
    made = new_id()
    place = upload_path(app_state.settings.hidden, made)
    incoming.rename(place)
    try:
        info = look_into(app_state, place, alone=True)
        lacking = _mpp_problem(info, mpp)
        waiting = [slide for slide in app_state.store.every(FAILED) if _waits_for_mpp(slide)]
        fingerprint = source_fingerprint(place) if lacking or waiting else None
        for slide in waiting:
            # The same file sent again, now with its µm/px, takes the place of the one that waits for them.
            if slide.fingerprint == fingerprint:
                app_state.delete(slide)
        slide = _added(app_state, made, place, UPLOAD, info, display_name(name), mpp, slide_id, fingerprint, lacking)
    except BaseException:
        app_state.readers.forget(place)
        place.unlink(missing_ok=True)
        raise
    app_state.audit.note("upload", slide.slide_id, "kept" if lacking else "queued")
    if lacking is not None:
        lacking.more["slide"] = slide.id
        raise lacking
    app_state.supervisor.wake()
    return slide


def submit_path(app_state: AppState, path: Path, mpp: float | None, slide_id: str | None) -> Slide:
    """Queue a file of the server."""
    info = look_into(app_state, path, alone=False)
    lacking = _mpp_problem(info, mpp)
    if lacking is not None:
        raise lacking
    # Its content tells it from others, wherever its root lies the next time.
    fingerprint = source_fingerprint(path)
    slide = _added(app_state, new_id(), path, PATH, info, display_name(path.name), mpp, slide_id, fingerprint)
    app_state.audit.note("path", slide.slide_id, "queued")
    app_state.supervisor.wake()
    return slide


def look_into(app_state: AppState, path: Path, *, alone: bool) -> SlideInfo:
    """What the file is, by its content; refuses what is no slide, or too large a one."""
    limits = app_state.settings.limits
    # It stays open for a while: whoever sends a slide looks at it.
    with app_state.readers.using(path, alone=alone) as slide:
        info = slide.info
    if info.width * info.height > limits.pixels:
        raise ProblemError(
            413,
            "too_many_pixels",
            "the slide has too many pixels",
            got=f"{info.width} × {info.height}",
            expected=f"at most {limits.pixels:,}",
        )
    return info


def _added(
    app_state: AppState,
    made: str,
    place: Path,
    origin: str,
    info: SlideInfo,
    name: str,
    mpp: float | None,
    slide_id: str | None,
    fingerprint: str | None,
    lacking: ProblemError | None = None,
) -> Slide:
    _check_cost(app_state, info, place, mpp)
    now = time.time()
    stem = name.rsplit(".", 1)[0] if "." in name.strip(".") else name
    slide = Slide(
        id=made,
        slide_id=slide_id or safe_name(stem or "slide"),
        # A name that was given stands for the file's own everywhere.
        name=slide_id or stem or "slide",
        origin=origin,
        source=place,
        mpp=None if mpp is None else (mpp, mpp),
        status=QUEUED if lacking is None else FAILED,
        created=now,
        queued=now,
        finished=None if lacking is None else now,
        fingerprint=fingerprint,
        error=None if lacking is None else document_of(lacking)["error"],
        info=_plain(info),
    )
    # One at a time: files of one name may come in together.
    with app_state.naming:
        check_name(app_state, slide_id)
        chosen = slide if slide_id else replace(slide, slide_id=_free_name(app_state, slide.slide_id))
        return app_state.store.add(chosen, app_state.settings.limits.queue)


def _check_cost(app_state: AppState, info: SlideInfo, place: Path, mpp: float | None) -> None:
    """Refuse at once what the worker would refuse; that one judges where model or µm/px are not known yet."""
    stated = info.resolution if mpp is None else Resolution.square(mpp)
    if app_state.model is not None and app_state.model.mpp is not None and stated is not None:
        check_cost(info, stated, app_state.model.mpp, place.stat().st_size)


def _waits_for_mpp(slide: Slide) -> bool:
    return slide.origin == UPLOAD and (slide.error or {}).get("code") == MPP_MISSING


def _mpp_problem(info: SlideInfo, mpp: float | None) -> ProblemError | None:
    if mpp is not None:
        Resolution.square(mpp)
        return None
    try:
        credible_resolution(info)
    except NtrmError as error:
        hint = "look the scan resolution up and give it as mpp; it is never guessed"
        return ProblemError(422, MPP_MISSING, error.what, got=error.got, expected=error.expected, hint=hint)
    return None


def check_name(app_state: AppState, name: str | None) -> None:
    """Refuse a name that was asked for but is not safe, or taken."""
    if name is None:
        return
    if safe_name(name) != name:
        raise ProblemError(
            422, "usage", "a slide_id that is no safe name", got=name, expected="1 to 100 of A-Z a-z 0-9 . _ -"
        )
    if _is_taken(app_state, name, app_state.store.taken_names()):
        raise ProblemError(409, "conflict", "the name is taken", got=name, hint="choose another slide_id")


def _free_name(app_state: AppState, name: str) -> str:
    taken = app_state.store.taken_names()
    if not _is_taken(app_state, name, taken):
        return name
    numbered = (f"{name[:90]}-{number}" for number in range(2, 10**6))
    return next(each for each in numbered if not _is_taken(app_state, each, taken))


def _is_taken(app_state: AppState, name: str, taken: set[str]) -> bool:
    # Also by files that are no slide, such as the tables.
    return name.lower() in taken or (app_state.settings.out / name).exists()


def _plain(info: SlideInfo) -> dict[str, Any]:
    return {key: value for key, value in info.as_dict().items() if key in ("width", "height", "mpp", "bounds")}


async def steadily(chunks: AsyncIterator[bytes], limits: ServiceLimits) -> AsyncIterator[bytes]:
    """Chunks, as long as enough of them keep coming."""
    left, fresh = float(limits.idle_seconds), 0
    while True:
        begun = time.monotonic()
        try:
            async with asyncio.timeout(left):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise ProblemError(
                408,
                "slow",
                "the upload is too slow",
                got=f"{fresh:,} bytes in {limits.idle_seconds} s",
                expected=f"at least {limits.idle_bytes:,} bytes every {limits.idle_seconds} s",
                hint="send it over a faster connection, or name it by path",
            ) from error
        # Only the waiting counts: a slow disk is not the sender's fault.
        left, fresh = left - (time.monotonic() - begun), fresh + len(chunk)
        if fresh >= limits.idle_bytes:
            left, fresh = float(limits.idle_seconds), 0
        yield chunk


def _write(descriptor: int, content: bytes) -> int:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    return len(content)


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise ProblemError(
            413, "too_large", "the upload is too large", expected=f"at most {most:,} bytes", hint="name it by path"
        )


def _check_space(folder: Path, size: int, reserve: int) -> None:
    free = shutil.disk_usage(folder).free
    if free - size < reserve:
        raise disk_full()
