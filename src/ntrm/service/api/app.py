"""The web application: the service's own routes, the page, errors as documents; ``serve`` runs it."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles

from ntrm.core.errors import NtrmError, UsageError
from ntrm.correct.engine import NotReadyError
from ntrm.correct.log import ConflictError
from ntrm.models.folders import BUNDLED
from ntrm.service.api import routes_classes, routes_corrections, routes_results, routes_slides, schemas
from ntrm.service.api.access import HEADERS, LINK_SECONDS, SESSION_SECONDS, Guard
from ntrm.service.api.app_state import AppState
from ntrm.service.api.routes_slides import Shared
from ntrm.service.core import problems
from ntrm.service.core.problems import ProblemError
from ntrm.service.core.settings import ServiceSettings
from ntrm.version import __version__

NOTICE = "For research, not for diagnosis."
BUNDLED_NOTICE = "The bundled model has seen synthetic sections only: for trying the software, not for real slides."
NEARLY_FULL = 4 * 2**20  # Free bytes with which nothing new can be written
PAGE = Path(__file__).parents[1] / "page"
router, open_router = APIRouter(tags=["service"]), APIRouter(tags=["service"])


def create_app(settings: ServiceSettings) -> FastAPI:
    """The application of one service; opening its lifespan starts the workers, closing it stops them."""
    app_state = AppState(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        app_state.open()
        try:
            yield
        finally:
            app_state.close()

    app = FastAPI(
        title="ntrm",
        version=__version__,
        description="Tissue segmentation of H&E skin sections. For research, not for diagnosis.",
        lifespan=lifespan,
        responses={"default": {"model": schemas.ErrorDocument, "description": "a refusal, and how to mend it"}},
        # Their pages fetch scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        # Off, whatever the environment says.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.app_state = app_state
    # Said for the description alone: ``Guard`` asks for them.
    cookie = APIKeyCookie(name=app_state.access.cookie, scheme_name="session", auto_error=False)
    asked = [Security(HTTPBearer(scheme_name="token", auto_error=False)), Security(cookie)]
    app.include_router(open_router)
    # The files of results are last: what is not another address is the name of one.
    for routes in (
        router,
        routes_classes.router,
        routes_slides.router,
        routes_corrections.router,
        routes_results.router,
    ):
        app.include_router(routes, dependencies=asked)
    app.mount("/page", StaticFiles(directory=PAGE))
    for kind in _PROBLEMS:
        app.add_exception_handler(kind, _answer)
    app.add_middleware(Guard, access=app_state.access, locked=PAGE / "locked.html")
    return app


@open_router.get("/healthz")
def health(app_state: Shared) -> schemas.Health:
    """Whether the service answers, has a worker and room on its disk; needs no token."""
    settings = app_state.settings
    try:
        free = shutil.disk_usage(settings.hidden).free
    except OSError:
        free = -1
    checks: dict[schemas.Reason, bool] = {
        "no_worker": app_state.supervisor.state == "refused",
        "disk_missing": free < 0,
        "disk_full": free < NEARLY_FULL,
        "disk_low": free < settings.limits.reserve_bytes,
        "housekeeping": bool(app_state.watch.failing),
    }
    reason: schemas.Reason = next((reason for reason, fails in checks.items() if fails), "ok")
    return schemas.Health(status="ok" if reason == "ok" else "degraded", reason=reason, version=__version__)


@router.get("/v1/about")
def about(app_state: Shared) -> schemas.About:
    """Version, model, classes with their colours, limits."""
    settings, model, refusal = app_state.settings, app_state.model, app_state.supervisor.refusal
    return schemas.About(
        version=__version__,
        model={
            "name": model.name or model.arch,
            "version": model.version,
            "sha256": app_state.weights_sha256,
            "mpp": model.mpp,
        },
        notice=f"{NOTICE} {BUNDLED_NOTICE}" if settings.model == BUNDLED and app_state.blank is None else NOTICE,
        classes=schemas.classes_of(model.schema),
        classes_open=app_state.blank is not None,
        limits={name: getattr(settings.limits, name) for name in ("upload_bytes", "pixels", "queue", "uploads")},
        server_paths=bool(settings.roots),
        worker=app_state.supervisor.state,  # type: ignore[arg-type]
        worker_error=None if refusal is None else schemas.ErrorBody(**refusal),
        queue=app_state.store.counts(),
    )


@router.post("/v1/links", status_code=201)
def link(app_state: Shared) -> dict[Literal["path", "expires"], str]:
    """A link that signs one browser in, once; it expires soon."""
    app_state.audit.note("link")
    expires = schemas.iso(time.time() + LINK_SECONDS) or ""
    return {"path": f"/open/{app_state.access.new_code()}", "expires": expires}


@router.get("/", include_in_schema=False)
def index() -> Response:
    """The page."""
    return FileResponse(PAGE / "index.html")


@router.get("/open/{code}", include_in_schema=False)
def sign_in(app_state: Shared, code: str) -> Response:
    """Exchange the code of a link for a session's cookie."""
    access = app_state.access
    cookie = access.redeem(code)
    if cookie is None:
        return RedirectResponse("/", status_code=303)
    app_state.audit.note("open")
    # No redirect: where another page or a file led here, the browser would not send the new cookie along with it.
    answer = HTMLResponse('<a href="/">Signed in</a>', headers={"refresh": "0;url=/"})
    end, secure = SESSION_SECONDS, access.secure
    answer.set_cookie(access.cookie, cookie, max_age=end, httponly=True, samesite="strict", secure=secure)
    return answer


