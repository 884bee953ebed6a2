"""Run the service until it is stopped.

uvicorn itself waits for ever for slow clients: where strangers can reach the service, a proxy stands in front.
"""

from __future__ import annotations

import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import holding
from ntrm.core.wording import NO_MODEL
from ntrm.models.config import NETWORKS
from ntrm.models.folders import BUNDLED, locate, read_model
from ntrm.results.classes import folder_classes
from ntrm.results.folder import ResultsFolder
from ntrm.results.manifest import Manifest, check_out
from ntrm.service.api.app import create_app
from ntrm.service.core.settings import SERVER_LOCK, SERVICE_FOLDER, ServiceSettings

BACKLOG = 128
"""Connections that are accepted at once, before any of them can be refused: far fewer than there are descriptors."""


def serve(settings: ServiceSettings, opened: Callable[[str, str], None]) -> int:
    """Serve until SIGTERM (0) or Ctrl-C (130); ``opened`` gets the address and the path of the first link.

    One service at a time works in a folder of results.
    """
    run = check_out(settings.out)
    if run is not None and run.model is None:
        if settings.model != BUNDLED:
            hint = "leave --model out, or name another folder"
            raise RefusedError(f"{settings.out} was {NO_MODEL}", got=f"--model {settings.model}", hint=hint)
        folder_classes(settings.out)  # refused before anybody waits for the page
    else:
        _check_model(settings, run)
    ResultsFolder(settings.out).own(SERVICE_FOLDER)
    with holding(settings.hidden / SERVER_LOCK), _listening(settings) as listener:
        app = create_app(settings)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = (settings.public_url or f"http://{host}:{listener.getsockname()[1]}").rstrip("/")
        options = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=512,
            h11_max_incomplete_event_size=16_384,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=5,
            backlog=BACKLOG,
        )
        server = _Server(options)
        server.when_started = lambda: opened(address, f"/open/{app.state.app_state.access.new_code()}")
        server.run(sockets=[listener])
        return 128 + signal.SIGINT if server.signal == signal.SIGINT else 0


def _check_model(settings: ServiceSettings, run: Manifest | None) -> None:
    """Refuse a model that no worker could load, or whose classes are not those of the results."""
    config, *_ = read_model(locate(settings.model))
    config.check_mpp()
    if config.arch not in NETWORKS:  # rare: only then does the web process load torch
        from ntrm.models.registry import create

        create(config.arch, config.schema, **dict[str, Any](config.options))
    classes = config.schema.names
    if run is not None and run.classes != classes:
        made_by = (run.model or {}).get("name")
        # They would be shown under the wrong names.
        raise RefusedError(
            f"{settings.out} holds results of other classes than the model's",
            got=", ".join(run.classes),
            expected=", ".join(classes),
            hint=f"give --model with the model that made them ({made_by}), or name another folder",
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
        elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        hint = "choose an address of this machine for --host" if elsewhere else "choose another --port, or 0 for any"
        what = f"cannot listen on {settings.host} port {settings.port}"
        raise UsageError(what, got=error.strerror, hint=hint) from error
    return listener


def quiet_logs(verbose: bool) -> None:
    """Log only errors, on stderr; requests are not logged: their paths hold ids."""
    logging.getLogger("uvicorn").setLevel(logging.INFO if verbose else logging.ERROR)
    logging.getLogger("uvicorn").addHandler(logging.StreamHandler(sys.stderr))
