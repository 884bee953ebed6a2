"""Every figure of the page, made from the trained networks, windows of the test part and the tables' own numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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
from ntrm.paper.published import FIGURES
from ntrm.paper.result_tables import Difference, ResultTable, curves_of
from ntrm.report.charts import Estimate, ablation_figure, learning_figure
from ntrm.report.dataset_report import stats_figure
from ntrm.report.drawing import write_figure
from ntrm.report.picture_grids import Example, improvement_figure, qualitative_figure
from ntrm.report.relations import pipeline_figure, trm_figure

VISIBLE = 0.005  # Fraction of a window from which on a tissue counts as shown

Found = tuple[Case, Window, NDArray[np.float64]]  # A window of a section, and its fraction of each class


class FigureFile(NamedTuple):
    """A figure on disk: what it shows, and what the paper's figure shows, in our words."""

    path: Path
    caption: str
    paper: str


def choose_windows(splits: DatasetSplits, size: int) -> list[Example]:
    """One window each of BCC, SCC and IEC as far as the test split has them; else three of different sections."""
    schema, found, chosen = splits.schema, list[Found](), dict[str, Found]()
    for case in splits["test"]:
        section = SectionCache().open(case, schema)
        for window in tile_windows(*section.shape, size=size, overlap=size // 2):
            counts = np.bincount(section.mask[window.slices].ravel(), minlength=IGNORE + 1)[: len(schema)]
            # Of the entire window: one that lies half outside the section shows little.
            found.append((case, window, counts / size**2))
    found.sort(key=lambda one: (-(one[2] >= VISIBLE).sum(), one[0].name, one[1]))  # the most tissues come first
    cancers = [name for name in CANCERS if name in schema.names]
    for cancer in cancers:
        index = schema.index(cancer)
        if having := [one for one in found if one[2][index] >= VISIBLE]:
            best = max(having, key=lambda one: ((one[2] >= VISIBLE).sum(), one[2][index]))
            chosen[f"{cancer} ({best[0].name})"] = best
    for one in [] if cancers else found:
        if len(chosen) < 3:
            chosen.setdefault(one[0].name, one)
    examples = []
    for name, (case, window, _) in chosen.items():
        section = SectionCache().open(case, schema)
        image, truth = cut(section.image, window, fill=GLASS), cut(section.mask, window, fill=IGNORE)
        examples.append(Example(name, image, truth, {}))
    return examples


Drawing = tuple[Any, ...]  # Name, caption, the function that draws the figure, and what it takes


def write_figures(drawings: Iterable[Drawing], folder: Path) -> dict[str, FigureFile]:
    """Draw figures as files; by name."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name, caption, draw, *given in drawings:
        path = folder / f"{name}.png"
        write_figure(path, draw, *given)
        drawn[name] = FigureFile(path, caption, FIGURES.get(name, ""))
    return drawn


def drawings(
    results: PlanResults, windows: Sequence[Example], stats: DatasetStats, ablation: ResultTable | None, device: str
) -> Iterator[Drawing]:
    """All figures that the results allow."""
    caption = "Share of the pixels, and of each tissue's boundary, over all parts of the dataset."
    yield "dataset", caption, stats_figure, stats
    if windows:
        yield from _predictions(results, windows, stats.schema, device)
        yield from _network(results, windows)
    curves = {variant.title: found for variant in results.plan.compared if (found := curves_of(results, variant))}
    if any(len(curve.steps) > 1 for found in curves.values() for curve in found):
        draw = partial(learning_figure, measure="mean IoU, validation part")
        yield "learning", "How the systems learned: each seed pale, their mean bold.", draw, curves
    control, gains = "matched control", dict[str, Estimate]()
    for changed in ablation.rows if ablation else ():
        if isinstance(gain := changed["IoU minus control, points"], Difference):
            # The interval is of resampled patients, and need not hold the value itself where they are few.
            ends = min(gain.low, gain.value), max(gain.high, gain.value)
            gains[str(changed["changed"])] = Estimate(gain.value, *ends)
    if gains:
        measure, note = "IoU minus the matched control's, points", "95 % intervals, paired bootstrap over patients"
        draw = partial(ablation_figure, measure=measure, reference=control, note=note)
        caption = "What each variant of the relation module gains over a network without one."
        yield "ablation", caption, draw, {control: Estimate(0.0), **gains}


def _predictions(
    results: PlanResults, windows: Sequence[Example], schema: LabelSchema, device: str
) -> Iterator[Drawing]:
    """What every system predicts on the same windows, and what NTRM's relation module changed there."""
    columns: dict[str, list[Prediction]] = {}
    seeds: dict[str, int] = {}
    ours = results.plan.ours.title if results.plan.ours else ""
    for variant in results.plan.compared:
        if outcome := first_trained(results, variant):
            images, predictor = [window.image for window in windows], Predictor(load(outcome.model), device)
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
    yield "qualitative", caption, qualitative_figure, rows, schema
    changed = [
        replace(window, predictions={"coarse": prediction.coarse_mask, "final": prediction.mask})
        for window, prediction in zip(windows, columns.get(ours, ()), strict=False)
        if prediction.coarse_mask is not None
    ]
    if changed:
        caption = f"Coarse and final prediction of NTRM, seed {seeds[ours]}"
        caption += ": corrected pixels in green, broken ones in red."
        yield "improvement", caption, improvement_figure, changed, schema


def _network(results: PlanResults, windows: Sequence[Example]) -> Iterator[Drawing]:
    """Pipeline, architecture and stages of the relation module, on the window with the most relations."""
    if not (outcome := first_trained(results, results.plan.ours)):
        return
    network = load(outcome.model)
    predictions = Predictor(network, "cpu").predict([window.image for window in windows], graph=True)
    edges = [0 if prediction.graph is None else int(prediction.graph.adjacency.sum()) for prediction in predictions]
    window = windows[int(np.argmax(edges))]
    where = f"one forward pass of the trained network on the window {window.name}"
    yield "pipeline", f"The pipeline in {where}.", pipeline_figure, network, window.image
    yield "architecture", "The architecture, with the sizes that the network really has.", architecture_figure, network
    yield "trm", f"The stages of the relation module in {where}.", trm_figure, network, window.image


def first_trained(results: PlanResults, variant: Variant | None) -> JobOutcome | None:
    """The first seed of a network that has results and its weights; None also without a network.

    Results are often moved without the weights, which are most of their size.
    """
    done = results.done(variant) if variant else ()
    return next((outcome for outcome in done if (outcome.model / WEIGHTS).is_file()), None)
