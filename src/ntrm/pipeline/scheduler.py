"""Slides distributed over workers that may die: a free one gets the next slide, and a dead one's slide is retried.

A worker is a process, here or on another machine, that holds the network. The pool starts workers and talks to them;
this module decides which slide goes where, and how often.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntrm.core.errors import NtrmError
from ntrm.pipeline.segmenter import Outcome
from ntrm.results.run_record import Run
from ntrm.results.slide_state import remember_failure
from ntrm.slides.inputs import SlideInput

if TYPE_CHECKING:
    from ntrm.pipeline.ray_cluster import RayPool

LOSSES = 3
"""Workers that may die over one slide; then the slide is taken to be the cause."""
ERRORS = 2
"""Workers in which a slide may meet an unexpected error: a second one tells a bug from a broken device."""
MISSES = 3
"""Workers in a row that may fail to start."""
PATIENCE_S = 120.0
"""How long a slide of a dead worker may seem locked: a lock ends with its holder, but over a network not at once."""

Worker = Any
Job = Any
"""What Ray answers with later; both are hashable."""


class WorkerLostError(NtrmError):
    """A worker's process is gone, or cannot be reached."""


@dataclass(frozen=True)
class SlideTask:
    """One slide and the name of its results."""

    slide: SlideInput
    slide_id: str


@dataclass(eq=False)
class _Attempts:
    task: SlideTask
    lost: int = 0
    """Workers that died over it."""
    errors: int = 0
    """Workers in which something unexpected happened."""
    repeated: bool = False
    """Whether a busy slide was tried again."""


@dataclass(eq=False)
class Scheduler:
    """Runs many slides; ``made_with`` is known once a worker was ready."""

    pool: RayPool
    workers: int
    out: Path
    made_with: Run | None = None
    _waiting: deque[_Attempts] = field(default_factory=deque)
    _free: list[Worker] = field(default_factory=list)
    _starting: dict[Job, Worker] = field(default_factory=dict)
    _working: dict[Job, tuple[Worker, _Attempts]] = field(default_factory=dict)
    _misses: int = 0
    _why: NtrmError | None = None
    """Why the last worker did not start."""

    def run(self, tasks: Sequence[SlideTask]) -> Iterator[Outcome]:
        """Every slide once, in the order in which they end."""
        self._waiting.extend(_Attempts(task) for task in tasks)
        while self._waiting or self._working:
            self._start_workers()
            while self._waiting and self._free:
                self._hand_out(self._free.pop(), self._waiting.popleft())
            if not self._starting and not self._working:
                yield from self._give_up()
                return
            job = self.pool.wait([*self._working, *self._starting])
            if job in self._starting:
                self._started(job)
            else:
                yield from self._ended(job)

    def _start_workers(self) -> None:
        wanted = min(self.workers, len(self._waiting) + len(self._working))
        workers = len(self._free) + len(self._starting) + len(self._working)
        for _ in range(wanted - workers if self._misses < MISSES else 0):
            worker, job = self.pool.start()
            self._starting[job] = worker

    def _hand_out(self, worker: Worker, slide: _Attempts) -> None:
        job = self.pool.submit(worker, slide.task, PATIENCE_S if slide.lost or slide.errors else 0.0)
        self._working[job] = worker, slide

    def _started(self, job: Job) -> None:
        worker = self._starting.pop(job)
        try:
            answer = self.pool.result(job)
        except NtrmError as error:
            self.pool.discard(worker)
            self._misses += 1
            self._why = error
            return
        if isinstance(answer, Run):
            self.made_with = answer
        self._misses = 0
        self._free.append(worker)

    def _ended(self, job: Job) -> Iterator[Outcome]:
        worker, slide = self._working.pop(job)
        try:
            outcome = self.pool.result(job)
        except WorkerLostError as error:
            slide.lost += 1
            what = "; ".join(str(text) for text in (error.what, error.got) if text)
            yield from self._once_more(worker, slide, f"{what}; {slide.lost} times")
            return
        if not isinstance(outcome, Outcome):
            raise TypeError(f"a slide ended with {outcome!r}")
        if outcome.unexpected:
            slide.errors += 1
            yield from self._once_more(worker, slide, outcome.reason)
            return
        self._free.append(worker)
        if outcome.status == "busy" and not slide.repeated:
            # Another process works on it, and may have finished when all other slides are done.
            slide.repeated = True
            self._waiting.append(slide)
        else:
            yield outcome

    def _once_more(self, worker: Worker, slide: _Attempts, reason: str) -> Iterator[Outcome]:
        """Give the slide to another worker, unless it has had enough of them."""
        # Dead or no longer usable: a GPU that met an illegal address answers nothing any more.
        self.pool.discard(worker)
        if slide.lost < LOSSES and slide.errors < ERRORS:
            self._waiting.appendleft(slide)
        else:
            yield self._failed(slide, reason)

    def _failed(self, slide: _Attempts, reason: str) -> Outcome:
        """Also written for the tables: the worker that should have done so is gone."""
        name = slide.task.slide_id
        remember_failure(self.out / name, name, reason, slide.task.slide.covariates)
        return Outcome(name, "failed", reason, unexpected=True)

    def _give_up(self) -> Iterator[Outcome]:
        """No worker is left and none can be started."""
        why = self._why or WorkerLostError("no worker could be started")
        if self.made_with is None:
            raise why
        while self._waiting:
            yield self._failed(self._waiting.popleft(), f"no worker is left; {why.what}")
