"""Jobs as processes, side by side on every device; one that fails is reported, and the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ntrm.core.devices import choose_device
from ntrm.core.errors import UsageError, check_number
from ntrm.core.io import write_json
from ntrm.paper.child_run import GUARD, INTERRUPTED

POLL_S = 0.1
GRACE_S = 60.0
"""Time that an interrupted job has to write its checkpoint."""
WORKER = (sys.executable, "-m", "ntrm.paper.child_run")
TAIL = 20
"""Lines of a failed job's log that are shown."""


@dataclass(frozen=True)
class Slot:
    """A place where one job runs at a time."""

    device: str
    """As the job sees it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    """Cores that its job may use."""


@dataclass(frozen=True)
class Task:
    """A job as its worker reads it."""

    key: str
    label: str
    document: Mapping[str, object]
    folder: Path
    """Where the document and the log go."""

    @property
    def log(self) -> Path:
        """Everything the job has printed."""
        return self.folder / f"{self.key}.log"


@dataclass(frozen=True)
class Ended:
    """A job that has ended."""

    task: Task
    code: int
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether it ended without a result."""
        return self.code != 0

    @property
    def reason(self) -> str:
        """The last lines of its log."""
        try:
            lines = self.task.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        how = f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return "\n".join([how, *lines[-TAIL:]])


def make_slots(device: str, *, num_devices: int | None = None, per_device: int = 1, jobs: int = 1) -> tuple[Slot, ...]:
    """Slots on every GPU, ``per_device`` on each; without GPUs ``jobs`` slots on the processor."""
    check_number("number of jobs per device", per_device, 1, 64, whole=True)
    check_number("number of jobs", jobs, 1, 1024, whole=True)
    chosen = choose_device(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if chosen.type == "cpu":
        threads = max(1, cores // jobs)
        return (Slot("cpu", {"OMP_NUM_THREADS": str(threads)}, threads),) * jobs
    if chosen.type != "cuda":
        return (Slot(chosen.type, {}, max(1, cores // per_device)),) * per_device
    cards = _cards(chosen.index, num_devices)
    threads = max(1, cores // (len(cards) * per_device))
    return tuple(
        Slot("cuda", {"CUDA_VISIBLE_DEVICES": card, "OMP_NUM_THREADS": str(threads)}, threads)
        for _ in range(per_device)
        for card in cards
    )


def _cards(index: int | None, count: int | None) -> list[str]:
    """Names of the GPUs as the environment knows them: this process may itself see only some."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    cards = [name.strip() for name in visible.split(",")] if visible else []
    cards = (cards or [str(card) for card in range(torch.cuda.device_count())])[: torch.cuda.device_count()]
    if index is not None:
        return [cards[index]]
    if count is not None and not 1 <= count <= len(cards):
        raise UsageError("wrong number of devices", got=count, expected=f"1 to {len(cards)}")
    return cards[:count]


def run_tasks(
    tasks: Sequence[Task], slots: Sequence[Slot], program: Sequence[str] = WORKER
) -> Generator[Ended, None, None]:
    """Run every task, as many at a time as there are slots; yields each as it ends.

    ``program`` is given the file of a task. When the caller stops, or is interrupted, the tasks at work are asked to
    end, then made to.
    """
    waiting, free = deque(tasks), deque(slots)
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and free:
                running.append(_start(waiting.popleft(), free.popleft(), program))
            time.sleep(POLL_S)
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                free.append(each.slot)
                each.close()
                if each.process.returncode == INTERRUPTED:
                    # Someone has stopped the job itself, and means the whole.
                    raise KeyboardInterrupt
                yield Ended(each.task, each.process.returncode, time.monotonic() - each.begun)
    finally:
        _stop(running)


@dataclass(eq=False)
class _Running:
    task: Task
    slot: Slot
    process: subprocess.Popen[bytes]
    begun: float

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()


def _start(task: Task, slot: Slot, program: Sequence[str]) -> _Running:
    path = task.folder / f"{task.key}.json"
    write_json(path, {**task.document, "device": slot.device, "jobs": slot.threads})
    with task.log.open("wb") as log:
        # A session of its own: an interrupt from the terminal reaches this process alone, which then stops the jobs
        # in order; and the job's own children can be ended with it.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [*program, str(path), GUARD],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **slot.environment},
            start_new_session=True,
        )
    return _Running(task, slot, process, time.monotonic())


def _stop(running: Sequence[_Running]) -> None:
    for each in running:
        with suppress(ProcessLookupError):
            each.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for each in running:
        try:
            each.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()
        each.close()
