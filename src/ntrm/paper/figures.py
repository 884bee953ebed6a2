"""Every figure of the page, made from the trained networks, windows of the test part and the tables' own numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.core.labels import CANCERS, IGNORE, LabelSchema
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import Case
from ntrm.data.split import DatasetSplits
from ntrm.data.stats import DatasetStats
from ntrm.data.tiles import GLASS, Window, cut, tile_windows
from ntrm.models.folders import WEIGHTS
from ntrm.models.predictor import Prediction, Predictor
from ntrm.models.registry import load
from ntrm.paper.architecture import architecture_figure
from ntrm.paper.outcomes import JobOutcome, PlanResults
from ntrm.paper.plan import Variant
from ntrm.paper.published import FIGURES, TABLE_2
from ntrm.paper.request import Facts
from ntrm.paper.result_tables import HEADLINE, Difference, ResultTable, curves_of, headline, seconds_per_section
from ntrm.report.charts import Estimate, ResolutionRow, ablation_figure, learning_figure, resolution_figure
from ntrm.report.dataset_report import stats_figure
from ntrm.report.drawing import write_figure
from ntrm.report.picture_grids import Example, improvement_figure, qualitative_figure
from ntrm.report.relations import pipeline_figure, trm_figure

VISIBLE = 0.005  # Fraction of a window from which on a tissue counts as shown
ROWS = 3  # Windows shown where the classes hold no cancer

Found = tuple[Case, Window, NDArray[np.float64]]  # A window of a section, and its fraction of each class


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


def choose_windows(splits: DatasetSplits, size: int) -> list[Example]:
    """One window each of BCC, SCC and IEC as far as the test split has them; else three of different sections."""
    schema, found = splits.schema, list[Found]()
    for case in splits["test"]:
        section = SectionCache().open(case, schema)
        for window in tile_windows(*section.shape, size=size, overlap=size // 2):
            counts = np.bincount(section.mask[window.slices].ravel(), minlength=IGNORE + 1)[: len(schema)]
            # Of the entire window: one that lies half outside the section shows little.
            found.append((case, window, counts / size**2))

    def tissues(one: Found) -> int:
        return int((one[2] >= VISIBLE).sum())

    chosen: dict[str, Found] = {}
    cancers = [name for name in CANCERS if name in schema.names]
    for index, cancer in ((schema.index(name), name) for name in cancers):
        having = [one for one in found if one[2][index] >= VISIBLE]
        if having:
            best = max(having, key=lambda one: (tissues(one), one[2][index]))
            chosen[f"{cancer} ({best[0].name})"] = best
    if not cancers:
        for one in sorted(found, key=lambda one: (-tissues(one), one[0].name, one[1])):
            if len(chosen) < ROWS:
                chosen.setdefault(one[0].name, one)
    examples = []
    for name, (case, window, _) in chosen.items():
        section = SectionCache().open(case, schema)
        image, truth = cut(section.image, window, fill=GLASS), cut(section.mask, window, fill=IGNORE)
        examples.append(Example(name, image, truth, {}))
    return examples


def draw_figures(
    results: PlanResults,
    facts: Mapping[str, Facts],
    windows: Sequence[Example],
    stats: DatasetStats,
    ablation: ResultTable | None,
    folder: Path,
    device: str,
) -> dict[str, FigureFile]:
    """All figures that the results allow, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: dict[str, FigureFile] = {}

    def write(name: str, caption: str, draw: Callable[[], Figure]) -> None:
        write_figure(folder / f"{name}.png", draw)
        drawn[name] = FigureFile(name, folder / f"{name}.png", caption)

    caption = "Share of the pixels, and of each tissue's boundary, over all parts of the dataset."
    write("dataset", caption, lambda: stats_figure(stats))
    if windows:
        for figure in (*_predictions(results, windows, stats.schema, device), *_network(results, windows)):
            write(*figure)
    curves = {variant.title: found for variant in results.plan.compared if (found := curves_of(results, variant))}
    if any(len(curve.steps) > 1 for found in curves.values() for curve in found):
        caption = "How the systems learned: each seed pale, their mean bold."
        write("learning", caption, lambda: learning_figure(curves, measure="mean IoU, validation part"))
    rows = [row for variant in results.plan.resolutions if (row := _resolution(results, variant, facts[variant.level]))]
    if len(rows) > 1:
        caption = "NTRM by resolution: scores, with one standard deviation over seeds, and costs."
        write("resolutions", caption, lambda: resolution_figure(rows))
    gains = {} if ablation is None else _gains(ablation)
    if gains:
        measure, note = "IoU minus the matched control's, points", "95 % intervals, paired bootstrap over patients"
        control = "matched control"
        gains = {control: Estimate(0.0), **gains}
        caption = "What each variant of the relation module gains over a network without one."
        write("ablation", caption, lambda: ablation_figure(gains, measure=measure, reference=control, note=note))
    return drawn


