"""The service that is attacked, a client for it, and the result of an attack."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from bench.serving import TOKEN, Service

BEARER = {"Authorization": f"Bearer {TOKEN}"}
RAW = {**BEARER, "Content-Type": "application/octet-stream"}
PATIENCE = 20.0  # Seconds for an answer on a busy machine


@dataclass
class Finding:
    """The result of one attack."""

    attack: str
    holds: str  # What must hold, in words
    tries: int = 0
    faults: list[str] = field(default_factory=list)
    seen: str = ""
    skipped: str = ""

    def check(self, holds: object, fault: str) -> None:
        """Note a fault where something does not hold."""
        if not holds:
            self.faults.append(fault)

    @property
    def verdict(self) -> str:
        """What was seen, for a cell of the table."""
        if self.skipped:
            return f"not tried: {self.skipped}"
        if not self.faults:
            return self.seen or "held"
        more = f" (and {len(self.faults) - 1} more)" if len(self.faults) > 1 else ""
        return f"**{self.faults[0]}**{more}"


class Answer(NamedTuple):
    """Of the service; ``status`` is 0 where the connection was closed or nothing came."""

    status: int = 0
    content: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012 - never written to

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class Target:
    """The service that is attacked, and what lies around it."""

    service: Service
    folder: Path
    seed: int
    answers: list[tuple[str, bytes]] = field(default_factory=list)  # Connections that were begun to be checked later

    @property
    def port(self) -> int:
        return self.service.port

    @property
    def secret(self) -> Path:
        """A picture outside every root."""
        return self.folder / "secret.jpg"

    def files(self, name: str) -> list[Path]:
        """In a folder of the service's own."""
        return [*(self.service.out / ".service" / name).iterdir()]

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, seconds: float = PATIENCE
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        sent = dict(BEARER if headers is None else headers)
        if isinstance(body, dict):
            body, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.putrequest(method, path, skip_host="Host" in sent)
            for name, value in sent.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            content = response.read()
            self.answers.append((f"{method} {path[:60]}", content))
            return Answer(response.status, content, {name.lower(): value for name, value in response.getheaders()})
        except (OSError, http.client.HTTPException):
            return Answer()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        answer = self.ask("GET", path)
        return answer.json if answer.status == 200 else {}

    def upload(self, content: bytes, name: str = "slide.tif", mpp: float = 6.7) -> Answer:
        return self.ask("POST", f"/v1/slides?name={quote(name)}&mpp={mpp}", content, RAW, 90)

    def delete(self, *keys: str) -> None:
        for key in keys:
            self.ask("DELETE", f"/v1/slides/{key}")

    def exchange(self, content: bytes) -> bytes | None:
        """The answer to bare bytes; None where the connection stays open without one."""
        received = b""
        try:
            with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as connection:
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(2**16):
                    received += piece
        except TimeoutError:
            return received or None
        except OSError:
            return received
        return received

    def new_link(self) -> str:
        return str(self.ask("POST", "/v1/links").json["path"])

    def opens(self, link: str) -> bool:
        """Whether a link lets a browser in."""
        return "set-cookie" in self.ask("GET", link, headers={}).headers

    def is_well(self) -> bool:
        """Whether others are still answered."""
        return self.ask("GET", "/healthz", headers={}, seconds=5).status == 200

    def children(self) -> list[int]:
        """Every process that the service started, and that these started."""
        return _below(self.service.process.pid)

    def workers(self) -> list[int]:
        return [pid for pid in self.children() if "ntrm.service.jobs.worker" in _command(pid)]


def wait_for(condition: Callable[[], Any], seconds: float) -> Any:
    """The value of a condition, as soon as it is true; its last one when the time is up."""
    until = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < until:
        time.sleep(0.05)
    return value


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _below(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            children += [int(child) for child in (task / "children").read_text().split()]
    return children + [process for child in children for process in _below(child)]
