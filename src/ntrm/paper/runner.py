"""Runs as processes, several at a time on every device; one that fails is reported, and the others go on.

Each process trains (or resumes) one network, then evaluates it:

    python -m ntrm.paper.runner RUN.json

Its parent holds the other end of its standard input: when that closes, for whatever reason, the process and its
children end. Several reproductions may share one folder: each takes the runs whose lock no other holds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from ntrm.core.devices import choose_device
from ntrm.core.errors import RefusedError, UsageError, check_number
from ntrm.core.io import write_json
from ntrm.core.locks import holding
from ntrm.core.processes import end_with_parent, exit_code_of
from ntrm.core.threads import cores_given
from ntrm.paper.outcomes import EVALUATION

GRACE_S = 60.0
"""Time that an interrupted run has to write its checkpoint."""
GUARD = "--end-with-parent"
WORKER = (sys.executable, "-m", "ntrm.paper.runner")
INTERRUPTED = 130
TAIL = 20
"""Lines of a failed run's log that are shown."""


@dataclass(frozen=True)
class Slot:
    """Trains one network at a time."""

    device: str
    """As the process sees it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    threads: int = 1
    """Cores that the process may use."""


@dataclass(frozen=True)
class Task:
    """A run as its process reads it."""

    key: str
    label: str
    document: Mapping[str, Any]
    folder: Path
    """For the document and the log."""

    @property
    def log(self) -> Path:
        """Everything the process has printed."""
        return self.folder / f"{self.key}.log"


@dataclass(frozen=True)
class Ended:
    """A run that has ended here, or that another reproduction has."""

    task: Task
    code: int = 0
    seconds: float = 0.0
    elsewhere: bool = False
    """Whether another reproduction has done it, or works on it."""

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

    ``program`` gets the file of a task as its argument. A task that ``is_done`` by now is not run. When the caller
    stops or is interrupted, running processes are terminated, and killed after a while.
    """
    free: SimpleQueue[Slot] = SimpleQueue()
    for slot in slots:
        free.put(slot)
    processes = _Processes()

    def run(task: Task) -> Ended:
        slot, begun = free.get(), time.monotonic()
        try:
            with holding(task.folder / f"{task.key}.lock"):
                if not is_done(task):
                    return Ended(task, processes.run(task, slot, program), time.monotonic() - begun)
        except RefusedError:
            pass  # another reproduction holds it
        finally:
            free.put(slot)
        return Ended(task, elsewhere=True)

    with ThreadPoolExecutor(len(slots)) as pool:
        waiting = [pool.submit(run, task) for task in tasks]
        try:
            for each in as_completed(waiting):
                ended = each.result()
                if ended.code == INTERRUPTED:
                    # Someone has interrupted the run itself, and means the reproduction.
                    raise KeyboardInterrupt
                yield ended
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()


class _Processes:
    """The processes that run now; none is started after ``stop``."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, task: Task, slot: Slot, program: Sequence[str]) -> int:
        """Exit code of a task."""
        path = task.folder / f"{task.key}.json"
        write_json(path, {**task.document, "device": slot.device, "jobs": slot.threads})
        with task.log.open("wb") as log, self._lock:
            if self._stopped:
                return INTERRUPTED
            # A session of its own: an interrupt from the terminal reaches this process alone, which then stops the
            # others in order; and a run's own children can be ended with it.
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*program, str(path), GUARD],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **slot.environment},
                start_new_session=True,
            )
            self._running.add(process)
        with process:
            code = process.wait()
        self._running.discard(process)
        return code

    def stop(self) -> None:
        """Terminate what runs; what does not end in time is killed, with its children."""
        with self._lock:
            self._stopped, running = True, list(self._running)
        for process in running:
            process.terminate()
        deadline = time.monotonic() + GRACE_S
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


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
    evaluate(
        result.model,
        data,
        run / EVALUATION,
        boundaries=document["boundaries"],
        jobs=document["jobs"],
        command=document["evaluate_command"],
        **shared,
    )
    # Only an unfinished training needs its checkpoints, and those of a hundred runs would fill a disk.
    shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    _say("done")


def main(arguments: list[str]) -> int:
    """Exit code of a job's process."""
    if GUARD in arguments:
        end_with_parent()
    path = Path(arguments[0])
    document = json.loads(path.read_text(encoding="utf-8"))

    try:
        return exit_code_of(lambda: run_job(document))
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
