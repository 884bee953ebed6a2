"""Every figure of the page, made from the trained networks, windows of the test part and the tables' own numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import CANCERS, IGNORE, LabelSchema
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import Case
from ntrm.data.split import DatasetSplits
from ntrm.data.stats import DatasetStats
from ntrm.data.tiles import GLASS, Window, cut, tile_windows
from ntrm.inference.predictor import Prediction, Predictor
from ntrm.models.folders import WEIGHTS
from ntrm.models.hub import load
from ntrm.paper.architecture import architecture_figure
from ntrm.paper.learning import curves_of
from ntrm.paper.outcomes import JobOutcome, PlanResults, Score
from ntrm.paper.plan import Variant
from ntrm.paper.published import FIGURES, TABLE_2
from ntrm.paper.request import Facts
from ntrm.paper.result_tables import HEADLINE, Difference, ResultTable, headline, seconds_per_section
from ntrm.report.charts import Estimate, ResolutionRow, ablation_figure, learning_figure, resolution_figure
from ntrm.report.dataset_report import stats_figure
from ntrm.report.drawing import write_figure
from ntrm.report.picture_grids import Example, improvement_figure, qualitative_figure
from ntrm.report.relations import pipeline_figure, trm_figure

VISIBLE = 0.005
"""Fraction of a window from which on a tissue counts as shown."""
ROWS = 3
"""Windows shown where the classes hold no cancer."""


@dataclass(frozen=True, eq=False)
class Shown:
    """A window with its ground truth."""

    name: str
    image: NDArray[np.uint8]
    """(S, S, 3)"""
    truth: NDArray[np.uint8]
    """(S, S); 255 where nothing is known."""
    tissues: int


def choose_windows(splits: DatasetSplits, size: int) -> tuple[Shown, ...]:
    """One window each of BCC, SCC and IEC as far as the test split has them; else three of different sections."""
    schema, found = splits.schema, list[tuple[Case, Window, NDArray[np.bool_], NDArray[np.float64]]]()
    for case in splits["test"]:
        section = SectionCache().open(case, schema)
        for window in tile_windows(*section.shape, size=size, overlap=size // 2):
            counts = np.bincount(section.mask[window.slices].ravel(), minlength=IGNORE + 1)[: len(schema)]
            # Of the entire window: one that lies half outside the section shows little.
            fractions = counts / (size * size)
            found.append((case, window, fractions >= VISIBLE, fractions))

    def show(case: Case, window: Window, visible: NDArray[np.bool_], name: str) -> Shown:
        section = SectionCache().open(case, schema)
        image, truth = cut(section.image, window, fill=GLASS), cut(section.mask, window, fill=IGNORE)
        return Shown(name, image, truth, int(visible.sum()))

    windows = []
    cancers = [name for name in CANCERS if name in schema.names]
    for cancer in cancers:
        index = schema.index(cancer)
        having = [each for each in found if each[2][index]]
        if having:
            case, window, visible, _ = max(having, key=lambda each: (each[2].sum(), each[3][index]))
            windows.append(show(case, window, visible, f"{cancer} ({case.name})"))
    if not cancers:
        best: dict[str, Shown] = {}
        for case, window, visible, _ in sorted(found, key=lambda each: (-each[2].sum(), each[0].name, each[1])):
            if case.name not in best and len(best) < ROWS:
                best[case.name] = show(case, window, visible, case.name)
        windows = [*best.values()]
    return tuple(windows)


@dataclass(frozen=True)
class FigureFile:
    """A figure on disk: what it shows, and what the paper's figure shows."""

    name: str
    path: Path
    caption: str

    @property
    def paper(self) -> str:
        """The paper's figure in our words; empty where it has none."""
        return FIGURES.get(self.name, "")


def draw_dataset(stats: DatasetStats, folder: Path) -> FigureFile:
    """Fractions of tissues and their neighbours."""
    path = folder / "dataset.png"
    write_figure(path, stats_figure, stats)
    caption = "Share of the pixels, and of each tissue's boundary, over all parts of the dataset."
    return FigureFile("dataset", path, caption)


def draw_systems(
    results: PlanResults, windows: Sequence[Shown], schema: LabelSchema, folder: Path, device: str
) -> list[FigureFile]:
    """What every system predicts on the same windows, and what NTRM's relation module changed there."""
    plan = results.plan
    columns: dict[str, list[Prediction]] = {}
    seeds: dict[str, int] = {}
    images = [window.image for window in windows]
    for variant in plan.compared:
        outcome = first_trained(results, variant)
        if outcome is not None:
            predictor = Predictor(load(outcome.model), device)
            columns[variant.title] = predictor.predict(images, coarse=variant == plan.ours)
            seeds[variant.title] = outcome.job.seed
    if not columns or not windows:
        return []
    rows = [
        Example(window.name, window.image, window.truth, {name: masks[k].mask for name, masks in columns.items()})
        for k, window in enumerate(windows)
    ]
    write_figure(folder / "qualitative.png", qualitative_figure, rows, schema)
    seed = f"seed {' or '.join(map(str, sorted(set(seeds.values()))))}"
    caption = f"Windows of the test part with as many tissues as possible; every system, {seed}, on the same windows."
    figures = [FigureFile("qualitative", folder / "qualitative.png", caption)]
    ours = columns.get(plan.ours.title, []) if plan.ours else []
    changed = [
        Example(window.name, window.image, window.truth, {"coarse": prediction.coarse_mask, "final": prediction.mask})
        for window, prediction in zip(windows, ours, strict=bool(ours))
        if prediction.coarse_mask is not None
    ]
    if changed and plan.ours:
        write_figure(folder / "improvement.png", improvement_figure, changed, schema)
        seed = f"seed {seeds[plan.ours.title]}"
        caption = f"Coarse and final prediction of NTRM, {seed}: corrected pixels in green, broken ones in red."
        figures.append(FigureFile("improvement", folder / "improvement.png", caption))
    return figures


