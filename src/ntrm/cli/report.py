"""``ntrm report``: the pages of results that are already there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntrm.cli.common import JOBS, Jobs
from ntrm.cli.console import Console, command, count

Results = Annotated[Path, typer.Argument(metavar="OUT", help="Folder that `ntrm segment` wrote to.")]


@command
def report(out: Results, jobs: Jobs = JOBS, *, console: Console) -> None:
    """Make report.html of every slide and index.html of all anew. For research, not for diagnosis.

    Only files in OUT are read: neither slides nor a model are needed.

    Example: ntrm report results
    """
    from ntrm.report.slide_overview import remake_reports

    found = remake_reports(out, jobs=jobs, progress=console.progress)
    said = f"{count(len(found.reported), 'report')} and {found.overview}"
    console.result(found.as_dict(), lambda to: to.print(said, markup=False, soft_wrap=True))
    for slide_id, reason in found.failures:
        console.note(f"error: {slide_id}: {reason}")
    if found.failures:
        raise typer.Exit(1)
