"""The reproduction from one call: a plan, runs on every device, then tables as CSV, figures as PNG and one page."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.core.locks import holding
from ntrm.core.processes import terminated_like_interrupted
from ntrm.core.progress import SILENT, Progress
from ntrm.core.wording import counted
from ntrm.data.split import DatasetSplits
from ntrm.data.stats import DatasetStats, dataset_stats
from ntrm.inference.predictor import Predictor
from ntrm.models.hub import load
from ntrm.models.ntrm import NTRM
from ntrm.paper import figures
from ntrm.paper import result_tables as tables
from ntrm.paper.claims import claims_table
from ntrm.paper.costs import measure_stages, networks_table, stages_table
from ntrm.paper.facts import Facts
from ntrm.paper.figures import FigureFile, Shown, choose_windows, first_trained
from ntrm.paper.learning import learning_table
from ntrm.paper.outcomes import DONE, MISSING, PlanResults, dig, evaluation_of
from ntrm.paper.plan import Job, TrainingPlan, describe
from ntrm.paper.request import LOCK, Request
from ntrm.paper.result_tables import ACCURACY, DICE, IOU, ResultTable
from ntrm.paper.runner import Ended, Slot, make_slots, run_tasks
from ntrm.report.html import write_page

PHANTOM = (
    "These are results on a phantom: synthetic sections drawn by a program. They try the pipeline and compare networks "
    "with each other; they say nothing about real skin, and the paper's numbers beside them are for orientation only."
)
TIMED_WINDOWS = 4
TABLES = (
    *("table1", "table1_scratch", "differences", "learning", "table2", "tissues_iou", "tissues_dice", "claims"),
    *("ablation", "complexity_networks", "complexity_stages", "runs"),
)
FIGURES = (
    *("dataset", "qualitative", "improvement", "pipeline", "architecture", "trm", "learning", "resolutions"),
    "ablation",
)
"""Every name that a table, or a figure, may have."""

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Reproduction:
    """The page, the tables, and the results they show."""

    page: Path | None
    """None while other commands have runs to finish; the last of them writes it."""
    results: PlanResults
    ran: int
    """Jobs that ran now; the others were done before, or by other commands."""
    tables: tuple[Path, ...]
    others: tuple[str, ...] = ()
    """Labels of the jobs that other commands are at."""

    @property
    def failures(self) -> dict[str, str]:
        """Why jobs have no result, by their label."""
        failed = ((outcome.job.label, outcome.failure or outcome.status) for outcome in self.results.failed)
        return {label: reason for label, reason in failed if label not in self.others}

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "page": None if self.page is None else str(self.page),
            "tables": [str(path) for path in self.tables],
            "jobs": len(self.results.outcomes),
            "ran": self.ran,
            "done": sum(outcome.status == DONE for outcome in self.results.outcomes.values()),
            "failed": self.failures,
            "with_other_commands": list(self.others),
            "notes": list(self.results.plan.notes),
        }


def reproduce(
    request: Request,
    *,
    device: str = "auto",
    num_devices: int | None = None,
    per_device: int = 1,
    jobs: int = 1,
    boundaries: bool = True,
    command: Sequence[str] = (),
    progress: Progress = SILENT,
    say: Say = lambda text: None,
) -> Reproduction:
    """Train and evaluate everything that is not done yet, then write tables, figures and the page.

    Interrupted at any point, the same call goes on: jobs that are done stay done, a half-trained one is resumed.
    Several calls may work in one folder at a time: each takes jobs that no other has, and the last writes the page.

    Args:
        request: what to reproduce.
        device: ``auto``, ``cpu``, ``cuda`` (all of them), ``cuda:N`` or ``mps``.
        num_devices: how many GPUs to use; all if not given.
        per_device: jobs at a time on one GPU.
        jobs: jobs at a time without GPUs, and processes that read sections.
        boundaries: whether evaluations measure distances of boundaries, too.
        command: what the user typed, for the page.
        progress: reports sections and jobs.
        say: gets a line for every job that ends.

    """
    request.claim(command)
    slots = make_slots(device, num_devices=num_devices, per_device=per_device, jobs=jobs)
    with terminated_like_interrupted():
        facts = request.gather(jobs=jobs, progress=progress)
        plan, patients = request.plan({level: known.fingerprint for level, known in facts.items()}), request.patients
        request.describe({"command": list(command), **describe(plan)})
        for note in plan.notes:
            say(note)
        todo = [job for job in plan.jobs if evaluation_of(request.run(job)) is None]
        say(f"{counted(len(plan.jobs), 'run')}, {len(plan.jobs) - len(todo)} of them done; {len(slots)} at a time")
        ended = _run(request, plan, todo, slots, boundaries=boundaries, progress=progress, say=say)
        failures = {each.task.key: each.reason for each in ended if each.failed}
        results = PlanResults.read(plan, request.run, failures, patients)
        ran = sum(not each.elsewhere for each in ended)
        elsewhere = [each.task for each in ended if each.elsewhere]
        others = tuple(task.label for task in elsewhere if results.outcomes[task.key].status == MISSING)
        if others:
            return Reproduction(None, results, ran, (), others)
        with holding(request.out / LOCK, wait=True):
            say("drawing tables and figures")
            page, files = write_results(request, results, facts, device, command, jobs=jobs, progress=progress)
    return Reproduction(page, results, ran, files)


def write_results(
    request: Request,
    results: PlanResults,
    facts: Mapping[str, Facts],
    device: str,
    command: Sequence[str],
    *,
    jobs: int = 1,
    progress: Progress = SILENT,
) -> tuple[Path, tuple[Path, ...]]:
    """Write tables, figures and the page; returns the page and the tables."""
    out, plan = request.out, results.plan
    splits = request.splits(plan.primary)
    windows = choose_windows(splits, plan.recipe.window)
    stats = dataset_stats(splits.dataset, tile=plan.recipe.window, jobs=jobs, progress=progress)
    tables = make_tables(results, facts, splits, windows, device)
    files = tuple(table.write_csv(out / "tables") for table in tables.values())
    figure_files = draw_figures(results, facts, splits, windows, stats, tables, out / "figures", device)
    page = out / "index.html"
    write_results_page(page, results, facts, stats, tables, figure_files, command)
    # What an earlier request made, and this one does not, would pass for a result of this one.
    for kind, names, made in (("tables/{}.csv", TABLES, tables), ("figures/{}.png", FIGURES, figure_files)):
        for name in set(names) - made.keys():
            (out / kind.format(name)).unlink(missing_ok=True)
    return page, files


def _run(
    request: Request,
    plan: TrainingPlan,
    todo: Sequence[Job],
    slots: Sequence[Slot],
    *,
    boundaries: bool,
    progress: Progress,
    say: Say,
) -> list[Ended]:
    """Run the jobs that no other command has; returns those that have ended."""
    # Pictures of every run would take longer than the runs themselves.
    shown = {plan.job(plan.ours, plan.seeds[0]).key} if plan.ours else set()
    tasks = [request.task(job, boundaries=boundaries, pictures=job.key in shown) for job in todo]
    runs = {job.key: request.run(job) for job in todo}
    all_ended: list[Ended] = []
    running = run_tasks(tasks, slots, is_done=lambda task: evaluation_of(runs[task.key]) is not None)
    with closing(running):
        for ended in progress.track(running, len(tasks), "runs"):
            all_ended.append(ended)
            say(_line(ended, runs[ended.task.key]))
    return all_ended


def _line(ended: Ended, run: Path) -> str:
    if ended.elsewhere:
        return f"{ended.task.label}: done, or being done, by another command"
    if ended.failed:
        return f"FAILED {ended.task.label} after {ended.seconds:.0f} s: {ended.reason}\n  log: {ended.task.log}"
    metrics = evaluation_of(run) or {}
    scores = {"accuracy": dig(metrics, ACCURACY), "IoU": dig(metrics, IOU), "Dice": dig(metrics, DICE)}
    words = [f"{name} {value:.4f}" for name, value in scores.items() if value is not None]
    return f"{ended.task.label}: {', '.join(words)} ({ended.seconds:.0f} s)"


def make_tables(
    results: PlanResults, facts: Mapping[str, Facts], splits: DatasetSplits, windows: Sequence[Shown], device: str
) -> dict[str, ResultTable]:
    """All tables that the results allow, by name."""
    made = [
        tables.table_1(results),
        tables.table_1_scratch(results),
        tables.differences_table(results),
        learning_table(results),
        tables.table_2(results, facts),
        tables.tissue_table(results, "iou"),
        tables.tissue_table(results, "dice"),
        claims_table(results, facts),
        tables.ablation_table(results),
        networks_table(results.plan.compared, splits.schema, results.plan.recipe.window),
        _stages(results, windows, device),
        tables.runs_table(results),
    ]
    return {table.name: table for table in made if table is not None}


def _stages(results: PlanResults, windows: Sequence[Shown], device: str) -> ResultTable | None:
    ours = first_trained(results, results.plan.ours)
    network = load(ours.model) if ours is not None else None
    if not isinstance(network, NTRM) or network.relation is None or network.relation.config.graph == "none":
        return None
    images = [window.image for window in windows][:TIMED_WINDOWS]
    return stages_table(measure_stages(network, images, Predictor(network, device))) if images else None


def draw_figures(
    results: PlanResults,
    facts: Mapping[str, Facts],
    splits: DatasetSplits,
    windows: Sequence[Shown],
    stats: DatasetStats,
    tables: Mapping[str, ResultTable],
    folder: Path,
    device: str,
) -> dict[str, FigureFile]:
    """All figures that the results allow, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    figure_files: list[FigureFile | None] = [figures.draw_dataset(stats, folder)]
    figure_files += figures.draw_systems(results, windows, splits.schema, folder, device)
    ours = first_trained(results, results.plan.ours)
    if ours is not None and windows:
        figure_files += figures.draw_network(ours, windows, folder)
    figure_files.append(figures.draw_learning(results, folder))
    figure_files.append(figures.draw_resolutions(results, facts, folder))
    if "ablation" in tables:
        figure_files.append(figures.draw_ablation(tables["ablation"], folder))
    return {figure.name: figure for figure in figure_files if figure is not None}


