"""``ntrm compare``: which of several evaluated models is better, and whether that is established."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.common import Seed
from ntrm.cli.console import Console, command, count

if TYPE_CHECKING:
    from ntrm.evaluation.compare import Comparisons


@command
def compare(
    outs: Annotated[list[Path], typer.Argument(metavar="OUT...", help="Folders that `ntrm evaluate` wrote.")],
    measure: Annotated[str, typer.Option("--measure", help="iou, dice or accuracy.")] = "iou",
    draws: Annotated[int, typer.Option("--draws", help="Bootstrap draws of patients.")] = 10_000,
    reference: Annotated[
        str | None, typer.Option("--reference", metavar="NAME", help="Compare the others with this model only.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write it to a .csv or .json file.")] = None,
    seed: Seed = 0,
    *,
    console: Console,
) -> None:
    """Compare models on the same sections: paired bootstrap over patients, corrected for the number of comparisons.

    Evaluations that differ in nothing but the training seed are one model. Two models need six patients at least:
    fewer establish nothing.

    Example: ntrm compare eval-ntrm-0 eval-ntrm-1 eval-unet-0 eval-unet-1
    """
    from ntrm.evaluation.compare import check_format
    from ntrm.evaluation.compare import compare as run

    if out is not None:
        check_format(out)
    found = run(outs, measure=measure, draws=draws, reference=reference, seed=seed)
    if out is not None:
        found.write(out)
        console.note(f"written: {out}")
    console.result(found.as_dict(), lambda to: _show(found, to))


def _show(found: Comparisons, to: RichConsole) -> None:
    title = f"{found.title} over {count(found.sections, 'section')} of {count(found.patients, 'patient')}"
    table = Table(title=title, title_justify="left")
    for column in ("model", "seeds", "mean", "lowest", "highest"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for model in found.models:
        scores = (model.mean, min(model.scores), max(model.scores))
        table.add_row(escape(model.label), str(len(model.scores)), *(f"{score:.4f}" for score in scores))
    to.print(table)
    for verdict in found.verdicts:
        to.print(verdict, markup=False, soft_wrap=True)
