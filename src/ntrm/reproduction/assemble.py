"""From results to the page: tables as CSV, figures as PNG, everything in one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ntrm.core.progress import SILENT, Progress
from ntrm.data.split import DatasetSplits
from ntrm.data.stats import DatasetStats, dataset_stats
from ntrm.inference.predictor import Predictor
from ntrm.models.hub import load
from ntrm.models.ntrm import NTRM
from ntrm.reproduction import figures, tables
from ntrm.reproduction.cells import Table
from ntrm.reproduction.claims import claims_table
from ntrm.reproduction.costs import measure_stages, networks_table, stages_table
from ntrm.reproduction.facts import Facts
from ntrm.reproduction.figures import Drawn
from ntrm.reproduction.results import Results
from ntrm.reproduction.windows import Shown, choose_windows
from ntrm.reproduction.workspace import Workspace

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
    from ntrm.reproduction.page import write_results_page

    windows = choose_windows(parts, results.plan.recipe.window)
    stats = dataset_stats(parts.whole, tile=results.plan.recipe.window, jobs=jobs, progress=progress)
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
