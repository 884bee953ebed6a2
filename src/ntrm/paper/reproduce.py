"""The reproduction from one call: a plan, runs on every device, then tables as CSV, figures as PNG and one page."""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.core.io import holding, write_json
from ntrm.core.processes import terminated_like_interrupted
from ntrm.core.progress import SILENT, Progress
from ntrm.core.wording import counted
from ntrm.data.dataset import SPLITS
from ntrm.data.stats import dataset_stats
from ntrm.models.predictor import Predictor
from ntrm.models.registry import load
from ntrm.paper import result_tables as tables
from ntrm.paper.claims import claims_table
from ntrm.paper.costs import networks_table, stages_table
from ntrm.paper.figures import choose_windows, drawings, first_trained, write_figures
from ntrm.paper.outcomes import FAILED, PlanResults, dig
from ntrm.paper.plan import LOCK, MARK, Job, Request, TrainingPlan, describe, evaluation_of
from ntrm.paper.run import Ended, Slot, make_slots, run_jobs
from ntrm.report.html import write_page
from ntrm.training.log import CHECKPOINTS

PHANTOM = (
    "These are results on a phantom: synthetic sections drawn by a program. They try the pipeline and compare networks "
    "with each other; they say nothing about real skin, and the paper's numbers beside them are for orientation only."
)
REAL = "Accuracy, mean IoU and Dice of every system on the data named below, with the paper's numbers beside."
TABLES = (
    *("table1", "table1_scratch", "differences", "learning", "table2", "tissues_iou", "tissues_dice", "claims"),
    *("ablation", "complexity_networks", "complexity_stages", "runs"),
)
FIGURES = ("dataset", "qualitative", "improvement", "pipeline", "architecture", "trm", "learning", "ablation")
"""Every name that a table, or a figure, may have."""

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The page, the tables, and the results they show."""

    page: Path
    results: PlanResults
    ran: int  # Jobs that ran now; the others were done before, or by other commands
    tables: tuple[Path, ...]

    @property
    def failures(self) -> dict[str, str]:
        """Why jobs have failed, by their label."""
        return {each.job.label: each.failure for each in self.results.outcomes.values() if each.status == FAILED}

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        jobs, notes = len(self.results.outcomes), list(self.results.plan.notes)
        counts = {"jobs": jobs, "ran": self.ran, "done": jobs - len(self.results.lacking)}
        files = {"page": str(self.page), "tables": [str(path) for path in self.tables]}
        return {**files, **counts, "failed": self.failures, "notes": notes}


def reproduce(
    request: Request,
    *,
    device: str = "auto",
    num_devices: int | None = None,
    per_device: int = 1,
    jobs: int = 1,
    command: Sequence[str] = (),
    progress: Progress = SILENT,
    say: Say = lambda text: None,
) -> Reproduction:
    """Train and evaluate everything that is not done yet, then write tables, figures and the page.

    Interrupted at any point, the same call goes on: jobs that are done stay done, a half-trained one is resumed.
    Several calls may work in one folder at a time: each takes jobs that no other works on, and writes the page of what
    there is when it finds no more.
    """
    request.check_folder(command)
    slots = make_slots(device, num_devices=num_devices, per_device=per_device, jobs=jobs)
    with terminated_like_interrupted():
        request.decode(jobs, progress)
        plan = request.plan()
        write_json(request.out / MARK, {"command": list(command), **describe(plan)})
        for note in plan.notes:
            say(note)
        ran, failures = _run(request, plan, slots, progress, say)
        results = PlanResults.read(plan, request.run, failures, request.patients)
        with holding(request.out / LOCK, wait=True):
            say("drawing tables and figures")
            page, files = write_results(request, results, device, command, jobs, progress)
    return Reproduction(page, results, ran, files)


def _run(
    request: Request, plan: TrainingPlan, slots: Sequence[Slot], progress: Progress, say: Say
) -> tuple[int, dict[str, str]]:
    """Run what is not done: how many jobs ran here, and why some failed, by key."""
    shown = plan.job(plan.ours, plan.seeds[0]) if plan.ours else None
    todo = [job for job in plan.jobs if not request.is_done(job)]
    say(f"{counted(len(plan.jobs), 'run')}, {len(plan.jobs) - len(todo)} of them done; {len(slots)} at a time")
    ran, failures = 0, {}

    def commands(job: Job) -> tuple[list[str], list[str]]:
        return request.commands(job, pictures=job == shown)

    running = run_jobs(todo, slots, commands, request.out / "jobs", request.is_done)
    with closing(running):
        for ended in progress.track(running, len(todo), "runs"):
            ran += ended.code is not None
            if ended.reason:
                failures[ended.job.key] = ended.reason
            if ended.code == 0:
                # Only an unfinished training needs its checkpoints, and those of a hundred runs would fill a disk.
                shutil.rmtree(request.run(ended.job) / CHECKPOINTS, ignore_errors=True)
            say(_line(ended, request))
    return ran, failures


def _line(ended: Ended, request: Request) -> str:
    if ended.code is None:
        return f"{ended.job.label}: done, or being done, by another command"
    if ended.reason:
        return f"FAILED {ended.job.label} after {ended.seconds:.0f} s: {ended.reason}\n  log: {ended.log}"
    metrics = evaluation_of(request.run(ended.job))
    scores = {name: dig(metrics, *path) for name, path in tables.HEADLINE.items()}
    words = [f"{name} {value:.4f}" for name, value in scores.items() if value is not None]
    return f"{ended.job.label}: {', '.join(words)} ({ended.seconds:.0f} s)"


def write_results(
    request: Request, results: PlanResults, device: str, command: Sequence[str], jobs: int, progress: Progress
) -> tuple[Path, tuple[Path, ...]]:
    """Write tables, figures and the page; returns the page and the tables."""
    out, plan, recipe = request.out, results.plan, results.plan.recipe
    splits = request.splits[plan.primary]
    windows = choose_windows(splits, recipe.window)
    stats = dataset_stats(splits.dataset, tile=recipe.window, jobs=jobs, progress=progress)
    ours = first_trained(results, plan.ours)
    every = (
        tables.table_1(results),
        tables.table_1_scratch(results),
        tables.differences_table(results),
        tables.learning_table(results),
        tables.table_2(results),
        tables.tissue_table(results, "iou", "IoU"),
        tables.tissue_table(results, "dice", "Dice"),
        claims_table(results),
        tables.ablation_table(results),
        networks_table(plan.compared, splits.schema, recipe.window),
        stages_table(Predictor(load(ours.model), device), [each.image for each in windows])
        if ours and windows
        else None,
        tables.runs_table(results),
    )
    made = {table.name: table for table in every if table is not None}
    drawn = write_figures(drawings(results, windows, stats, made.get("ablation"), device), out / "figures")
    files = tuple(table.write_csv(out / "tables") for table in made.values())
    length = f"{recipe.steps:,} steps" if recipe.steps is not None else f"up to {recipe.epochs} passes"
    of_batches = f"of {recipe.batch} windows of {recipe.window} pixels"
    setup = [
        ("recipe", f"{recipe.name}: {length} {of_batches}, {recipe.optimiser}"),
        ("training seeds", ", ".join(map(str, plan.seeds))),
        ("runs", f"{len(plan.jobs)}, {len(results.lacking)} of them without a result"),
    ]
    for level, known in request.splits.items():
        sections = Counter(case.split for case in known.dataset)
        patients = Counter(split for split, _ in {(case.split, case.group) for case in known.dataset})
        of = [", ".join(f"{count[split]} {split}" for split in SPLITS) for count in (sections, patients)]
        amount = f"{known.resolution.mean:g} µm/px; sections: {of[0]}; patients: {of[1]}"
        setup.append((f"data {level}".strip(), f"{amount}; fingerprint {plan.fingerprints[level]}"))
    notes = list(plan.notes)
    moved = [each.arch for each in plan.compared if results.done(each) and first_trained(results, each) is None]
    if moved:
        notes.append(f"No trained network is left of {', '.join(moved)}: what needs one is left out.")
    write_page(
        out / "index.html",
        "reproduction.html",
        lead=PHANTOM if (splits.dataset.root / "truth.json").is_file() else REAL,  # which ntrm phantom alone writes
        setup=setup,
        command=shlex.join(command),
        notes=notes,
        tables=made,
        figures=drawn,
        headline=stats.headline,
        cancers=", ".join(f"{name} {count}" for name, count in stats.as_dict()["cancers"].items()),
        failures=[(each.job.label, each.status, each.failure[-400:] or "–") for each in results.lacking],
    )
    # What an earlier request made, and this one does not, would pass for a result of this one.
    for kind, names, present in (("tables/{}.csv", TABLES, made), ("figures/{}.png", FIGURES, drawn)):
        for name in set(names) - present.keys():
            (out / kind.format(name)).unlink(missing_ok=True)
    return out / "index.html", files
