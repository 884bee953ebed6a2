"""``ntrm data stats``: what a dataset consists of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.console import Console, command
from ntrm.cli.options import JOBS, DataFolder, Jobs, Level

if TYPE_CHECKING:
    from ntrm.data.stats import DatasetStats

NEIGHBOUR = 0.10
"""Share of a tissue's boundary from which on a neighbour is listed."""


@command
def stats(
    folder: DataFolder,
    resolution: Level = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE", help="Draw the shares to a PNG, SVG or PDF file.")
    ] = None,
    tile: Annotated[int, typer.Option("--tile", min=1, help="Side of the tiles, in pixels.")] = 256,
    jobs: Jobs = JOBS,
    *,
    console: Console,
) -> None:
    """Count sections, sizes, pixels per tissue, shared boundaries and tissues per tile. Masks alone will do.

    Example: ntrm data stats my-data --resolution 10x --figure stats.png
    """
    from ntrm.data.layouts import open_dataset
    from ntrm.data.stats import dataset_stats
    from ntrm.report.data_figures import check_format, stats_figure

    if figure is not None:
        check_format(figure)
    found = dataset_stats(open_dataset(folder, level=resolution), tile=tile, jobs=jobs, progress=console.progress)
    if figure is not None:
        stats_figure(found, figure)
    console.result(found.as_dict(), lambda out: _show(found, out))
    if figure is not None:
        console.note(f"picture: {figure}")


def _show(stats: DatasetStats, out: RichConsole) -> None:
    table = Table(title=escape(stats.headline), title_justify="left")
    for column in ("tissue", "", "pixels", f"borders on (share of its boundary, from {NEIGHBOUR:.0%} on)"):
        table.add_column(column, justify="right" if column == "pixels" else "left")
    names = stats.schema.names
    for tissue, pixels, row in zip(stats.schema.tissues, stats.pixel_share, stats.boundary_share, strict=True):
        order = sorted(range(len(names)), key=lambda other: -row[other])
        borders = ", ".join(f"{names[other]} {row[other]:.0%}" for other in order if row[other] >= NEIGHBOUR)
        table.add_row(escape(tissue.name), escape(tissue.explanation), f"{pixels:.1%}", escape(borders))
    out.print(table)
