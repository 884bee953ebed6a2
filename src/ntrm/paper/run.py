"""Runs as commands, several at a time on every device; one that fails is reported, and the others go on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, NamedTuple

import torch

from ntrm.core.devices import choose_device
from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import holding
from ntrm.core.threads import cores_given
from ntrm.paper.plan import Job

NTRM = (sys.executable, "-m", "ntrm")


class Slot(NamedTuple):
    """Trains one network at a time."""

    device: str  # As the process sees it
    card: str = ""  # The GPU that the process sees alone
    threads: int = 1  # Cores that the process may use

    @property
    def environment(self) -> dict[str, str]:
        """What the process finds in its environment."""
        card = {"CUDA_VISIBLE_DEVICES": self.card} if self.card else {}
        return {**os.environ, "OMP_NUM_THREADS": str(self.threads), **card}


@dataclass(frozen=True)
class Ended:
    """A run that has ended; its ``code`` is None where another command has done it, or works on it."""

    job: Job
    log: Path  # Everything its two commands have printed
    code: int | None
    seconds: float = 0.0

    @property
    def reason(self) -> str:
        """Why it has no result: the last lines of its log. Empty where nothing failed."""
        if not self.code:
            return ""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]
        return "\n".join([f"killed by signal {-self.code}" if self.code < 0 else f"exit code {self.code}", *lines])


def make_slots(device: str, *, num_devices: int | None = None, per_device: int = 1, jobs: int = 1) -> tuple[Slot, ...]:
    """Slots on every GPU, ``per_device`` on each; without GPUs ``jobs`` slots on the processor."""
    chosen, cards = choose_device(device), [""]
    if chosen.type == "cuda":
        # Names of the GPUs as the environment knows them: this process may itself see only some.
        visible, seen = os.environ.get("CUDA_VISIBLE_DEVICES"), torch.cuda.device_count()
        cards = [name.strip() for name in visible.split(",")][:seen] if visible else [*map(str, range(seen))]
        if num_devices is not None and not 1 <= num_devices <= len(cards):
            raise UsageError("wrong number of devices", got=num_devices, expected=f"1 to {len(cards)}")
        cards = cards[:num_devices] if chosen.index is None else [cards[chosen.index]]
    cards *= jobs if chosen.type == "cpu" else per_device
    return tuple(Slot(chosen.type, card, max(1, cores_given() // len(cards))) for card in cards)


def run_jobs(
    jobs: Sequence[Job],
    slots: Sequence[Slot],
    commands: Callable[[Job], tuple[Sequence[str], Sequence[str]]],
    logs: Path,
    is_done: Callable[[Job], bool],
) -> Generator[Ended, None, None]:
    """Train and evaluate by ``commands``, words after ``ntrm``, as many jobs at a time as there are slots.

    Yields each as it ends; one that another reproduction works on is left to it. When the caller stops or is
    interrupted, running trainings are told to stop, and write a checkpoint.
    """
    logs.mkdir(parents=True, exist_ok=True)
    running, stopping, free = set[subprocess.Popen[bytes]](), threading.Event(), SimpleQueue[Slot]()
    for slot in slots:
        free.put(slot)

    def call(words: Sequence[str], slot: Slot, output: BinaryIO) -> int:
        command = [*NTRM, *words, "--device", slot.device, "--progress", "none"]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
        # A session of its own: an interrupt from the terminal is passed on once, since a second one means haste.
        process = subprocess.Popen(command, **streams, env=slot.environment, start_new_session=True)  # noqa: S603
        running.add(process)
        if stopping.is_set():
            process.terminate()
        code = process.wait()
        running.discard(process)
        return code

    def run(job: Job) -> Ended:
        slot, begun, log = free.get(), time.monotonic(), logs / f"{job.key}.log"
        try:
            with holding(log.with_suffix(".lock")):
                if is_done(job) or stopping.is_set():
                    return Ended(job, log, None)
                with log.open("wb") as output:
                    train, evaluate = commands(job)
                    code = call(train, slot, output) or call([*evaluate, "--jobs", f"{slot.threads}"], slot, output)
                return Ended(job, log, code, time.monotonic() - begun)
        except RefusedError:
            return Ended(job, log, None)
        finally:
            free.put(slot)

    with ThreadPoolExecutor(len(slots)) as pool:
        try:
            for each in as_completed([pool.submit(run, job) for job in jobs]):
                if each.result().code == 130:  # someone has interrupted the run itself, and means the reproduction
                    raise KeyboardInterrupt
                yield each.result()
        finally:
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            for process in [*running]:
                process.terminate()