Drawing = tuple[str, str, Callable[[], Figure]]  # Name, caption, and what draws the figure


def _predictions(
    results: PlanResults, windows: Sequence[Example], schema: LabelSchema, device: str
) -> Iterator[Drawing]:
    """What every system predicts on the same windows, and what NTRM's relation module changed there."""
    columns: dict[str, list[Prediction]] = {}
    seeds: dict[str, int] = {}
    ours = results.plan.ours.title if results.plan.ours else ""
    for variant in results.plan.compared:
        outcome = first_trained(results, variant)
        if outcome is not None:
            predictor = Predictor(load(outcome.model), device)
            images = [window.image for window in windows]
            columns[variant.title] = predictor.predict(images, coarse=variant.title == ours)
            seeds[variant.title] = outcome.job.seed
    if not columns:
        return
    rows = [
        replace(window, predictions={name: predictions[k].mask for name, predictions in columns.items()})
        for k, window in enumerate(windows)
    ]
    seed = f"seed {' or '.join(map(str, sorted(set(seeds.values()))))}"
    caption = f"Windows of the test part with as many tissues as possible; every system, {seed}, on the same windows."
    yield "qualitative", caption, lambda: qualitative_figure(rows, schema)
    changed = [
        replace(window, predictions={"coarse": prediction.coarse_mask, "final": prediction.mask})
        for window, prediction in zip(windows, columns.get(ours, ()), strict=False)
        if prediction.coarse_mask is not None
    ]
    if changed:
        caption = f"Coarse and final prediction of NTRM, seed {seeds[ours]}"
        caption += ": corrected pixels in green, broken ones in red."
        yield "improvement", caption, lambda: improvement_figure(changed, schema)


def _network(results: PlanResults, windows: Sequence[Example]) -> Iterator[Drawing]:
    """Pipeline, architecture and stages of the relation module, on the window with the most relations."""
    outcome = first_trained(results, results.plan.ours)
    if outcome is None:
        return
    network = load(outcome.model)
    predictions = Predictor(network, "cpu").predict([window.image for window in windows], graph=True)
    edges = [0 if prediction.graph is None else int(prediction.graph.adjacency.sum()) for prediction in predictions]
    window = windows[int(np.argmax(edges))]
    where = f"one forward pass of the trained network on the window {window.name}"
    yield "pipeline", f"The pipeline in {where}.", lambda: pipeline_figure(network, window.image)
    caption = "The architecture, with the sizes that the network really has."
    yield "architecture", caption, lambda: architecture_figure(network)
    yield "trm", f"The stages of the relation module in {where}.", lambda: trm_figure(network, window.image)


def _gains(ablation: ResultTable) -> dict[str, Estimate]:
    """Gain of every variant over its matched control."""
    column = ablation.header.index("IoU minus control, points")
    gains = {str(row[0]): row[column] for row in ablation.rows}
    # The interval is of resampled patients, and need not hold the value itself where they are few.
    return {
        name: Estimate(gain.value, min(gain.low, gain.value), max(gain.high, gain.value))
        for name, gain in gains.items()
        if isinstance(gain, Difference)
    }


def _resolution(results: PlanResults, variant: Variant, facts: Facts) -> ResolutionRow | None:
    """Scores and costs of NTRM at one resolution."""
    known = {}
    for name, score in zip(HEADLINE, headline(results, variant), strict=True):
        if score.mean is not None:
            spread = score.spread
            ends = () if spread is None else (score.mean - spread, score.mean + spread)
            known[name] = Estimate(score.mean, *ends)
    if not known:
        return None
    costs = {"test pixels (million)": facts.test_pixels / 1e6}
    seconds = results.score(variant, seconds_per_section).mean
    if seconds is not None:
        costs["seconds per section"] = seconds
    paper = zip(HEADLINE, TABLE_2.get(variant.level, ()), strict=False)
    stated = {name: value for name, value in paper if value is not None}
    return ResolutionRow(variant.level, facts.mpp, known, costs, stated)


def first_trained(results: PlanResults, variant: Variant | None) -> JobOutcome | None:
    """The first seed of a network that has results and its weights; None also without a network.

    Results are often moved without the weights, which are most of their size.
    """
    done = results.done(variant) if variant else ()
    return next((outcome for outcome in done if (outcome.model / WEIGHTS).is_file()), None)
