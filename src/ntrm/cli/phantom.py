"""``ntrm phantom``: a synthetic skin dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console as RichConsole

from ntrm.cli.common import JOBS, Jobs, Seed
from ntrm.cli.console import Console, command


@command
def phantom(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write; one begun before is continued.")],
    sections: Annotated[int, typer.Option("--sections", "-n", min=1, help="How many sections.")] = 60,
    seed: Seed = 0,
    resolutions: Annotated[str, typer.Option("--resolutions", help="Levels to write: 10x,5x,2x.")] = "10x",
    ambiguity: Annotated[
        float,
        typer.Option("--ambiguity", min=0, max=1, help="0: every tissue looks its own; 1: look-alikes look alike."),
    ] = 0.5,
    pieces: Annotated[int, typer.Option("--pieces", min=1, help="Sections on one slide-sized image.")] = 1,
    jobs: Jobs = JOBS,
    *,
    console: Console,
) -> None:
    """Draw a synthetic skin dataset in the layout of the real one, with the truth about every section.

    The same seed gives the same bytes, whatever --jobs is. Interrupted, the same command goes on.

    Example: ntrm phantom my-phantom --sections 60 --seed 1 --resolutions 10x
    """
    from ntrm.core.mpp import parse_levels
    from ntrm.phantom.generate import PhantomOptions, write_phantom

    options = PhantomOptions(sections, seed, parse_levels(resolutions), ambiguity, pieces)
    report = write_phantom(out, options, jobs=jobs, progress=console.progress)

    def show(to: RichConsole) -> None:
        counts = ", ".join(f"{number} {cancer}" for cancer, number in report.cancers.items() if number)
        drawn = "1 section" if report.drawn == 1 else f"{report.drawn} sections"
        kept = f" ({report.kept} were there already)" if report.kept else ""
        to.print(f"{drawn} drawn{kept}: {counts}; {', '.join(options.levels)} in {out}", markup=False)
        to.print(f"next: ntrm data check {out}", markup=False)

    console.result(report.as_dict(), show)
