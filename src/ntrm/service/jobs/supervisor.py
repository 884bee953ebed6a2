"""Keeps the workers alive, as a thread of the web process.

Workers that hold the network are there from the start, the light one while it has something to do.
"""

from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ntrm.core.errors import NtrmError
from ntrm.core.processes import HOME, MODEL, close_pipes, start_module
from ntrm.results.slide_state import alone
from ntrm.service.core.problems import ProblemError
from ntrm.service.core.settings import LOG, ServiceSettings
from ntrm.service.jobs.database import JobStore
from ntrm.service.jobs.rows import LIGHT, NETWORK, Kind, new_id

_log = logging.getLogger(__name__)
TICK_SECONDS = 0.5
START_SECONDS = 10.0  # Between two starts of a worker that dies by itself
GRACE_SECONDS = 1.0  # A worker that does not end a job by itself within this is killed
LOG_BYTES = 4 * 2**20


class Watch:
    """Work of threads that must go on, whatever happens in it; ``/healthz`` tells that some failed the last time."""

    def __init__(self) -> None:
        self.failing: dict[str, str] = {}  # By name: why

    def run(self, name: str, work: Callable[[], object]) -> None:
        """Do it; an error is logged once for as long as it stays the same."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a thread that has died looks like one that has nothing to do
            if self.failing.get(name) != repr(error):
                _log.exception("%s failed", name)
            self.failing[name] = repr(error)
        else:
            self.failing.pop(name, None)


@dataclass
class _Slot:
    """One worker, or the wait for its next start."""

    device: str
    kinds: tuple[Kind, ...] = NETWORK  # Of its jobs
    process: subprocess.Popen[bytes] | None = None
    name: str = ""  # In the database
    not_before: float = 0.0


class Supervisor(threading.Thread):
    """Starts and watches workers, a thread of the web process; they are killed, which harms no results on disk."""

    def __init__(self, settings: ServiceSettings, store: JobStore, watch: Watch) -> None:
        super().__init__(name="supervisor", daemon=True)
        self._settings, self._store, self._watch = settings, store, watch
        device = "cuda:{}" if settings.device == "cuda" else settings.device
        count = 1 if settings.workers is None else settings.workers
        self._light = _Slot("cpu", LIGHT)
        self._slots = [*(_Slot(device.format(n)) for n in range(count)), self._light]
        self._over = threading.Event()
        self.state = "starting" if count else "off"  # Later `ready` or `refused`
        self.refusal: dict[str, Any] | None = None
        """Why no worker can run: the model does not load, or the folder holds another model's results."""

    def run(self) -> None:
        """Look after the workers until it is stopped."""
        while not self._over.wait(TICK_SECONDS):
            self._watch.run("supervisor", self._look_after)

    def stop(self) -> None:
        """End the workers; their slides go back into the queue."""
        self._over.set()
        if self.is_alive():
            self.join()
        running = [slot.process for slot in self._slots if slot.process is not None]
        for process in running:
            process.kill()
            process.wait()
            close_pipes(process)
        if running:
            self._store.reclaim((), blame=False)

    def _look_after(self) -> None:
        for slot in [*self._slots]:
            self._kill_late(slot)
            self._keep_alive(slot)

    def _kill_late(self, slot: _Slot) -> None:
        """End a worker that does not react: in a long step, in a library's endless loop, or beyond a job's time."""
        limit = self._settings.limits.slide_seconds
        for job in self._store.running():
            until = (job.started or 0.0) + limit if job.cancel is None else job.cancel + GRACE_SECONDS
            if slot.process is not None and job.worker == slot.name and time.time() > until:
                slot.process.kill()
                slot.process.wait()
                slot.not_before = 0.0
                if job.kind == "segment":
                    with suppress(NtrmError), alone(self._settings.out / self._store.get(job.slide).slide_id):
                        pass  # Whoever has the slide alone has removed its temporary files.
                if job.cancel is None:
                    error = ProblemError(422, "too_long", "the slide took too long", expected=f"at most {limit} s")
                    self._store.end(job, "failed", error)

    def _keep_alive(self, slot: _Slot) -> None:
        process = slot.process
        if process is not None:
            if process.poll() is None:
                return
            close_pipes(process)
            if process.returncode == 0:
                slot.not_before = 0.0
            slot.process, slot.name = None, ""
            self._store.reclaim([each.name for each in self._slots])
        is_wanted = self._store.is_due(LIGHT) if slot is self._light else self.refusal is None
        if is_wanted and time.monotonic() >= slot.not_before:
            slot.name = new_id()
            slot.process = process = start_worker(replace(self._settings, device=slot.device), slot.kinds, slot.name)
            slot.not_before = time.monotonic() + START_SECONDS
            threading.Thread(target=self._listen, args=(slot, process), daemon=True).start()

    def _listen(self, slot: _Slot, process: subprocess.Popen[bytes]) -> None:
        """Wait for a worker's message that it is ready, or why it cannot work."""
        try:
            message = json.loads(process.stdout.readline() if process.stdout is not None else b"")
        except ValueError:
            # It died before; its pipe may be closed by now.
            return
        if "refused" in message:
            self.refusal, self.state = message["refused"], "refused"
            _log.error("no slide can be segmented: %(what)s; got %(got)s", self.refusal)
            return
        if slot is not self._light:
            self.state = "ready"
            if self._settings.workers is None:
                self._slots += [_Slot(f"cuda:{n}") for n in range(len(self._slots) - 1, int(message["devices"]))]


def start_worker(settings: ServiceSettings, kinds: tuple[Kind, ...], name: str) -> subprocess.Popen[bytes]:
    """A worker process, which is told no secret; it ends when its input is closed."""
    log = settings.hidden / LOG
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.unlink()
    told: dict[str, Any] = {"out": str(settings.out.absolute()), "model": settings.model}
    told |= {"device": settings.device, "batch": settings.batch, "kinds": kinds, "name": name}
    variables = MODEL if kinds == NETWORK else HOME
    return start_module("ntrm.service.jobs.worker", json.dumps(told).encode(), log, *variables)
