"""Jobs as processes, several at a time on every device; one that fails is reported, and the others go on.

Each process trains (or resumes) one network, then evaluates it:

    python -m ntrm.paper.runner JOB.json

Its parent holds the other end of its standard input. When that end closes, for whatever reason, the process and its
children end at once: a killed reproduction leaves nothing running in its folders.

Several reproductions may work in one folder, on one machine or on many: each takes the jobs that no other has. A job
is taken by a lock on ``JOB.claim``, which the system gives back when its holder ends in whatever way.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ntrm.core.devices import choose_device
from ntrm.core.errors import RefusedError, UsageError, check_number
from ntrm.core.io import write_arrays, write_json
from ntrm.core.locks import holding
from ntrm.core.processes import end_with_parent, exit_code_of
from ntrm.core.threads import cores_given
from ntrm.evaluation.interfaces import InterfaceCounts
from ntrm.paper.outcomes import EVALUATION, INTERFACE_COUNTS, INTERFACES

POLL_S = 0.1
LOOK_S = 5.0
"""Time after which jobs that other reproductions had are looked at again."""
GRACE_S = 60.0
"""Time that an interrupted job has to write its checkpoint."""
GUARD = "--end-with-parent"
WORKER = (sys.executable, "-m", "ntrm.paper.runner")
INTERRUPTED = 130
TAIL = 20
"""Lines of a failed job's log that are shown."""


@dataclass(frozen=True)
class Slot:
    """Runs one job at a time."""

    device: str
    """As the job sees it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    """Cores that its job may use."""


@dataclass(frozen=True)
class Task:
    """A job as its process reads it."""

    key: str
    label: str
    document: Mapping[str, object]
    folder: Path
    """For the document and the log."""

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
    elsewhere: bool = False
    """Whether another reproduction has done it."""

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
    cores = cores_given()
    if chosen.type == "cpu":
        threads = max(1, cores // jobs)
        return (Slot("cpu", {"OMP_NUM_THREADS": str(threads)}, threads),) * jobs
    if chosen.type != "cuda":
        return (Slot(chosen.type, {}, max(1, cores // per_device)),) * per_device
    gpus = _gpus(chosen.index, num_devices)
    threads = max(1, cores // (len(gpus) * per_device))
    return tuple(
        Slot("cuda", {"CUDA_VISIBLE_DEVICES": gpu, "OMP_NUM_THREADS": str(threads)}, threads)
        for _ in range(per_device)
        for gpu in gpus
    )


def _gpus(index: int | None, count: int | None) -> list[str]:
    """Names of the GPUs as the environment knows them: this process may itself see only some."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = torch.cuda.device_count()
    gpus = [name.strip() for name in visible.split(",")][:seen] if visible else [*map(str, range(seen))]
    if index is not None:
        return [gpus[index]]
    if count is not None and not 1 <= count <= len(gpus):
        raise UsageError("wrong number of devices", got=count, expected=f"1 to {len(gpus)}")
    return gpus[:count]


def run_tasks(
    tasks: Sequence[Task],
    slots: Sequence[Slot],
    program: Sequence[str] = WORKER,
    *,
    is_done: Callable[[Task], bool] = lambda task: False,
) -> Generator[Ended, None, None]:
    """Run every task that no other reproduction has, as many at a time as there are slots; yields each as it ends.

    ``program`` gets the file of a task as its argument. ``is_done`` tells of a task that another has done meanwhile.
    Ends when the tasks left are in other hands. When the caller stops or is interrupted, running tasks are terminated,
    and killed after a while.
    """
    queue, free = _Queue(tasks, is_done), deque(slots)
    running: list[_Running] = []
    try:
        while True:
            while free and (taken := queue.take(hurry=not running)) is not None:
                running.append(_start(*taken, free.popleft(), program))
            yield from queue.done_elsewhere()
            if not running:
                return
            time.sleep(POLL_S)
            for job in [job for job in running if job.process.poll() is not None]:
                running.remove(job)
                free.append(job.slot)
                job.close()
                if job.process.returncode == INTERRUPTED:
                    # Someone has interrupted the job itself, and means the reproduction.
                    raise KeyboardInterrupt
                yield Ended(job.task, job.process.returncode, time.monotonic() - job.begun)
    finally:
        _stop(running)


