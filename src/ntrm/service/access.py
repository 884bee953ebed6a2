"""Who may come in: a token for programs, a link that works once for a browser and leaves a cookie there.

Only hashes of secrets are kept. Comparisons take the same time whatever differs.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
import sqlite3
import threading
import time
from urllib.parse import urlsplit

from ntrm.service.jobs import JobStore
from ntrm.service.settings import ServiceSettings, is_loopback

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
