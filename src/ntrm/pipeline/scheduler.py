"""Slides shared among workers that may die: who is free gets the next one, and what a dead one left is taken up again.

A worker is a process, here or on another machine, that holds the network. How it is started and asked is the pool's
business; which slide goes where, and how often, is decided here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ntrm.core.errors import NtrmError
from ntrm.pipeline.options import Identity
from ntrm.pipeline.segmenter import Outcome
from ntrm.results.slide_state import remember_failure
from ntrm.wsi.inputs import SlideInput

LOSSES = 3
"""Workers that may die over one slide: after that it is the slide."""
ERRORS = 2
"""Workers in which it may meet an error that nobody expected: a second one tells a bug from a broken device."""
MISSES = 3
"""Workers in a row that may fail to start."""
PATIENCE_S = 120.0
"""How long a slide of a dead worker may seem held: a lock goes with its holder, but over a network not at once."""

Worker = Hashable
Job = Hashable


class WorkerLostError(NtrmError):
    """A worker's process is gone, or cannot be reached."""


@dataclass(frozen=True)
class Task:
    """One slide and the name of its results."""

    slide: SlideInput
    slide_id: str


class Pool(Protocol):
    """Where workers come from."""

    def start(self) -> tuple[Worker, Job]:
        """Ask for one more worker; the job ends with its ``Identity`` when it is ready."""
        ...

    def submit(self, worker: Worker, task: Task, patience_s: float) -> Job:
        """Give a slide to a worker; the job ends with its ``Outcome``."""
        ...

    def wait(self, jobs: Collection[Job]) -> Job:
        """The first of ``jobs`` that has ended."""
        ...

    def result(self, job: Job) -> Identity | Outcome:
        """What the job ended with; raises ``WorkerLostError``, or the error that kept a worker from starting."""
        ...

    def discard(self, worker: Worker) -> None:
        """End a worker that is dead or no longer trusted."""
        ...


@dataclass(eq=False)
class _Turn:
    task: Task
    lost: int = 0
    """Workers that died over it."""
    errors: int = 0
    """Workers in which something unexpected happened."""
    asked_again: bool = False


@dataclass(eq=False)
class Spreading:
    """One run of many slides; ``identity`` is known once a worker was ready."""

    pool: Pool
    workers: int
    out: Path
    identity: Identity | None = None
    _waiting: deque[_Turn] = field(default_factory=deque)
    _free: list[Worker] = field(default_factory=list)
    _starting: dict[Job, Worker] = field(default_factory=dict)
    _working: dict[Job, tuple[Worker, _Turn]] = field(default_factory=dict)
    _misses: int = 0
    _why: NtrmError | None = None
    """Why the last worker did not start."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Outcome]:
        """Every slide once, in the order in which they end."""
        self._waiting.extend(_Turn(task) for task in tasks)
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
        there = len(self._free) + len(self._starting) + len(self._working)
        for _ in range(wanted - there if self._misses < MISSES else 0):
            worker, job = self.pool.start()
            self._starting[job] = worker

    def _hand_out(self, worker: Worker, turn: _Turn) -> None:
        job = self.pool.submit(worker, turn.task, PATIENCE_S if turn.lost or turn.errors else 0.0)
        self._working[job] = worker, turn

    def _started(self, job: Job) -> None:
        worker = self._starting.pop(job)
        try:
            answer = self.pool.result(job)
        except NtrmError as error:
            self.pool.discard(worker)
            self._misses += 1
            self._why = error
            return
        if isinstance(answer, Identity):
            self.identity = answer
        self._misses = 0
        self._free.append(worker)

    def _ended(self, job: Job) -> Iterator[Outcome]:
        worker, turn = self._working.pop(job)
        try:
            outcome = self.pool.result(job)
        except WorkerLostError as error:
            turn.lost += 1
            what = "; ".join(str(part) for part in (error.what, error.got) if part)
            yield from self._once_more(worker, turn, f"{what}; {turn.lost} times")
            return
        if not isinstance(outcome, Outcome):
            raise TypeError(f"a slide ended with {outcome!r}")
        if outcome.unexpected:
            turn.errors += 1
            yield from self._once_more(worker, turn, outcome.reason)
            return
        self._free.append(worker)
        if outcome.status == "busy" and not turn.asked_again:
            # Whoever works on it may be through when all the others are.
            turn.asked_again = True
            self._waiting.append(turn)
        else:
            yield outcome

    def _once_more(self, worker: Worker, turn: _Turn, reason: str) -> Iterator[Outcome]:
        """The slide goes to another worker, unless it has had enough of them."""
        # Dead, or perhaps no longer in its right mind: a GPU that met an illegal address answers nothing any more.
        self.pool.discard(worker)
        if turn.lost < LOSSES and turn.errors < ERRORS:
            self._waiting.appendleft(turn)
        else:
            yield self._failed(turn, reason)

    def _failed(self, turn: _Turn, reason: str) -> Outcome:
        """For the tables as well: the worker that should have written it down is gone."""
        name = turn.task.slide_id
        remember_failure(self.out / name, name, reason, turn.task.slide.covariates)
        return Outcome(name, "failed", reason, unexpected=True)

    def _give_up(self) -> Iterator[Outcome]:
        """No worker is left and none can be started."""
        why = self._why or WorkerLostError("no worker could be started")
        if self.identity is None:
            raise why
        while self._waiting:
            yield self._failed(self._waiting.popleft(), f"no worker is left; {why.what}")