class _Queue:
    """Tasks that wait; several reproductions may have the same ones."""

    def __init__(self, tasks: Sequence[Task], is_done: Callable[[Task], bool]) -> None:
        self.waiting = list(tasks)
        self.is_done = is_done
        self._done: list[Task] = []
        self._next_look = 0.0

    def take(self, *, hurry: bool) -> tuple[Task, ExitStack] | None:
        """The first task that no other reproduction holds, and our claim to it; None where there is none.

        After a look in vain the next one waits a while, unless there is a ``hurry``: locks may lie on a slow disk.
        """
        if not hurry and time.monotonic() < self._next_look:
            return None
        for task in tuple(self.waiting):
            claim = _claim(task)
            if claim is None:
                continue
            self.waiting.remove(task)
            # Only now: another may have done it between an earlier look and our claim.
            if not self.is_done(task):
                return task, claim
            claim.close()
            self._done.append(task)
        self._next_look = time.monotonic() + LOOK_S
        return None

    def done_elsewhere(self) -> list[Ended]:
        """Tasks that were found to be done since this was last asked."""
        done, self._done = self._done, []
        return [Ended(task, 0, 0.0, elsewhere=True) for task in done]


def _claim(task: Task) -> ExitStack | None:
    """The lock by which this process alone may do the task; None where another has it."""
    claim = ExitStack()
    try:
        claim.enter_context(holding(task.folder / f"{task.key}.claim"))
    except RefusedError:
        return None
    return claim


@dataclass(eq=False)
class _Running:
    task: Task
    slot: Slot
    process: subprocess.Popen[bytes]
    begun: float
    claim: ExitStack

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.claim.close()


def _start(task: Task, claim: ExitStack, slot: Slot, program: Sequence[str]) -> _Running:
    path = task.folder / f"{task.key}.json"
    where = {"device": slot.device, "jobs": slot.threads, "host": socket.gethostname()}
    write_json(path, {**task.document, **where})
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
    return _Running(task, slot, process, time.monotonic(), claim)


def _stop(running: Sequence[_Running]) -> None:
    for job in running:
        with suppress(ProcessLookupError):
            job.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for job in running:
        try:
            job.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()
        job.close()


def run_job(document: dict[str, Any]) -> None:
    """Train and evaluate as a document says; what is already there is not done again."""
    from ntrm.evaluation.evaluate import evaluate
    from ntrm.training.log import CHECKPOINTS
    from ntrm.training.train import train

    run, data = Path(document["run"]), Path(document["data"])
    shared = {
        "resolution": document["level"] or None,
        "splits": Path(document["split_file"]) if document["split_file"] else None,
        "device": document["device"],
        "pictures": document["pictures"],
        "progress": False,
    }
    result = train(
        data,
        run,
        arch=document["arch"],
        recipe=document["recipe"],
        options=document["options"],
        seed=document["seed"],
        resume=True,
        name=document["name"],
        command=document["command"],
        reference=False,  # the tables compare networks and judge no slide
        say=_say,
        **shared,
    )
    _say(f"trained in {result.seconds:.1f} s; evaluating")
    # Renamed when complete: the folder has everything in it, or is not there.
    partial, complete = run / "evaluating", run / EVALUATION
    for leftover in (partial, complete):
        shutil.rmtree(leftover, ignore_errors=True)
    evaluation = evaluate(
        result.model,
        data,
        partial,
        boundaries=document["boundaries"],
        jobs=document["jobs"],
        command=document["evaluate_command"],
        **shared,
    )
    write_interfaces(partial / INTERFACES, [section.interfaces for section in evaluation.sections])
    partial.rename(complete)
    # Only an unfinished training needs its checkpoints, and those of a hundred runs would fill a disk.
    shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    _say("done")


def write_interfaces(path: Path, sections: Sequence[InterfaceCounts]) -> None:
    """Write the counts at interfaces, section by section: ``pixels``, ``wrong`` … as (S, K, K)."""
    counts = {name: [getattr(section, name) for section in sections] for name in INTERFACE_COUNTS}
    arrays: dict[str, Any] = {
        name: np.stack(tables) for name, tables in counts.items() if all(table is not None for table in tables)
    }
    write_arrays(path, arrays)


def main(arguments: list[str]) -> int:
    """Exit code of a job's process."""
    if GUARD in arguments:
        end_with_parent()
    path = Path(arguments[0])
    document = json.loads(path.read_text(encoding="utf-8"))

    def work() -> None:
        with holding(path.with_suffix(".lock"), wait=True):
            run_job(document)

    try:
        return exit_code_of(work)
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
