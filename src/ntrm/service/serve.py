"""Run the service until it is stopped, with limits on connections.

uvicorn waits for ever for the end of a request's headers and for a client that does not read its answer, and takes
connections until no descriptor is left. ``BoundedProtocol`` sets time limits for both, and one connection too many
replaces the one that has kept the service waiting longest.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.locks import holding
from ntrm.results.folder import ResultsFolder
from ntrm.results.paths import RUN
from ntrm.results.run_record import read_run
from ntrm.service.api.access import HEADERS
from ntrm.service.api.app import create_app
from ntrm.service.core.model_info import check_model, read_facts
from ntrm.service.core.problems import ProblemError, busy, document_of
from ntrm.service.core.settings import SERVER_LOCK, SERVICE_FOLDER, ServiceLimits, ServiceSettings

BACKLOG = 128
"""Connections that are accepted at once, before any of them can be refused: far fewer than there are descriptors."""
GRACE_SECONDS = 5
KEEP_ALIVE_SECONDS = 30


def serve(settings: ServiceSettings, opened: Callable[[str, str], None]) -> int:
    """Serve until SIGTERM (0) or Ctrl-C (130); ``opened`` gets the address and the path of the first link.

    One service at a time works in a folder of results.
    """
    _check_out(settings.out)
    if os.path.lexists(settings.hidden):
        ResultsFolder(settings.out).own(SERVICE_FOLDER)
    check_model(settings)
    _check_classes(settings)
    ResultsFolder(settings.out).own(SERVICE_FOLDER)
    with holding(settings.hidden / SERVER_LOCK), _listening(settings) as listener:
        app = create_app(settings)
        server = _Server(configured(app, settings))
        port = listener.getsockname()[1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = settings.public_url or f"http://{host}:{port}"
        server.when_started = lambda: opened(address.rstrip("/"), f"/open/{app.state.app_state.access.new_code()}")
        server.run(sockets=[listener])
        return 128 + signal.SIGINT if server.signal == signal.SIGINT else 0


def configured(app: FastAPI, settings: ServiceSettings) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        app,
        http=bounded(settings.limits),
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        backlog=BACKLOG,
        ws="none",
    )


def _check_out(out: Path) -> None:
    """Refuse early what no worker would accept."""
    if not next(path for path in (out, *out.absolute().parents) if path.exists()).is_dir():
        raise UsageError("the output is not a folder", got=out, hint="choose another folder")
    other = next((path for path in out.iterdir() if path.name[0] != "."), None) if out.is_dir() else None
    if other is not None and not (out / RUN).is_file():
        raise RefusedError(
            f"{out} is not empty and holds no results",
            got=other.name,
            hint="name a folder that ntrm segment wrote to, or a new one",
        )


def _check_classes(settings: ServiceSettings) -> None:
    """Refuse results of other classes than the model's: they would be shown under the wrong names."""
    facts = read_facts(settings)
    try:
        run = read_run(settings.out)
    except (DataError, UsageError):
        return  # nothing there yet, or something that the worker refuses with its reason
    if facts is not None and run.classes != facts.schema.names:
        raise RefusedError(
            f"{settings.out} holds results of other classes than the model's",
            got=", ".join(run.classes),
            expected=", ".join(facts.schema.names),
            hint=f"give --model with the model that made them ({run.model.get('name')}), or name another folder",
        )


class _Server(uvicorn.Server):
    """Calls ``when_started`` once it listens, and keeps the signal that ended it."""

    signal: int | None = None
    when_started: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.when_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signal = sig
        super().handle_exit(sig, frame)
        # uvicorn would raise it again at the end; workers are stopped in order first.
        self._captured_signals.clear()


def _listening(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named: only then does asyncio send small answers at once instead of 40 ms later.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {settings.host} port {settings.port}",
            got=error.strerror,
            hint="choose an address of this machine for --host"
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            else "choose another --port, or 0 for any free one",
        ) from error
    return listener


