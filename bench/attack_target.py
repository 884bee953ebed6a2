"""The service that is attacked, what lies around it, and what came of an attack."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench.serving import TOKEN, Service

BEARER = {"Authorization": f"Bearer {TOKEN}"}
RAW = {**BEARER, "Content-Type": "application/octet-stream"}
PATIENCE = 20.0
"""Seconds for an answer on a busy machine."""


@dataclass
class Finding:
    """What came of one attack."""

    attack: str
    holds: str
    """What must hold, in words."""
    tries: int = 0
    faults: list[str] = field(default_factory=list)
    seen: str = ""
    skipped: str = ""

    def fault(self, text: str) -> None:
        """Something did not hold."""
        self.faults.append(text)

    @property
    def verdict(self) -> str:
        """What was seen, in a cell of the table."""
        if self.skipped:
            return f"not tried: {self.skipped}"
        if not self.faults:
            return self.seen or "held"
        more = f" (and {len(self.faults) - 1} more)" if len(self.faults) > 1 else ""
        return f"**{self.faults[0]}**{more}"


@dataclass
class Target:
    """The service that is attacked, and what lies around it."""

    service: Service
    folder: Path
    seed: int
    answers: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def port(self) -> int:
        return self.service.port

    @property
    def hidden(self) -> Path:
        return self.service.out / ".service"

    @property
    def secret(self) -> Path:
        """A picture outside every root."""
        return self.folder / "secret.jpg"

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, seconds: float = PATIENCE
    ) -> tuple[int, bytes]:
        """Status and content; 0 where the connection was closed or nothing came."""
        return self.ask_all(method, path, body, headers, seconds)[:2]

    def ask_all(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, seconds: float = PATIENCE
    ) -> tuple[int, bytes, dict[str, str]]:
        """The same, and the headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        sent = dict(BEARER if headers is None else headers)
        if isinstance(body, dict):
            body, sent["Content-Type"] = json.dumps(body), "application/json"
        try:
            connection.putrequest(method, path, skip_host="Host" in sent)
            for name, value in sent.items():
                connection.putheader(name, value)
            content = body.encode() if isinstance(body, str) else body
            if content is not None:
                connection.putheader("Content-Length", str(len(content)))
            connection.endheaders(content)
            got = connection.getresponse()
            found = got.read()
            self.answers.append((f"{method} {path[:60]}", found))
            return got.status, found, {name.lower(): value for name, value in got.getheaders()}
        except (OSError, http.client.HTTPException):
            return 0, b"", {}
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        status, content = self.ask("GET", path)
        return json.loads(content) if status == 200 else {}

    def upload(self, content: bytes, name: str = "slide.tif", mpp: float = 6.7) -> tuple[int, bytes]:
        return self.ask("POST", f"/v1/slides?name={quote(name)}&mpp={mpp}", content, RAW, 90)

    def exchange(self, content: bytes, seconds: float = PATIENCE) -> bytes | None:
        """What bare bytes are answered with; None where the connection stays open without a word."""
        found = b""
        try:
            with socket.create_connection(("127.0.0.1", self.port), seconds) as connection:
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(2**16):
                    found += piece
        except TimeoutError:
            return found or None
        except OSError:
            return found
        return found

    def opens(self, link: str) -> bool:
        """Whether a link lets a browser in."""
        return "set-cookie" in self.ask_all("GET", link, headers={})[2]

    def is_well(self) -> bool:
        """Whether anybody can still come in."""
        return self.ask("GET", "/healthz", headers={}, seconds=5)[0] == 200


def wait_for(true: Callable[[], Any], seconds: float) -> Any:
    """What a condition gives, as soon as it gives anything; its last answer when the time is up."""
    until = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def files_of(hidden: Path, *names: str) -> list[Path]:
    return [path for name in names for path in (hidden / name).iterdir()]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def below(pid: int) -> list[int]:
    """Every process that a process started, and that these started."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found + [each for child in found for each in below(child)]


def workers_of(target: Target) -> list[int]:
    return [pid for pid in below(target.service.process.pid) if "ntrm.service.jobs.worker" in command_of(pid)]
