"""Run the service until it is told to stop."""

from __future__ import annotations

import errno
import json
import logging
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import holding
from ntrm.results.paths import RUN
from ntrm.service.api.app import create_app
from ntrm.service.api.connections import bounded
from ntrm.service.core.model_info import check_model, read_facts
from ntrm.service.core.settings import SERVER_LOCK, ServiceSettings

BACKLOG = 128
"""Connections that are taken at once, before any of them can be refused: few beside the descriptors there are."""
GRACE_SECONDS = 5
KEEP_ALIVE_SECONDS = 30


def serve(settings: ServiceSettings, opened: Callable[[str, str], None]) -> int:
    """Serve until SIGTERM (0) or Ctrl-C (130); ``opened`` is told the address and the path of the first link.

    One service at a time works in a folder of results.
    """
    _check_out(settings.out)
    check_model(settings)
    _check_classes(settings)
    settings.hidden.mkdir(parents=True, exist_ok=True, mode=0o700)
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
    """Refuse early what no worker would take."""
    if not next(each for each in (out, *out.absolute().parents) if each.exists()).is_dir():
        raise UsageError("the output is not a folder", got=out, hint="choose another folder")
    other = next((each for each in out.iterdir() if not each.name.startswith(".")), None) if out.is_dir() else None
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
        record = json.loads((settings.out / RUN).read_text(encoding="utf-8"))
        classes, maker = [str(name) for name in record["classes"]], str(record["model"]["name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # nothing there yet, or what the worker refuses with its reason
    if facts is not None and classes != list(facts.schema.names):
        raise RefusedError(
            f"{settings.out} holds results of other classes than the model's",
            got=", ".join(classes),
            expected=", ".join(facts.schema.names),
            hint=f"give --model with the model that made them ({maker}), or name another folder",
        )


class _Server(uvicorn.Server):
    """Tells when it listens, and by which signal it ended."""

    signal: int | None = None
    when_started: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.when_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signal = sig
        super().handle_exit(sig, frame)
        # Not again after the end, as uvicorn would: workers are stopped in order first.
        self._captured_signals.clear()


def _listening(settings: ServiceSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # With its protocol: only then does asyncio send small answers at once instead of 40 ms later.
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
    """Only what went wrong, on stderr; requests are not logged: their paths hold ids."""
    logging.getLogger("uvicorn").setLevel(logging.INFO if verbose else logging.ERROR)
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(sys.stderr))