def quiet_logs(verbose: bool) -> None:
    """Log only errors, on stderr; requests are not logged: their paths hold ids."""
    logging.getLogger("uvicorn").setLevel(logging.INFO if verbose else logging.ERROR)
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(sys.stderr))


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn with time limits."""

    most: ClassVar[int] = 512
    """Connections at a time."""
    header_seconds: ClassVar[float] = 15
    """From the connection, or from the first byte of a request, until its headers are complete."""
    stall_seconds: ClassVar[float] = 60
    """For a client to read its answer, or to send ``least_bytes`` of a body that is no longer wanted."""
    least_bytes: ClassVar[int] = 256 * 1024

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._timer: asyncio.TimerHandle | None = None
        self.since = self.loop.time()
        """When it began to keep the service waiting."""
        self._received = 0

    @property
    def idle(self) -> bool:
        """Whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; where there are too many connections, drop one."""
        super().connection_made(transport)
        self._drop_after(self.header_seconds)
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """The time limit of a request's headers stays, however many bytes come."""
        was_idle = self.idle
        super().data_received(data)
        if was_idle and not self.idle:
            # Unless it still has to read an earlier answer.
            if not self.flow.write_paused:
                self._cancel_timer()
        elif self.idle and not self.transport.is_closing():
            self._received += len(data)
            if self._timer is None:
                self.since = self.loop.time()
                self._drop_after(self.stall_seconds if self._sends_body else self.header_seconds)

    def on_response_complete(self) -> None:
        """It is idle from now on, unless the next request is there already."""
        self.since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._drop_after(self.stall_seconds)

    def timeout_keep_alive_handler(self) -> None:
        """Closing would wait for ever for a client that does not read."""
        super().timeout_keep_alive_handler()
        self._drop_after(self.stall_seconds)

    def send_400_response(self, msg: str) -> None:
        """The same after a malformed request; it is answered unless an answer has begun already."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            problem = ProblemError(400, "malformed", "this is no HTTP request", hint="send HTTP/1.1")
            self.transport.write(_last_answer(problem))
        self.transport.close()
        self._drop_after(self.stall_seconds)

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self.since = self.loop.time()
        self._drop_after(self.stall_seconds)

    def resume_writing(self) -> None:
        """It has read most of what was waiting for it."""
        super().resume_writing()
        if self.idle:
            self._drop_after(self.stall_seconds)
        else:
            self._cancel_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to wait for."""
        self._cancel_timer()
        super().connection_lost(exc)

    @property
    def _sends_body(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def _drop_after(self, seconds: float) -> None:
        self._cancel_timer()
        self._received = 0
        self._timer = self.loop.call_later(seconds, self._overdue)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        if self.idle and self._sends_body and self._received >= self.least_bytes and not self.transport.is_closing():
            # The rest of a refused upload: its sender sees the answer only when all is sent.
            self._drop_after(self.stall_seconds)
        else:
            self.drop()

    def drop(self) -> None:
        """End the connection at once."""
        self._cancel_timer()
        self.connections.discard(self)
        self.transport.abort()

    def _make_room(self) -> None:
        """Drop the connection that has kept the service waiting longest, or else refuse this one."""
        others = [other for other in self.connections if isinstance(other, BoundedProtocol) and other is not self]
        waiting = [(rank, other.since, other) for other in others if (rank := other.rank()) is not None]
        if waiting:
            min(waiting, key=lambda entry: entry[:2])[-1].drop()
        else:
            self.transport.write(_last_answer(busy("there are too many connections")))
            self.transport.close()

    def rank(self) -> int | None:
        """Dropped first: those without a request so far, between two requests, not reading the answer; None: never."""
        if self.idle:
            return 0 if self.cycle is None else 1
        return 2 if self.flow.write_paused else None


def _last_answer(problem: ProblemError) -> bytes:
    """An error document outside of the application; the connection ends with it."""
    body = json.dumps(document_of(problem)).encode()
    headers = {**HEADERS, **problem.headers, "content-type": "application/json", "content-length": len(body)}
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def bounded(limits: ServiceLimits) -> type[BoundedProtocol]:
    """The protocol with a service's limits."""

    class Bounded(BoundedProtocol):
        most = most_connections(limits.connections)
        header_seconds = limits.header_seconds
        stall_seconds = limits.idle_seconds
        least_bytes = limits.idle_bytes

    return Bounded


def most_connections(wanted: int) -> int:
    """At most half of the descriptors that the process may have: slides, masks and workers need theirs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 2))
