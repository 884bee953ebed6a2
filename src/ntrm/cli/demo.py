"""``ntrm demo``: the whole tour on embedded defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console as RichConsole

from ntrm.cli.console import Console, command
from ntrm.cli.options import JOBS, Jobs


@command
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for what the tour makes.")] = Path("demo"),
    jobs: Jobs = JOBS,
    *,
    console: Console,
) -> None:
    """Draw a small phantom dataset, check it, segment it with the bundled model, and write a page for the browser.

    Example: ntrm demo --out demo
    """
    from ntrm.tour import tour

    result = tour(out, jobs=jobs, progress=console.progress, note=console.note)

    def show(to: RichConsole) -> None:
        to.print(f"{result.sections} sections drawn and checked, {result.faults} faults found.", markup=False)
        to.print(f"bundled model on {result.scored} of them: mean IoU {result.iou:.3f}", markup=False)
        to.print(f"open in a browser: {result.page.resolve().as_uri()}", markup=False, soft_wrap=True)

    console.result(result.as_dict(), show)
    if result.faults:
        raise typer.Exit(1)
