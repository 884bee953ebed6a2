"""From results to the page: tables as CSV, figures as PNG, everything beside what the paper says in one HTML file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ntrm.core.progress import SILENT, Progress
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
from ntrm.paper.figures import Drawn, Shown, choose_windows
from ntrm.paper.outcomes import Results
from ntrm.paper.request import Workspace
from ntrm.paper.result_tables import Table
from ntrm.report.html import write_page

PHANTOM = (
    "These are results on a phantom: synthetic sections drawn by a program. They try the pipeline and compare networks "
    "with each other; they say nothing about real skin, and the paper's numbers beside them are for orientation only."
)
TIMED_WINDOWS = 4


@dataclass(frozen=True, eq=False)
class Material:
    """Everything the page shows."""

    results: Results
    facts: Mapping[str, Facts]
    stats: DatasetStats
    tables: Mapping[str, Table] = field(default_factory=dict)
    figures: Mapping[str, Drawn] = field(default_factory=dict)


def assemble(
    workspace: Workspace,
    parts: DatasetSplits,
    results: Results,
    facts: Mapping[str, Facts],
    device: str,
    jobs: int = 1,
    command: Sequence[str] = (),
    progress: Progress = SILENT,
) -> tuple[Path, ...]:
    """Write tables, figures and the page; returns the tables' files. ``parts`` are at the primary resolution."""
    windows = choose_windows(parts, results.plan.recipe.window)
    stats = dataset_stats(parts.dataset, tile=results.plan.recipe.window, jobs=jobs, progress=progress)
    found = make_tables(results, facts, parts, windows, device)
    written = tuple(table.write_csv(workspace.tables) for table in found.values())
    drawn = draw_figures(results, facts, parts, windows, stats, found, workspace.figures, device)
    write_results_page(workspace.page, Material(results, facts, stats, found, drawn), command)
    return written


def make_tables(
    results: Results, facts: Mapping[str, Facts], parts: DatasetSplits, windows: Sequence[Shown], device: str
) -> dict[str, Table]:
    """All tables that the results allow, by name."""
    plan, window = results.plan, results.plan.recipe.window
    networks = [*plan.systems, *([plan.control] if plan.control else [])]
    made = [
        tables.table_1(results),
        tables.table_1_scratch(results),
        tables.differences_table(results),
        tables.table_2(results, facts),
        tables.tissue_table(results, "iou"),
        tables.tissue_table(results, "dice"),
        claims_table(results, facts),
        tables.ablation_table(results),
        networks_table(networks, parts.schema, window),
        _stages(results, windows, device),
        tables.runs_table(results),
    ]
    return {table.name: table for table in made if table is not None}


def draw_figures(
    results: Results,
    facts: Mapping[str, Facts],
    parts: DatasetSplits,
    windows: Sequence[Shown],
    stats: DatasetStats,
    found: Mapping[str, Table],
    folder: Path,
    device: str,
) -> dict[str, Drawn]:
    """All figures that the results allow, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Drawn | None] = [figures.draw_dataset(stats, folder)]
    drawn += figures.draw_systems(results, windows, parts.schema, folder, device)
    ours = figures.first_done(results, results.plan.ours) if results.plan.ours else None
    if ours is not None and windows:
        drawn += figures.draw_network(ours, windows, folder)
    drawn.append(figures.draw_resolutions(results, facts, folder))
    if "ablation" in found:
        drawn.append(figures.draw_ablation(found["ablation"], folder))
    return {figure.name: figure for figure in drawn if figure is not None}


def _stages(results: Results, windows: Sequence[Shown], device: str) -> Table | None:
    ours = figures.first_done(results, results.plan.ours) if results.plan.ours else None
    network = load(ours.model) if ours is not None else None
    if not isinstance(network, NTRM) or network.relation is None or network.relation.config.graph == "none":
        return None
    images = [window.image for window in windows][:TIMED_WINDOWS]
    return stages_table(measure_stages(network, images, Predictor(network, device))) if images else None


def write_results_page(path: Path, material: Material, command: Sequence[str]) -> None:
    """Write the page."""
    cancers = material.stats.as_dict()["cancers"]
    write_page(
        path,
        "reproduction.html",
        lead=lead(material.facts),
        setup=_setup(material),
        command=shlex.join(command),
        notes=material.results.plan.notes,
        tables=material.tables,
        figures=material.figures,
        headline=material.stats.headline,
        cancers=", ".join(f"{name} {count}" for name, count in cancers.items()),
        failures=[
            (outcome.job.label, outcome.status, outcome.failure[-400:] or "–") for outcome in material.results.failed
        ],
    )


def lead(facts: Mapping[str, Facts]) -> str:
    """The first line: what the numbers are of."""
    if any(each.phantom for each in facts.values()):
        return PHANTOM
    return "Accuracy, mean IoU and Dice of every system on the data named below, with the paper's numbers beside."


def _setup(material: Material) -> list[tuple[str, str]]:
    plan = material.results.plan
    recipe = plan.recipe
    length = f"{recipe.steps:,} steps" if recipe.steps is not None else f"up to {recipe.epochs} passes"
    return [
        ("recipe", f"{recipe.name}: {length} of {recipe.batch} windows of {recipe.window} pixels, {recipe.optimiser}"),
        ("training seeds", ", ".join(map(str, plan.seeds))),
        ("runs", f"{len(plan.jobs)}, {len(material.results.failed)} of them without a result"),
        *(("data" + (f" {facts.level}" if facts.level else ""), _amount(facts)) for facts in material.facts.values()),
    ]


def _amount(facts: Facts) -> str:
    counts = ", ".join(f"{count} {part}" for part, count in facts.sections.items())
    people = ", ".join(f"{count} {part}" for part, count in facts.patients.items())
    return f"{facts.mpp:g} µm/px; sections: {counts}; patients: {people}; fingerprint {facts.fingerprint}"
