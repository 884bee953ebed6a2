"""How long a connection may keep the service waiting, and how many there may be.

uvicorn waits for ever for the end of a request's headers and for a client that reads nothing of its answer, and takes
connections until no descriptor is left. Here both have a time limit, and one connection too many takes the place of
the one that has kept the service waiting longest.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ntrm.service.core.settings import ServiceLimits

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, without endless waiting."""

    most: ClassVar[int] = 512
    """Connections at a time."""
    header_seconds: ClassVar[float] = 15
    """From the first byte of a request, or from the connection, until its headers are complete."""
    stall_seconds: ClassVar[float] = 60
    """For a client that takes its answer, or sends ``least_bytes`` of a body that is no longer wanted."""
    least_bytes: ClassVar[int] = 256 * 1024

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._timer: asyncio.TimerHandle | None = None
        self.since = self.loop.time()
        """When it began to keep the service waiting."""
        self._got = 0

    @property
    def idle(self) -> bool:
        """Whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; where there are too many connections, one has to go."""
        super().connection_made(transport)
        self._drop_after(self.header_seconds)
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Every byte of a request has the same time limit: more of them do not move it."""
        was_idle = self.idle
        super().data_received(data)
        if was_idle and not self.idle:
            # Unless it still has an earlier answer to take.
            if not self.flow.write_paused:
                self._keep()
        elif self.idle and not self.transport.is_closing():
            self._got += len(data)
            if self._timer is None:
                self.since = self.loop.time()
                self._drop_after(self.stall_seconds if self._sends_body else self.header_seconds)

    def on_response_complete(self) -> None:
        """From now on it counts as idle, unless the next request is there already."""
        self.since = self.loop.time()
        super().on_response_complete()
        if self.transport.is_closing():
            self._drop_after(self.stall_seconds)

    def timeout_keep_alive_handler(self) -> None:
        """Closing waits for a client that reads nothing, and would do so for ever."""
        super().timeout_keep_alive_handler()
        self._drop_after(self.stall_seconds)

    def send_400_response(self, msg: str) -> None:
        """The same after a request that makes no sense."""
        super().send_400_response(msg)
        self._drop_after(self.stall_seconds)

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self.since = self.loop.time()
        self._drop_after(self.stall_seconds)

    def resume_writing(self) -> None:
        """It has taken most of what was waiting for it."""
        super().resume_writing()
        if self.idle:
            self._drop_after(self.stall_seconds)
        else:
            self._keep()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to be waited for."""
        self._keep()
        super().connection_lost(exc)

    @property
    def _sends_body(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def _drop_after(self, seconds: float) -> None:
        self._keep()
        self._got = 0
        self._timer = self.loop.call_later(seconds, self._overdue)

    def _keep(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self) -> None:
        if self.idle and self._sends_body and self._got >= self.least_bytes and not self.transport.is_closing():
            # The rest of an upload that was refused: its sender sees the answer only when all is sent.
            self._drop_after(self.stall_seconds)
        else:
            self.drop()

    def drop(self) -> None:
        """End the connection at once."""
        self._keep()
        self.connections.discard(self)
        self.transport.abort()

    def _make_room(self) -> None:
        """Drop the connection that has kept the service waiting longest, or else refuse this one."""
        others = [each for each in self.connections if isinstance(each, BoundedProtocol) and each is not self]
        waiting = [(rank, each.since, id(each), each) for each in others if (rank := each.rank()) is not None]
        if waiting:
            min(waiting)[-1].drop()
        else:
            self.transport.write(BUSY)
            self.transport.close()

    def rank(self) -> int | None:
        """Who goes first: without a request so far, between two requests, not reading the answer; None for no one."""
        if self.idle:
            return 0 if self.cycle is None else 1
        return 2 if self.flow.write_paused else None


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
