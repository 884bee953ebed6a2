"""``ntrm data split``: training, validation and test, patient by patient."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.console import Console, command
from ntrm.cli.options import DataFolder, Seed

if TYPE_CHECKING:
    from ntrm.data.split import Split


@command
def split(
    folder: DataFolder,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write: name,group,split,cancer.")],
    fractions: Annotated[str, typer.Option("--fractions", help="Training, validation and test in %.")] = "70,15,15",
    seed: Seed = 0,
    *,
    console: Console,
) -> None:
    """Split sections so that no patient is in two parts and every cancer type in all of them.

    Sections that have a split already, in the dataset or in FILE, keep it; their patients' other sections join them.

    Example: ntrm data split my-data --out split.csv --seed 1
    """
    from ntrm.data.split import parse_fractions, write_split

    made = write_split(folder, out, fractions=parse_fractions(fractions), seed=seed)
    console.result({"out": str(out), **made.as_dict()}, lambda to: _show(made, to))
    if made.kept:
        console.note(f"{made.kept} of {len(made.rows)} sections kept the split that they or their patient had")
    console.note(f"written: {out}")


def _show(made: Split, out: RichConsole) -> None:
    facts = made.as_dict()
    cancers = sorted({row.cancer for row in made.rows})
    table = Table(title="Sections per split", title_justify="left")
    for column in ("split", "patients", "sections", *(cancer for cancer in cancers if cancer)):
        table.add_column(escape(column), justify="left" if column == "split" else "right")
    for name, cells in facts["cancers"].items():
        counts = [facts["patients"][name], facts["sections"][name], *(cells[cancer] for cancer in cancers if cancer)]
        table.add_row(name, *map(str, counts))
    out.print(table)
