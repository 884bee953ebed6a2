"""``ntrm evaluate``, ``calibrate`` and ``compare``: scores of a network, its temperature, and which model is better."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command, make_table
from ntrm.core.wording import counted, signed


@command
def evaluate(
    console: Console,
    model: options.Model,
    data: options.Data,
    out: Path,
    resolution: options.Level = None,
    split: str = "test",
    splits: options.Splits = None,
    robustness: bool = False,
    boundaries: options.Boundaries = True,
    pictures: options.Pictures = True,
    overlap: options.Overlap = None,
    device: options.Device = "auto",
    batch: options.Batch = 16,
    jobs: options.Jobs = options.JOBS,
) -> None:
    """Predict whole sections and score them: overlap, boundaries, tissue relations, calibration, cancers.

    Writes metrics.json, sections.csv, counts and pictures to OUT; an earlier evaluation there is replaced.

    Example: ntrm evaluate --model run/model --data my-data --resolution 10x --out scores

    Args:
        out (OUT): Folder to write to.
        split: Split to evaluate on: train, val or test.
        robustness: Also score images with changed stain, blur, JPEG compression and brightness.

    """
    from ntrm.evaluation.evaluate import evaluate as run

    result = run(**console.given(), command=["ntrm", *sys.argv[1:]], progress=console.progress)
    document = result.as_dict()
    console.result(document, *_scores(document))
    for note in result.notes:
        console.note(f"warning: {note}")
    console.note(f"written: {out}")


def _scores(document: dict[str, Any]) -> Iterator[RenderableType]:
    model, data, pooled, boundary = (document[key] for key in ("model", "data", "pooled", "boundary"))
    graph, calibration = document["graph"], document["calibration"]
    yield (
        f"{model['name'] or model['arch']} on {counted(data['sections'], 'section')} "
        f"of {counted(data['patients'], 'patient')} "
        f"({data['split']}, {data['mpp']:g} µm/px): pixel accuracy {_score(pooled['pixel_accuracy'])}, "
        f"mean IoU {_score(pooled['macro']['iou'])}, Dice {_score(pooled['macro']['dice'])}"
    )
    columns, rows = ("pixels", "IoU", "Dice", "precision", "recall", *(["Hausdorff 95 % µm"] * bool(boundary))), []
    for name, scores in pooled["classes"].items():
        cells = [_score(scores[measure]) for measure in ("iou", "dice", "precision", "recall")]
        if boundary:
            cells.append(_score(boundary["hausdorff95_um"]["tissues"][name], 0))
        rows.append((name, f"{scores['pixels']:,}", *cells))
    yield make_table("By tissue, all sections together", ("tissue", *columns), rows, right=columns)
    yield (
        f"tissue relations: adjacency F1 {_score(graph['adjacency_f1'])}; "
        f"calibration error {_score(calibration['ece'])}, Brier score {_score(calibration['brier'])}"
    )
    if document["coarse"] is not None:
        yield f"coarse head alone: mean IoU {_score(document['coarse']['macro']['iou'])}"
    if (cancers := document["cancers"]) is not None:
        yield f"cancers: all correct in {cancers['exact_sets']} of {cancers['sections']} sections"
    if document["robustness"]:
        measures = {"pixel accuracy": "pixel_accuracy", "IoU": "iou", "Dice": "dice"}
        columns, rows = (*measures, "IoU change, points"), []
        for row in document["robustness"]:
            change = "–" if row["iou_change"] is None else signed(100 * row["iou_change"], 1)
            rows.append((row["name"], *(_score(row[key]) for key in measures.values()), change))
        yield make_table("Degraded images", ("image", *columns), rows, right=columns)


def _score(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


@command
def calibrate(
    console: Console,
    model: str,
    data: options.Data,
    resolution: options.Level = None,
    split: str = "val",
    splits: options.Splits = None,
    out: Path | None = None,
    pictures: options.Pictures = True,
    reference: options.Reference = True,
    device: options.Device = "auto",
    batch: options.Batch = 16,
    seed: options.Seed = 0,
) -> None:
    """Calibrate a model's confidence on the validation split (temperature scaling), and make a reference.

    With a reference, `ntrm segment` can warn about slides that are unlike the sections that the model was trained on.
    Both are stored in the model folder. The weights do not change. Calibrating again gives the same result.

    Example: ntrm calibrate --model run/model --data my-data --resolution 10x

    Args:
        model (M): Model folder; its config.json is changed.
        split: Split to fit on; not the one you evaluate on.
        out (DIR): Folder for the report; default `calibration` beside the model.

    """
    from ntrm.evaluation.calibrate import calibrate as run

    result = run(model, **console.given("model"), progress=console.progress)
    columns = ("calibration error", "Brier score")
    rows = [
        (f"temperature {temperature:.4g}", _score(counts.expected_error, 4), _score(counts.brier, 4))
        for temperature, counts in ((1, result.before), (result.temperature, result.after))
    ]
    title = f"On {counted(result.data['sections'], 'section')} ({result.data['split']}), stitched"
    found = f"temperature {result.temperature:.4g} (it was {result.previous:.4g})"
    table = make_table(title, ("", *columns), rows, right=columns)
    console.result({**result.as_dict(), "out": str(result.out)}, found, table)
    doubts = [*result.doubts]
    if result.at_limit:
        doubts.append("the temperature is at the end of its range: these probabilities are of little use")
    if (result.after.expected_error or 0) > (result.before.expected_error or 0):
        doubts.append("the calibration error of whole sections has not become smaller")
    if result.no_reference:
        doubts.append(f"no reference was made: {result.no_reference}")
    for doubt in doubts:
        console.note(doubt)
    stored = "temperature" if result.reference is None else "temperature, reference"
    console.note(f"written: {result.model} ({stored}), {result.out}")


@command
def compare(
    console: Console,
    outs: Annotated[list[Path], typer.Argument()],
    measure: str = "iou",
    draws: int = 10_000,
    reference: str | None = None,
    out: Path | None = None,
    seed: options.Seed = 0,
) -> None:
    """Compare models on the same sections: paired bootstrap over patients, corrected for the number of comparisons.

    Evaluations that differ only in the training seed count as one model. At least six patients are needed; fewer cannot
    establish a difference.

    Example: ntrm compare eval-ntrm-0 eval-ntrm-1 eval-unet-0 eval-unet-1

    Args:
        outs (OUT...): Folders written by `ntrm evaluate`.
        measure: iou, dice or accuracy.
        draws: Number of bootstrap samples (over patients).
        reference (NAME): Compare the others with this model only.
        out (FILE): Write the comparison to a .csv or .json file.

    """
    from ntrm.evaluation.compare import check_target
    from ntrm.evaluation.compare import compare as run

    if out is not None:
        check_target(out)
    result = run(outs, measure=measure, draws=draws, reference=reference, seed=seed)
    if out is not None:
        result.write(out)
        console.note(f"written: {out}")
    columns = ("seeds", "mean", "lowest", "highest")
    rows = []
    for each in result.models:
        scores = (each.mean, min(each.scores), max(each.scores))
        rows.append((each.label, str(len(each.scores)), *(f"{score:.4f}" for score in scores)))
    title = f"{result.title} over {counted(result.sections, 'section')} of {counted(result.patients, 'patient')}"
    table = make_table(title, ("model", *columns), rows, right=columns)
    console.result(result.as_dict(), table, *result.verdicts)