def write_results_page(
    path: Path,
    results: PlanResults,
    facts: Mapping[str, Facts],
    stats: DatasetStats,
    tables: Mapping[str, ResultTable],
    figure_files: Mapping[str, FigureFile],
    command: Sequence[str],
) -> None:
    """Write the page."""
    cancers = stats.as_dict()["cancers"]
    write_page(
        path,
        "reproduction.html",
        lead=lead(facts),
        setup=_setup(results, facts),
        command=shlex.join(command),
        notes=[*results.plan.notes, *_lacking_models(results)],
        tables=tables,
        figures=figure_files,
        headline=stats.headline,
        cancers=", ".join(f"{name} {count}" for name, count in cancers.items()),
        failures=[(outcome.job.label, outcome.status, outcome.failure[-400:] or "–") for outcome in results.failed],
    )


def _lacking_models(results: PlanResults) -> list[str]:
    """A note where figures are missing because runs were moved without their models."""
    done = [variant for variant in results.plan.compared if results.done(variant)]
    lacking = ", ".join(variant.arch for variant in done if first_trained(results, variant) is None)
    if not lacking:
        return []
    return [f"No trained network is left of {lacking}: figures and times that need one are left out."]


def lead(facts: Mapping[str, Facts]) -> str:
    """The first line: what the numbers are of."""
    if any(known.phantom for known in facts.values()):
        return PHANTOM
    return "Accuracy, mean IoU and Dice of every system on the data named below, with the paper's numbers beside."


def _setup(results: PlanResults, facts: Mapping[str, Facts]) -> list[tuple[str, str]]:
    plan, recipe = results.plan, results.plan.recipe
    length = f"{recipe.steps:,} steps" if recipe.steps is not None else f"up to {recipe.epochs} passes"
    return [
        ("recipe", f"{recipe.name}: {length} of {recipe.batch} windows of {recipe.window} pixels, {recipe.optimiser}"),
        ("training seeds", ", ".join(map(str, plan.seeds))),
        ("runs", f"{len(plan.jobs)}, {len(results.failed)} of them without a result"),
        *((f"data {level}".strip(), _amount(known)) for level, known in facts.items()),
    ]


def _amount(facts: Facts) -> str:
    sections, patients = (
        ", ".join(f"{count} {split}" for split, count in counts.items()) for counts in (facts.sections, facts.patients)
    )
    return f"{facts.mpp:g} µm/px; sections: {sections}; patients: {patients}; fingerprint {facts.fingerprint}"
