"""The page of a reproduction: every table and figure beside what the paper says."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ntrm.report.page import Markup, escape, paragraph, picture, section, table, write_page
from ntrm.reproduction.cells import STYLE
from ntrm.reproduction.facts import Facts

if TYPE_CHECKING:
    from ntrm.reproduction.assemble import Material

TITLE = "Neural tissue relation modelling: the paper's results, reproduced"
PHANTOM = (
    "These are results on a phantom: synthetic sections drawn by a program. They try the pipeline and compare networks "
    "with each other; they say nothing about real skin, and the paper's numbers beside them are for orientation only."
)


def write_results_page(path: Path, material: Material, command: Sequence[str]) -> None:
    """Write the page."""
    sections = [
        section("What was run", *_setup(material, command)),
        section("The systems compared", *_tables(material, "table1", "table1_scratch", "differences")),
        section("Resolutions", *_tables(material, "table2"), *_figures(material, "resolutions")),
        section("Tissue by tissue", *_tables(material, "tissues_iou", "tissues_dice")),
        section("Side by side", *_figures(material, "qualitative", "improvement")),
        section("Claims", *_tables(material, "claims")),
        section("Ablation", *_tables(material, "ablation"), *_figures(material, "ablation")),
        section("The network", *_figures(material, "pipeline", "architecture", "trm")),
        section("Complexity", *_tables(material, "complexity_networks", "complexity_stages")),
        section("The dataset", *_dataset(material), *_figures(material, "dataset")),
        section("Runs", *_failures(material), *_tables(material, "runs")),
    ]
    write_page(path, TITLE, lead(material.facts), [each for each in sections if not _is_empty(each)])


def lead(facts: Mapping[str, Facts]) -> str:
    """The first line: what the numbers are of."""
    if any(each.phantom for each in facts.values()):
        return PHANTOM
    return "Accuracy, mean IoU and Dice of every system on the data named below, with the paper's numbers beside."


def _setup(material: Material, command: Sequence[str]) -> list[Markup]:
    plan = material.results.plan
    recipe = plan.recipe
    length = f"{recipe.steps:,} steps" if recipe.steps is not None else f"up to {recipe.epochs} passes"
    rows = [
        ["recipe", f"{recipe.name}: {length} of {recipe.batch} windows of {recipe.window} pixels, {recipe.optimiser}"],
        ["training seeds", ", ".join(map(str, plan.seeds))],
        ["runs", f"{len(plan.jobs)}, {len(material.results.failed)} of them without a result"],
        *[["data" + (f" {f.level}" if f.level else ""), _amount(f)] for f in material.facts.values()],
    ]
    parts = [STYLE, table(["", ""], rows)]
    if command:
        parts.append(paragraph(Markup(f"Made by <code>{escape(shlex.join(command))}</code>")))
    return [*parts, *(paragraph(note) for note in plan.notes)]


def _amount(facts: Facts) -> str:
    counts = ", ".join(f"{count} {part}" for part, count in facts.sections.items())
    people = ", ".join(f"{count} {part}" for part, count in facts.patients.items())
    return f"{facts.mpp:g} µm/px; sections: {counts}; patients: {people}; fingerprint {facts.fingerprint}"


def _tables(material: Material, *names: str) -> list[Markup]:
    return [material.tables[name].markup() for name in names if name in material.tables]


def _figures(material: Material, *names: str) -> list[Markup]:
    shown = []
    for name in names:
        if name in material.figures:
            figure = material.figures[name]
            shown.append(picture(figure.path, figure.caption))
            if figure.paper:
                shown.append(paragraph(figure.paper))
    return shown


def _dataset(material: Material) -> list[Markup]:
    document = material.stats.as_dict()
    cancers = ", ".join(f"{name} {count}" for name, count in document["cancers"].items())
    words = material.stats.headline + (f" · sections by cancer: {cancers}" if cancers else "")
    return [paragraph(words)]


def _failures(material: Material) -> list[Markup]:
    failed = material.results.failed
    rows = [[outcome.job.label, outcome.status, outcome.failure[-400:] or "–"] for outcome in failed]
    return [table(["run", "status", "last words"], rows)] if rows else []


def _is_empty(part: Markup) -> bool:
    return part.text.endswith("</h2></section>")
