"""Workers kept alive by the web process, and what has to be done from time to time."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import IO, Any

from ntrm.core.errors import NtrmError
from ntrm.core.processes import MODEL, module_command, module_environment
from ntrm.service.core.settings import ServiceSettings
from ntrm.service.core.shared_paths import LOG, forget_dead, forget_partials, is_alive
from ntrm.service.jobs.database import JobStore, Slide

_log = logging.getLogger(__name__)
TICK_SECONDS = 0.5
BACK_OFF = (0.5, 60.0)
"""First and longest wait before a worker that died is started again."""
STEADY_SECONDS = 120.0
"""Who lived so long died of something new."""
GRACE_SECONDS = 1.0
"""A worker that does not end a job by itself within this is killed; results on disk do not mind."""
STOP_SECONDS = 15.0
LOG_BYTES = 4 * 2**20


@dataclass
class _Place:
    """One worker's place."""

    device: str
    process: subprocess.Popen[bytes] | None = None
    name: str | None = None
    """As it calls itself in the database, once it is ready."""
    started: float = 0.0
    wait: float = 0.0
    """Seconds until the next start."""
    not_before: float = 0.0


class Supervisor:
    """Starts, watches and stops workers; a thread of the web process."""

    def __init__(self, settings: ServiceSettings, store: JobStore, chores: Callable[[], None]) -> None:
        self._settings, self._store = settings, store
        wanted = 1 if settings.workers is None else settings.workers
        self._places = [_Place(_device(settings.device, number)) for number in range(wanted)]
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._again_and_again, args=(work,), name=name, daemon=True)
            # Chores may take long: whoever cancels a job does not wait for them.
            for name, work in (("supervisor", self._look_after_all), ("chores", chores))
        ]
        self._refusal: dict[str, Any] | None = None
        self._ready = False

    @property
    def refusal(self) -> dict[str, Any] | None:
        """Why no worker can run: the model does not load, or the folder holds another model's results."""
        return self._refusal

    @property
    def state(self) -> str:
        """``off``, ``starting``, ``ready`` or ``refused``."""
        if not self._places:
            return "off"
        if self._refusal is not None:
            return "refused"
        return "ready" if self._ready else "starting"

    @property
    def processes(self) -> list[int]:
        """Process numbers of the workers that run."""
        with self._lock:
            return [place.process.pid for place in self._places if place.process and place.process.poll() is None]

    def start(self) -> None:
        """Begin."""
        forget_dead(self._settings)
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """A slide was queued."""
        with self._lock:
            pipes = [place.process.stdin for place in self._places if place.process is not None]
        for pipe in pipes:
            _write(pipe, b"\n")

    def reclaim(self, *, blame: bool) -> None:
        """Queue the slides of workers that are gone; those to be cancelled end, and leave nothing half written."""

        def alive(name: str) -> bool:
            return is_alive(self._settings, name)

        for slide in self._store.running():
            # While it still counts as running nobody else takes it up or deletes it.
            if slide.cancel is not None and (slide.worker is None or not alive(slide.worker)):
                forget_partials(self._settings.out / slide.slide_id)
        self._store.reclaim(alive, blame=blame)

    def stop(self) -> None:
        """End the workers; their slides go back into the queue."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        running = [place.process for place in self._places if place.process is not None]
        for process in running:
            process.terminate()
        until = time.monotonic() + STOP_SECONDS
        for process in running:
            try:
                process.wait(timeout=max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _close(process)
        if running:
            self.reclaim(blame=False)

    def _again_and_again(self, work: Callable[[], None]) -> None:
        while not self._stop.wait(TICK_SECONDS):
            try:
                work()
            except (OSError, sqlite3.Error, NtrmError):
                # A full disk, perhaps: the workers must be looked after for all that.
                _log.exception("looking after the slides failed")

    def _look_after_all(self) -> None:
        for place in self._places:
            self._look_after(place)
        self._end_overdue()

    def _look_after(self, place: _Place) -> None:
        process, now = place.process, time.monotonic()
        if process is not None and process.poll() is None:
            return
        if process is not None:
            lived = now - place.started
            low, high = BACK_OFF
            place.wait = low if lived > STEADY_SECONDS else min(high, max(low, 2 * place.wait))
            place.not_before = now + place.wait
            self._leave(place, process, blame=True)
        if now >= place.not_before and self._refusal is None:
            self._begin(place)

    def _leave(self, place: _Place, process: subprocess.Popen[bytes], *, blame: bool) -> None:
        """The worker is gone; its slide is not."""
        _close(process)
        place.process, place.name = None, None
        self.reclaim(blame=blame)

    def _begin(self, place: _Place) -> None:
        process = start_worker(replace(self._settings, device=place.device))
        with self._lock:
            place.process, place.started = process, time.monotonic()
        threading.Thread(target=self._listen, args=(place, process), daemon=True).start()

    def _listen(self, place: _Place, process: subprocess.Popen[bytes]) -> None:
        """What a worker says when it has started, or why it cannot."""
        try:
            said = json.loads(process.stdout.readline() if process.stdout is not None else b"")
        except ValueError:
            # It died without a word; its pipe may be closed by now.
            return
        if "refused" in said:
            self._refusal = said["refused"]
            _log.error("no slide can be segmented: %s; got %s", said["refused"]["what"], said["refused"]["got"])
        elif "ready" in said:
            place.name, self._ready = said["ready"], True
            if self._settings.workers is None:
                missing = int(said["devices"]) - len(self._places)
                self._places += [_Place(f"cuda:{len(self._places) + n}") for n in range(missing)]

    def _end_overdue(self) -> None:
        """Kill workers that do not hear: amid a long step, in a library's endless loop, or beyond a slide's time."""
        for place in self._places:
            process = place.process
            late = None if process is None or place.name is None else self._late(place.name)
            if process is not None and late is not None:
                process.kill()
                process.wait()
                # One that was cancelled did nothing wrong: the next worker begins at once.
                self._leave(place, process, blame=late.cancel is None)

    def _late(self, worker: str) -> Slide | None:
        """What a worker should have ended by now."""
        now, most = time.time(), self._settings.limits.slide_seconds + GRACE_SECONDS
        for slide in self._store.running():
            waited = now - (slide.cancel or now) > GRACE_SECONDS or now - (slide.started or now) > most
            if slide.worker == worker and waited:
                return slide
        return None


def start_worker(settings: ServiceSettings) -> subprocess.Popen[bytes]:
    """A worker process; it ends when its input is closed."""
    from ntrm.service.core.settings import settings_to

    log = settings.hidden / LOG
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.unlink()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            module_command("ntrm.service.jobs.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=descriptor,
            env=module_environment(*MODEL),
            # Ctrl-C reaches the web process alone, which ends its workers in order.
            start_new_session=True,
        )
    finally:
        os.close(descriptor)
    _write(process.stdin, json.dumps(settings_to(settings)).encode() + b"\n")
    return process


def _write(pipe: IO[bytes] | None, content: bytes) -> None:
    if pipe is None:
        return
    try:
        pipe.write(content)
        pipe.flush()
    except (OSError, ValueError):
        # It died just now; whoever looks after it will see.
        return


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue


def _device(device: str, number: int) -> str:
    return f"{device}:{number}" if device == "cuda" else device
