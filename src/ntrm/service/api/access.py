"""Who may come in: Host, Origin, a token for programs, a link that works once for a browser; headers.

Only hashes of secrets are kept. Comparisons take the same time whatever differs.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import logging
import re
import secrets
import sqlite3
import threading
import time
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ntrm.service.core.problems import ProblemError, document_of
from ntrm.service.core.settings import ServiceSettings, is_loopback
from ntrm.service.jobs.database import JobStore

_log = logging.getLogger(__name__)
COOKIE = "ntrm_session"
LINK_SECONDS = 15 * 60
SESSION_SECONDS = 7 * 24 * 3600
MOST_LINKS = 100
"""Unused ones; the oldest goes."""


class Access:
    """Token, links and sessions of a service."""

    def __init__(self, settings: ServiceSettings, store: JobStore) -> None:
        self.token = settings.token or secrets.token_urlsafe(32)
        self._digest = _digest(self.token)
        self._store = store
        self._links: dict[str, float] = {}
        self._sessions = store.sessions(self._digest)
        self._lock = threading.Lock()
        self._settings = settings
        public = urlsplit(settings.public_url or "")
        self.secure = public.scheme == "https"
        """Whether the cookie may travel over TLS only."""
        self._public = public.netloc.lower()

    def knows(self, token: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(_digest(token), self._digest)

    def new_code(self) -> str:
        """For a link that lets one browser in."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._links) >= MOST_LINKS:
                self._links.pop(next(iter(self._links)))
            self._links[_digest(code)] = time.time() + LINK_SECONDS
        return code

    def redeem(self, code: str) -> str | None:
        """A session's cookie for a link's code; every code works once and for a short time."""
        with self._lock:
            expires = self._links.pop(_digest(code), 0.0)
        if expires < time.time():
            return None
        cookie, until = secrets.token_urlsafe(32), time.time() + SESSION_SECONDS
        try:
            self._store.add_session(_digest(cookie), self._digest, until)
        except sqlite3.Error:
            # A full disk, perhaps, which somebody comes in to empty.
            _log.warning("a browser's session could not be written down: it ends with the service")
        with self._lock:
            self._sessions[_digest(cookie)] = until
        return cookie

    def has_session(self, cookie: str) -> bool:
        """Whether a cookie belongs to a session that goes on."""
        # Found by its hash: how long that takes says nothing about the cookie itself.
        with self._lock:
            return self._sessions.get(_digest(cookie), 0.0) > time.time()

    def allows_host(self, host: str) -> bool:
        """Whether a Host header names this service, and no other site that points here."""
        host = host.lower()
        if self._public and host == self._public:
            return True
        name = _without_port(host)
        if is_loopback(name):
            return True
        if self._settings.is_loopback:
            return False
        # Other sites can only lie with names, never with addresses.
        return name == self._settings.host.lower() or _is_address(name)

    def allows_origin(self, origin: str, host: str) -> bool:
        """Whether a request comes from this service's own page."""
        parts = urlsplit(origin.lower())
        if self._public and parts.netloc == self._public:
            return parts.scheme == urlsplit(self._settings.public_url or "").scheme
        return parts.scheme in ("http", "https") and parts.netloc == host.lower() and not self._is_public(host)

    def _is_public(self, host: str) -> bool:
        return bool(self._public) and host.lower() == self._public


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _without_port(host: str) -> str:
    """The name in a Host header; nothing where it is none.

    >>> _without_port("localhost:80"), _without_port("[::1]:80"), _without_port("[::1"), _without_port("a:b")
    ('localhost', '[::1]', '', '')
    """
    found = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(:[0-9]{1,5})?", host)
    return found[1] if found else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


# What stands before every request: Host, Origin, token or cookie; and the headers on every answer.


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
                421, "host", "the service does not go by this name", hint="use the address it printed, or --public-url"
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
