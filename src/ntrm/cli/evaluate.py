"""``ntrm evaluate``: scores and pictures of a network on a part of a dataset."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.common import JOBS, Batch, Device, Jobs, Level, Splits
from ntrm.cli.console import Console, command, count
from ntrm.metrics.wording import signed

INTERFACES = 4
"""Interfaces named in the summary: those with the most changes."""


@command
def evaluate(
    model: Annotated[str, typer.Option("--model", metavar="M", help="Model folder, hub id or bundled.")],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Dataset folder (layout queensland or plain).")],
    out: Annotated[Path, typer.Option("--out", metavar="OUT", help="Folder to write to.")],
    resolution: Level = None,
    split: Annotated[str, typer.Option("--split", help="Part to evaluate on: train, val or test.")] = "test",
    splits: Splits = None,
    robustness: Annotated[
        bool, typer.Option("--robustness", help="Also score under other stains, blur, JPEG and light.")
    ] = False,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Draw, or do not.")] = True,
    overlap: Annotated[
        int | None, typer.Option("--overlap", metavar="N", min=0, help="Pixels that windows share; default a quarter.")
    ] = None,
    device: Device = "auto",
    batch: Batch = 16,
    jobs: Jobs = JOBS,
    *,
    console: Console,
) -> None:
    """Predict whole sections and score them: overlap, boundaries, tissue relations, calibration, cancers.

    OUT gets metrics.json, sections.csv, confusions.npz and pictures; an evaluation that is there is replaced.

    Example: ntrm evaluate --model run/model --data my-data --resolution 10x --out scores
    """
    from ntrm.evaluation.evaluate import evaluate as run

    found = run(
        model,
        data,
        out,
        resolution=resolution,
        split=split,
        splits=splits,
        device=device,
        batch=batch,
        overlap=overlap,
        robustness=robustness,
        pictures=pictures,
        jobs=jobs,
        command=["ntrm", *sys.argv[1:]],
        progress=console.progress,
    )
    document = found.as_dict()
    console.result(document, lambda to: _show(document, to))
    console.note(f"written: {out}")


def _show(document: dict[str, Any], out: RichConsole) -> None:
    out.print(_headline(document), markup=False, soft_wrap=True)
    out.print(_tissues(document))
    out.print(_facts(document), markup=False, soft_wrap=True)
    if document["robustness"] is not None:
        out.print(_robustness(document["robustness"]))


def _headline(document: dict[str, Any]) -> str:
    model, data, pooled = document["model"], document["data"], document["pooled"]
    return (
        f"{model['name'] or model['arch']} on {count(data['sections'], 'section')} "
        f"of {count(data['patients'], 'patient')} "
        f"({data['split']}, {data['mpp']:g} µm/px): pixel accuracy {_score(pooled['pixel_accuracy'])}, "
        f"mean IoU {_score(pooled['macro']['iou'])}, Dice {_score(pooled['macro']['dice'])}"
    )


def _tissues(document: dict[str, Any]) -> Table:
    boundary = document["boundary"]
    hausdorff = boundary["hausdorff95_um"]["tissues"] if boundary else {}
    table = Table(title="By tissue, all sections together", title_justify="left")
    for column in ("tissue", "pixels", "IoU", "Dice", "precision", "recall", *(["Hausdorff 95 % µm"] * bool(boundary))):
        table.add_column(column, justify="left" if column == "tissue" else "right")
    for name, scores in document["pooled"]["classes"].items():
        cells = [_score(scores[measure]) for measure in ("iou", "dice", "precision", "recall")]
        if boundary:
            cells.append("–" if hausdorff[name] is None else f"{hausdorff[name]:.0f}")
        table.add_row(escape(name), f"{scores['pixels']:,}", *cells)
    return table


def _facts(document: dict[str, Any]) -> str:
    graph, calibration = document["graph"], document["calibration"]
    lines = [
        f"tissue relations: adjacency F1 {_score(graph['adjacency_f1'])}; "
        f"calibration error {_score(calibration['ece'])}, Brier score {_score(calibration['brier'])}"
    ]
    if document["coarse"] is not None:
        lines.append(f"coarse head alone: mean IoU {_score(document['coarse']['macro']['iou'])}")
        changes = {name: counts for name, counts in document["interfaces"].items() if counts["pixels"]}
        largest = sorted(changes, key=lambda name: -changes[name]["corrected"] - changes[name]["broken"])[:INTERFACES]
        shown = [f"{name} {changes[name]['corrected']:,} / {changes[name]['broken']:,}" for name in largest]
        lines.append("pixels corrected / broken by the final head at interfaces: " + (", ".join(shown) or "none"))
    if document["cancers"] is not None:
        right, sections = document["cancers"]["exact_sets"], document["cancers"]["sections"]
        lines.append(f"cancers of a section: all right in {right} of {sections} sections")
    return "\n".join(lines)


def _robustness(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Images made worse on purpose", title_justify="left")
    for column in ("image", "pixel accuracy", "IoU", "Dice", "IoU, points"):
        table.add_column(column, justify="left" if column == "image" else "right")
    for row in rows:
        change = "–" if row["iou_change"] is None else signed(100 * row["iou_change"], 1)
        table.add_row(
            escape(row["name"]), _score(row["pixel_accuracy"]), _score(row["iou"]), _score(row["dice"]), change
        )
    return table


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
