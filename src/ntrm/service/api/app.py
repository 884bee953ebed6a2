"""The web application: routes, errors as documents, the page; ``serve`` runs it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles

from ntrm.core.errors import NtrmError
from ntrm.service.api import routes_about, routes_results, routes_slides, routes_tiles
from ntrm.service.api.access import COOKIE, HEADERS, SESSION_SECONDS, Guard
from ntrm.service.api.app_state import AppState
from ntrm.service.api.routes_slides import invalid
from ntrm.service.api.schemas import ErrorDocument, PathRequest, RetryRequest
from ntrm.service.core.disk import disk_full, is_full
from ntrm.service.core.problems import ProblemError, busy, document_of, missing, status_of
from ntrm.service.core.settings import ServiceSettings
from ntrm.version import __version__

PAGE = Path(__file__).parents[1] / "page"
INDEX, LOCKED = "index.html", "locked.html"
DESCRIPTION = "Tissue segmentation of H&E skin sections. For research, not for diagnosis."


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

    everywhere: dict[int | str, dict[str, Any]] = {status: {"model": ErrorDocument} for status in (401, 403, 421, 422)}
    app = FastAPI(
        title="ntrm",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        responses=everywhere,
        # Their pages fetch scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        # Nothing is told to anybody, whatever the environment says.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.app_state = app_state
    for routes in (routes_about, routes_slides, routes_results, routes_tiles):
        app.include_router(routes.router)
    _add_page(app, app_state)
    _add_errors(app)
    _describe(app)
    app.add_middleware(Guard, access=app_state.access, locked=PAGE / LOCKED)
    return app


def _add_page(app: FastAPI, app_state: AppState) -> None:
    @app.get("/", include_in_schema=False)
    def index() -> Response:
        if not (PAGE / INDEX).is_file():
            raise missing("this installation has no page", "use the HTTP interface, or install the package again")
        return FileResponse(PAGE / INDEX, headers={"cache-control": "no-cache"})

    @app.get("/open/{code}", include_in_schema=False)
    def enter(code: str) -> Response:
        cookie = app_state.access.redeem(code)
        answer = RedirectResponse("/", status_code=303)
        if cookie is None:
            app_state.audit.count_refusal()
        else:
            app_state.audit.note("open")
            answer.set_cookie(
                COOKIE,
                cookie,
                max_age=SESSION_SECONDS,
                httponly=True,
                samesite="strict",
                secure=app_state.access.secure,
            )
        return answer

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> Response:
        return Response(status_code=204)

    if PAGE.is_dir():
        app.mount("/page", _Page(directory=PAGE))


class _Page(StaticFiles):
    """The page's files: asked for anew each time, so that a new version is seen at once."""

    async def get_response(self, path: str, scope: Any) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["cache-control"] = "no-cache"
        return answer


def _describe(app: FastAPI) -> None:
    """Add to the OpenAPI description what the guard demands, and the documents of bodies that are read by hand."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = plain()
            parts = described["components"]
            parts["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            }
            for kind in (PathRequest, RetryRequest):
                parts["schemas"][kind.__name__] = kind.model_json_schema(ref_template="#/components/schemas/{model}")
            described["security"] = [{"token": []}, {"session": []}]
            described["paths"]["/healthz"]["get"]["security"] = []
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _add_errors(app: FastAPI) -> None:
    def answer(error: NtrmError, headers: dict[str, str] | None = None) -> JSONResponse:
        told = disk_full() if is_full(error) else error
        return JSONResponse(document_of(told), status_of(told), headers=headers)

    @app.exception_handler(ProblemError)
    async def problem(_: Request, error: ProblemError) -> Response:
        return answer(error, error.headers)

    @app.exception_handler(NtrmError)
    async def ours(_: Request, error: NtrmError) -> Response:
        return answer(error)

    @app.exception_handler(RequestValidationError)
    async def wrong(_: Request, error: RequestValidationError) -> Response:
        return answer(invalid(error.errors()))

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> Response:
        texts = {404: "there is nothing here", 405: "this cannot be done here"}
        code = {404: "not_found", 405: "method"}.get(error.status_code, "http")
        what = texts.get(error.status_code, str(error.detail))
        return answer(ProblemError(error.status_code, code, what), dict(error.headers or {}))

    @app.exception_handler(sqlite3.Error)
    async def database(_: Request, error: sqlite3.Error) -> Response:
        unanswered = busy("the database does not answer", "look whether the disk is full")
        return answer(disk_full() if is_full(error) else unanswered)

    @app.exception_handler(OSError)
    async def system(_: Request, error: OSError) -> Response:
        if is_full(error):
            return answer(disk_full())
        raise error

    @app.exception_handler(Exception)
    async def bug(_: Request, __: Exception) -> Response:
        # Answered outside of the guard, which adds the headers otherwise.
        return answer(ProblemError(500, "bug", "something went wrong", hint="look into the service's log"), HEADERS)

    @app.exception_handler(FileNotFoundError)
    async def gone(_: Request, __: FileNotFoundError) -> Response:
        return answer(missing("the file was deleted meanwhile"))

    @app.exception_handler(ClientDisconnect)
    async def left(_: Request, __: ClientDisconnect) -> Response:
        return answer(ProblemError(400, "disconnected", "the client went away"))