async def _answer(_: Request, error: Exception) -> Response:
    known = next(kind for kind in type(error).__mro__ if kind in _PROBLEMS)
    problem = problems.disk_full() if problems.is_full(error) else _PROBLEMS[known](error)
    status = problem.status if isinstance(problem, ProblemError) else 400 if isinstance(problem, UsageError) else 422
    return JSONResponse(problems.document_of(problem), status, getattr(problem, "headers", None))


def _invalid(error: RequestValidationError) -> ProblemError:
    """What is wrong with a request, by its first error; quotes nothing of the request."""
    first = next(iter(error.errors()), {"loc": (), "msg": "unusable"})
    where = ".".join(str(key) for key in first["loc"] if isinstance(key, str | int)).removeprefix("body.")
    # Who has only the name of the results would search for the id in vain.
    hint = "GET /v1/slides lists the id of every slide" if where == "path.id" else ""
    what, expected = "the request cannot be understood", str(first["msg"])
    return ProblemError(422, "usage", what, got=where or None, expected=expected, hint=hint)


def _http_problem(error: HTTPException) -> ProblemError:
    known = {
        404: ("not_found", "there is nothing here"),
        405: ("method", "this cannot be done here"),
        408: ("slow", "the request is too slow"),
        413: ("too_large", "the request is too large"),
    }
    code, what = known.get(error.status_code, ("http", str(error.detail)))
    expected = error.detail if error.status_code in (408, 413) else None
    return ProblemError(error.status_code, code, what, expected=expected, headers=error.headers)


def _bug(error: Exception) -> ProblemError:
    if isinstance(error, OSError):
        raise error  # so that it is logged
    # Answered outside of ``Guard``, which adds the headers otherwise.
    return ProblemError(500, "bug", "something went wrong", hint="look into the service's log", headers=HEADERS)


def _conflict(code: str) -> Callable[[NtrmError], ProblemError]:
    """What a person can mend by looking again, or by waiting for the texture."""
    return lambda it: ProblemError(409, code, it.what, got=it.got, expected=it.expected, hint=it.hint)


_PROBLEMS: dict[type[Exception], Callable[[Any], NtrmError]] = {
    NtrmError: lambda error: error,
    ConflictError: _conflict("corrected_elsewhere"),
    NotReadyError: _conflict("no_region_graph"),
    RequestValidationError: _invalid,
    HTTPException: _http_problem,
    ClientDisconnect: lambda _: ProblemError(400, "disconnected", "the client went away"),
    sqlite3.Error: lambda _: problems.busy("the database does not answer", "look whether the disk is full"),
    FileNotFoundError: lambda _: problems.missing("the file was deleted meanwhile"),
    OSError: _bug,
    Exception: _bug,
}
"""What an error that reaches the application is answered with; on a full disk, that it is full."""
