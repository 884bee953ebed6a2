"""``ntrm data resample``: coarser resolutions of a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from ntrm.cli.console import Console, command
from ntrm.cli.options import JOBS, DataFolder, Jobs, OutFolder


@command
def resample(
    folder: DataFolder,
    to: Annotated[str, typer.Option("--to", metavar="2x,5x", help="Resolutions to derive, as downsample factors.")],
    out: OutFolder,
    jobs: Jobs = JOBS,
    *,
    console: Console,
) -> None:
    """Derive coarser resolutions from the finest one: area averages for images, majority votes for masks.

    Factors count from the originals in the layout queensland, from the images as they are in the layout plain.
    The input stays as it is. Interrupted, the same command goes on.

    Example: ntrm data resample my-data --to 5x,10x --out coarser
    """
    from ntrm.data.resample import resample_dataset
    from ntrm.resolution import parse_levels

    done = resample_dataset(folder, parse_levels(to), out, jobs=jobs, progress=console.progress)
    there = f" ({done.skipped} were there already)" if done.skipped else ""
    line = f"{done.sections} sections at {', '.join(done.levels)}: {done.written} files written{there} in {out}"
    console.result(done.as_dict(), lambda to: to.print(line, markup=False))
