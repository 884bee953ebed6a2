"""What stands before every request: Host, Origin, token or cookie; and the headers on every answer."""

from __future__ import annotations

import json
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ntrm.service.access import COOKIE, Access
from ntrm.service.problems import ProblemError, document_of

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OPEN_PATHS = ("/healthz", "/open/", "/page/", "/favicon.ico")
"""Need no token: nothing there tells of slides."""


class Guard:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, access: Access, locked: Path) -> None:
        self._app = app
        self._access = access
        self._locked = locked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._problem(scope)
        if problem is None:
            await self._app(scope, receive, with_headers)
        elif problem.status == 401 and scope["path"] == "/" and scope["method"] == "GET":
            page = self._locked.read_bytes() if self._locked.is_file() else b"<!doctype html><title>locked</title>"
            await _answer(with_headers, 401, page, {"content-type": "text/html; charset=utf-8"})
        else:
            body = json.dumps(document_of(problem), ensure_ascii=False).encode()
            await _answer(with_headers, problem.status, body, {"content-type": "application/json", **problem.headers})

    def _problem(self, scope: Scope) -> ProblemError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._access.allows_host(host):
            return ProblemError(
                421, "host", "the service does not go by this name", mend="use the address it printed, or --public-url"
            )
        origin = headers.get("origin")
        if origin is not None and not self._access.allows_origin(origin, host):
            return ProblemError(403, "origin", "requests from other sites are refused")
        if scope["path"].startswith(OPEN_PATHS):
            return None
        kind = self._credentials(headers)
        if kind is None:
            return ProblemError(
                401,
                "unauthorised",
                "who is asking?",
                expected="Authorization: Bearer TOKEN, or the cookie of a browser that opened the printed link",
                headers={"WWW-Authenticate": 'Bearer realm="ntrm"'},
            )
        return _foreign(scope, headers) if kind == "cookie" else None

    def _credentials(self, headers: Headers) -> str | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return "token" if self._access.knows(token.strip()) else None
        try:
            cookie: Any = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return None
        return "cookie" if cookie is not None and self._access.has_session(cookie.value) else None


def _foreign(scope: Scope, headers: Headers) -> ProblemError | None:
    """Refuse what another site makes a browser do in its user's name."""
    site = headers.get("sec-fetch-site")
    # A browser says where an unsafe request comes from; one that stays silent could be another site's form.
    if scope["method"] not in SAFE_METHODS and headers.get("origin") is None and site != "same-origin":
        return ProblemError(403, "origin", "the request does not say which page it comes from")
    if site in ("cross-site", "same-site") and scope["path"] != "/":
        return ProblemError(403, "origin", "requests from other sites are refused")
    return None


async def _answer(send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
    named = {**headers, "content-length": str(len(body))}
    raw = [(key.lower().encode("latin-1"), value.encode("latin-1")) for key, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
