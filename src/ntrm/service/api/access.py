"""Who is let in: a check of Host, Origin, and the token or cookie before every request; headers on every answer.

Programs send a token; a browser opens a link that works once and gets a cookie, which is signed with the token: nothing
of it is kept. Comparisons take the same time whatever differs.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ntrm.service.core.problems import ProblemError, document_of
from ntrm.service.core.settings import ServiceSettings, address_in, is_loopback

LINK_SECONDS = 15 * 60
SESSION_SECONDS = 7 * 24 * 3600
LONGEST_COOKIES = 32_768  # Characters: what other services on 127.0.0.1 left in the browser is sent along
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
UPLOAD_TYPE = "application/octet-stream"
MOST_BODY = 2**20  # Bytes of a JSON document: some ten thousand points
OPEN_PATHS = ("/healthz", "/open/", "/page/")
"""Need no token: nothing there reveals anything about slides."""


class Access:
    """Token, links and sessions of a service."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings, self.token = settings, settings.token or secrets.token_urlsafe(32)
        # Browsers do not tell ports apart: each service has a name of its own for its cookie.
        self.cookie = f"ntrm_session_{settings.port}_{_digest(str(settings.out))[:8]}"
        # Slow: whoever has a cookie must not guess the token from it.
        self._key = hashlib.scrypt(self.token.encode(), salt=self.cookie.encode(), n=2**14, r=8, p=1)
        self._links: dict[str, float] = {}
        self._public = _scheme_and_host((settings.public_url or "").rstrip("/"))
        self.secure = self._public[0] == "https"  # Whether the cookie may travel over TLS only

    def new_code(self) -> str:
        """For a link that lets one browser in."""
        code = secrets.token_urlsafe(32)
        self._links[_digest(code)] = time.time() + LINK_SECONDS
        return code

    def redeem(self, code: str) -> str | None:
        """The cookie of a new session for a link's code, which works once and for a short time; None otherwise."""
        if self._links.pop(_digest(code), 0.0) < time.time():
            return None
        content = f"{time.time() + SESSION_SECONDS:.0f}.{secrets.token_urlsafe(32)}"
        return f"{content}.{self._signature(content)}"

    def credentials(self, headers: Headers) -> str | None:
        """How a request shows that it may come in: ``token``, ``cookie`` or not at all."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return "token" if _same(token.strip(), self.token) else None
        for part in headers.get("cookie", "")[:LONGEST_COOKIES].split(";"):
            name, _, value = part.strip().partition("=")
            content, _, signature = value.rpartition(".")
            if name == self.cookie and _same(signature, self._signature(content)):
                return "cookie" if int(content.partition(".")[0]) > time.time() else None
        return None

    def _signature(self, content: str) -> str:
        return hmac.new(self._key, content.encode("utf-8", "surrogateescape"), "sha256").hexdigest()

    def allows_host(self, host: str) -> bool:
        """Whether a Host header names this service, and no other site that points here."""
        match = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(:[0-9]{1,5})?", host.lower())
        name = match[1] if match else ""
        if (self._public[1] and host.lower() == self._public[1]) or is_loopback(name):
            return True
        # A site of an attacker can point a name at this service, never an address.
        own = name == self.settings.host.lower() or address_in(name) is not None
        return own and not self.settings.is_loopback

    def allows_origin(self, origin: str, host: str) -> bool:
        """Whether a request comes from this service's own page."""
        (scheme, name), host = _scheme_and_host(origin), host.lower()
        if self._public[1] and self._public[1] in (name, host):
            return (scheme, name) == self._public
        return scheme in ("http", "https") and name == host

    def problem(self, scope: Scope, headers: Headers) -> ProblemError | None:
        """Why a request is not let in, if so."""
        host, origin, site = headers.get("host", ""), headers.get("origin"), headers.get("sec-fetch-site")
        if len(headers.getlist("host")) != 1 or not self.allows_host(host):
            hint = "use the address it printed, or --public-url"
            return ProblemError(421, "host", "the service does not go by this name", hint=hint)
        foreign = ProblemError(403, "origin", "requests from other sites are refused")
        if origin is not None and not self.allows_origin(origin, host):
            return foreign
        if scope["path"].startswith(OPEN_PATHS):
            return None
        kind = self.credentials(headers)
        if kind is None:
            expected = "Authorization: Bearer TOKEN, or the cookie of a browser that opened the printed link"
            asked = {"WWW-Authenticate": 'Bearer realm="ntrm"'}
            return ProblemError(401, "unauthorised", "who is asking?", expected=expected, headers=asked)
        # Another site can make a browser ask in its user's name, though not with a token. Where an unsafe request comes
        # from is said by the browser; without that it could be another site's form.
        is_safe = scope["method"] in ("GET", "HEAD", "OPTIONS")
        if kind == "cookie" and not is_safe and origin is None and site != "same-origin":
            return ProblemError(403, "origin", "the request does not say which page it comes from")
        return foreign if kind == "cookie" and site in ("cross-site", "same-site") and scope["path"] != "/" else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(_digest(given), _digest(secret))


def _scheme_and_host(origin: str) -> tuple[str, str]:
    """Parts of an ``Origin``, which has no path; a parser of addresses would raise at what is none."""
    scheme, _, host = origin.lower().partition("://")
    return scheme, host


class Guard:
    """Wraps the application; ``locked`` is the page for a browser that is not signed in."""

    def __init__(self, app: ASGIApp, access: Access, locked: Path) -> None:
        self._app, self._access, self._locked = app, access, locked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given, path, answer = Headers(scope=scope), scope["path"], self._app

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if path == "/" or path.startswith("/page/"):
                    # The browser asks each time, so that a new version of the page is seen at once.
                    headers.setdefault("cache-control", "no-cache")
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._access.problem(scope, given)
        if problem is not None:
            answer = JSONResponse(document_of(problem), problem.status, problem.headers)
            if problem.status == 401 and path == "/" and scope["method"] == "GET":
                answer = HTMLResponse(self._locked.read_bytes(), 401)
        # A slide's body has a limit of its own.
        most = None if path == "/v1/slides" and UPLOAD_TYPE in given.get("content-type", "") else MOST_BODY
        # Nothing behind the guard wants cookies, and the library's way of parsing them takes seconds for some.
        plain = [header for header in scope["headers"] if header[0] != b"cookie"]
        bounded = _bounded(receive, most, self._access.settings.limits.idle_seconds)
        await answer({**scope, "headers": plain}, bounded, with_headers)


def _bounded(receive: Receive, most: int | None, idle_seconds: int) -> Receive:
    """Give up a body of which nothing comes for a while, and one that is too large."""
    received, more = 0, True

    async def next_part() -> Message:
        nonlocal received, more
        try:
            # After the body the next message comes only when the client goes away.
            async with asyncio.timeout(idle_seconds if more else None):
                message = await receive()
        except TimeoutError as error:
            raise HTTPException(408, f"a part of it every {idle_seconds} s") from error
        received, more = received + len(message.get("body", b"")), message.get("more_body", False)
        if most is not None and received > most:
            raise HTTPException(413, f"at most {most:,} bytes")
        return message

    return next_part
