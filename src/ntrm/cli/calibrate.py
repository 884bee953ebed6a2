"""``ntrm calibrate``: a network as sure as it is right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.table import Table

from ntrm.cli.common import Batch, Device, Level, Seed, Splits
from ntrm.cli.console import Console, command

if TYPE_CHECKING:
    from ntrm.evaluation.calibrate import Calibrated


@command
def calibrate(
    model: Annotated[str, typer.Option("--model", metavar="M", help="Model folder; its config.json is changed.")],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Dataset folder (layout queensland or plain).")],
    resolution: Level = None,
    split: Annotated[str, typer.Option("--split", help="Part to fit on; not the one you evaluate on.")] = "val",
    splits: Splits = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for the findings; default `calibration` beside the model."),
    ] = None,
    pictures: Annotated[bool, typer.Option("--pictures/--no-pictures", help="Draw, or do not.")] = True,
    device: Device = "auto",
    batch: Batch = 16,
    seed: Seed = 0,
    *,
    console: Console,
) -> None:
    """Fit a temperature on the validation part and store it in the model, so that confidences can be believed.

    The weights do not change. Doing it again finds the same temperature.

    Example: ntrm calibrate --model run/model --data my-data --resolution 10x
    """
    from ntrm.evaluation.calibrate import calibrate as run

    found = run(
        model,
        data,
        resolution=resolution,
        split=split,
        splits=splits,
        device=device,
        batch=batch,
        seed=seed,
        out=out,
        pictures=pictures,
        progress=console.progress,
    )
    console.result({**found.as_dict(), "out": str(found.out)}, lambda to: _show(found, to))
    for line in _doubts(found):
        console.note(line)
    console.note(f"written: {found.model} (temperature), {found.out}")


def _show(found: Calibrated, to: RichConsole) -> None:
    count = found.data["sections"]
    sections = f"{count} section{'' if count == 1 else 's'} ({found.data['split']})"
    to.print(f"temperature {found.temperature:.4g} (it was {found.previous:.4g})", markup=False)
    table = Table(title=f"On {sections}, stitched", title_justify="left")
    for column in ("", "calibration error", "Brier score"):
        table.add_column(column, justify="right" if column else "left")
    for name, counts in (("temperature 1", found.before), (f"temperature {found.temperature:.4g}", found.after)):
        table.add_row(name, _score(counts.expected_error), _score(counts.brier))
    to.print(table)


def _doubts(found: Calibrated) -> list[str]:
    doubts = []
    if found.at_limit:
        doubts.append("the temperature is at the end of its range: these probabilities are of little use")
    if (found.after.expected_error or 0) > (found.before.expected_error or 0):
        doubts.append("the calibration error of whole sections has not become smaller")
    return doubts


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
