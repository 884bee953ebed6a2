"""The reproduction from one call: facts about the data, a plan, runs on every device, tables, figures, one page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.core.io import holding
from ntrm.core.processes import terminated_like_interrupted
from ntrm.core.progress import SILENT, Progress
from ntrm.paper.outcomes import DONE, Results, dig, evaluation_of
from ntrm.paper.page import assemble
from ntrm.paper.plan import Job, Plan, describe
from ntrm.paper.request import Request
from ntrm.paper.result_tables import ACCURACY, DICE, IOU
from ntrm.paper.runner import Ended, Slot, make_slots, run_tasks

Say = Callable[[str], None]


@dataclass(frozen=True)
class Machine:
    """Where the jobs run."""

    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` (all of them), ``cuda:N`` or ``mps``."""
    num_devices: int | None = None
    """How many GPUs to use; all if not given."""
    per_device: int = 1
    """Jobs side by side on one GPU."""
    jobs: int = 1
    """Jobs side by side without GPUs, and processes that read sections."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Places where a job can run."""
        return make_slots(self.device, num_devices=self.num_devices, per_device=self.per_device, jobs=self.jobs)


@dataclass(frozen=True, eq=False)
class Reproduction:
    """What was made."""

    page: Path
    results: Results
    ran: int
    """Jobs that ran now; the others were done before."""
    tables: tuple[Path, ...]

    @property
    def failures(self) -> dict[str, str]:
        """Why jobs have no result, by their label."""
        return {outcome.job.label: outcome.failure or outcome.status for outcome in self.results.failed}

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "page": str(self.page),
            "tables": [str(path) for path in self.tables],
            "jobs": len(self.results.outcomes),
            "ran": self.ran,
            "done": sum(outcome.status == DONE for outcome in self.results.outcomes.values()),
            "failed": self.failures,
            "notes": list(self.results.plan.notes),
        }


def reproduce(
    request: Request,
    machine: Machine | None = None,
    *,
    boundaries: bool = True,
    command: Sequence[str] = (),
    progress: Progress = SILENT,
    say: Say = lambda text: None,
) -> Reproduction:
    """Train and evaluate everything that is not done yet, then write tables, figures and the page.

    Interrupted at any point, the same call goes on: jobs that are done stay done, a half-trained one is resumed.

    Args:
        request: what to reproduce.
        machine: where the jobs run.
        boundaries: whether evaluations measure distances of boundaries, too.
        command: what the user typed, for the page.
        progress: told about sections and jobs.
        say: told about every job that ends.

    """
    machine, workspace = machine or Machine(), request.workspace
    workspace.claim()
    slots = machine.slots
    with holding(workspace.lock), terminated_like_interrupted():
        facts = request.gather(jobs=machine.jobs, progress=progress)
        plan = request.plan({level: each.fingerprint for level, each in facts.items()})
        workspace.describe({"command": list(command), **describe(plan)})
        for note in plan.notes:
            say(note)
        todo = [job for job in plan.jobs if evaluation_of(workspace.run(job)) is None]
        say(f"{len(plan.jobs)} runs, {len(plan.jobs) - len(todo)} of them done; {len(slots)} at a time")
        failures = _run(request, plan, todo, slots, boundaries=boundaries, progress=progress, say=say)
        results = Results.read(plan, workspace.run, failures)
        say("drawing tables and figures")
        parts = request.parts(plan.primary)
        written = assemble(workspace, parts, results, facts, machine.device, machine.jobs, command, progress)
    return Reproduction(workspace.page, results, len(todo), written)


def _run(
    request: Request,
    plan: Plan,
    todo: Sequence[Job],
    slots: Sequence[Slot],
    *,
    boundaries: bool,
    progress: Progress,
    say: Say,
) -> dict[str, str]:
    """Run the jobs; returns the reasons of those that failed, by key."""
    workspace = request.workspace
    # Pictures of every run would take longer than the runs themselves.
    shown = {plan.job(plan.ours, plan.seeds[0]).key} if plan.ours else set()
    tasks = [
        workspace.task(job, request.data, request.split_file, boundaries=boundaries, pictures=job.key in shown)
        for job in todo
    ]
    runs = {job.key: workspace.run(job) for job in todo}
    failures: dict[str, str] = {}
    with closing(run_tasks(tasks, slots)) as running:
        for ended in progress.track(running, len(tasks), "runs"):
            if ended.failed:
                failures[ended.task.key] = ended.reason
            say(_line(ended, runs[ended.task.key]))
    return failures


def _line(ended: Ended, run: Path) -> str:
    if ended.failed:
        return f"FAILED {ended.task.label} after {ended.seconds:.0f} s: {ended.reason}\n  log: {ended.task.log}"
    metrics = evaluation_of(run) or {}
    scores = [dig(metrics, path) for path in (ACCURACY, IOU, DICE)]
    words = [f"{name} {value:.4f}" for name, value in zip(("accuracy", "IoU", "Dice"), scores, strict=True) if value]
    return f"{ended.task.label}: {', '.join(words)} ({ended.seconds:.0f} s)"