def draw_network(outcome: JobOutcome, windows: Sequence[Shown], folder: Path) -> list[FigureFile]:
    """Pipeline, architecture and stages of the relation module, from the trained network itself.

    Shown on the window in which the network finds the most relations.
    """
    network = load(outcome.model)
    predictions = Predictor(network, "cpu").predict([window.image for window in windows], graph=True)
    edges = [0 if prediction.graph is None else int(prediction.graph.adjacency.sum()) for prediction in predictions]
    window = windows[max(range(len(windows)), key=lambda k: (edges[k], windows[k].tissues))]
    pipeline, architecture, stages = (folder / f"{name}.png" for name in ("pipeline", "architecture", "trm"))
    write_figure(pipeline, pipeline_figure, network, window.image)
    write_figure(architecture, architecture_figure, network)
    write_figure(stages, trm_figure, network, window.image)
    where = f"one forward pass of the trained network on the window {window.name}"
    return [
        FigureFile("pipeline", pipeline, f"The pipeline in {where}."),
        FigureFile("architecture", architecture, "The architecture, with the sizes that the network really has."),
        FigureFile("trm", stages, f"The stages of the relation module in {where}."),
    ]


def draw_ablation(table: ResultTable, folder: Path) -> FigureFile | None:
    """Gain of every variant over its matched control."""
    column = table.header.index("IoU minus control, points")
    gains = {"matched control": Estimate(0.0)}
    for row in table.rows:
        gain = row[column]
        if isinstance(gain, Difference):
            # The interval is of resampled patients, and need not hold the value itself where they are few.
            low, high = min(gain.low, gain.value), max(gain.high, gain.value)
            gains[str(row[0])] = Estimate(gain.value, low, high)
    if len(gains) < 2:
        return None
    path = folder / "ablation.png"
    measure, note = "IoU minus the matched control's, points", "95 % intervals, paired bootstrap over patients"
    write_figure(path, ablation_figure, gains, measure=measure, reference="matched control", note=note)
    return FigureFile("ablation", path, "What each variant of the relation module gains over a network without one.")


def draw_learning(results: PlanResults, folder: Path) -> FigureFile | None:
    """Scores on the validation part while the compared systems learned."""
    curves = {variant.title: found for variant in results.plan.compared if (found := curves_of(results, variant))}
    if not any(len(curve.steps) > 1 for found in curves.values() for curve in found):
        return None
    path = folder / "learning.png"
    write_figure(path, learning_figure, curves, measure="mean IoU, validation part")
    return FigureFile("learning", path, "How the systems learned: each seed pale, their mean bold.")


def draw_resolutions(results: PlanResults, facts: Mapping[str, Facts], folder: Path) -> FigureFile | None:
    """Scores and costs of NTRM by resolution."""
    rows = []
    for variant in results.plan.resolutions:
        scores = dict(zip(HEADLINE, headline(results, variant), strict=True))
        known = {name: _estimate(score) for name, score in scores.items() if score}
        if not known:
            continue
        costs = {"test pixels (million)": facts[variant.level].pixels["test"] / 1e6}
        seconds = results.score(variant, seconds_per_section).mean
        if seconds is not None:
            costs["seconds per section"] = seconds
        reported = TABLE_2.get(variant.level)
        stated = {name: value for name, value in zip(HEADLINE, reported or (), strict=False) if value is not None}
        rows.append(ResolutionRow(variant.level, facts[variant.level].mpp, known, costs, stated))
    if len(rows) < 2:
        return None
    path = folder / "resolutions.png"
    write_figure(path, resolution_figure, rows)
    caption = "NTRM by resolution: scores, with one standard deviation over seeds, and costs."
    return FigureFile("resolutions", path, caption)


def first_trained(results: PlanResults, variant: Variant | None) -> JobOutcome | None:
    """The first seed of a network that has results and its weights; None also without a network.

    Results are often moved without the weights, which are most of their size.
    """
    done = results.done(variant) if variant else ()
    return next((outcome for outcome in done if (outcome.model / WEIGHTS).is_file()), None)


def _estimate(score: Score) -> Estimate:
    mean, spread = score.mean or 0.0, score.spread
    return Estimate(mean) if spread is None else Estimate(mean, mean - spread, mean + spread)
