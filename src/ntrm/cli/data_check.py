"""``ntrm data check``: every fault of a dataset, with what to do about it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.console import Console, command
from ntrm.cli.options import DataFolder, Jobs, default_jobs

if TYPE_CHECKING:
    from ntrm.data.check import CheckReport
    from ntrm.data.faults import Fault

MaxPixels = Annotated[
    int | None,
    typer.Option("--max-pixels", min=1, metavar="N", help="Decode no image with more pixels than this (400 million)."),
]


@command
def check(data: DataFolder, max_pixels: MaxPixels = None, jobs: Jobs = default_jobs(), *, console: Console) -> None:
    """Walk a whole dataset and report every fault: file, found, expected, how to mend it.

    Example: ntrm data check phantom/
    """
    from ntrm.data.check import check_dataset
    from ntrm.data.decode import MAX_PIXELS

    report = check_dataset(data, max_pixels=max_pixels or MAX_PIXELS, jobs=jobs, progress=console.progress)
    console.result(report.as_dict(), lambda out: _show(out, report))
    if not report.clean:
        raise typer.Exit(1)


def _show(out: RichConsole, report: CheckReport) -> None:
    for code, group in groupby(report.findings, key=lambda finding: finding.code):
        _show_group(out, code, list(group))
    for level in report.levels:
        name = f"{level.level}: " if level.level else ""
        mpp = ", ".join(f"{value:g}" for value in level.mpp)
        small, large = (f"{width} × {height}" for height, width in (level.smallest, level.largest))
        out.print(f"{name}{level.sections} sections at {mpp or 'unknown'} µm/px, {small} to {large} pixels")
    strays = report.strays
    if strays.pixels:
        out.print(
            f"stray colours: {strays.pixels} pixels ({strays.share:.2g} of all) in {strays.masks} masks, "
            f"{strays.ignored} of them become ignore, the others the nearest class"
        )
    verdict = "[green]clean[/]" if report.clean else f"[red]{len(report.faults)} faults[/]"
    splits = ", ".join(f"{count} {split}" for split, count in report.splits.items()) or "not split"
    out.print(
        f"{verdict}, {len(report.notes)} notes: {escape(str(report.root))}, layout {report.layout}, "
        f"{len(report.classes)} classes, {report.sections} sections of {report.patients} patients ({splits})"
    )


def _show_group(out: RichConsole, code: str, findings: list[Fault]) -> None:
    colour = "red" if findings[0].severity == "fault" else "yellow"
    title = f"[{colour}]{code}[/]: {findings[0].title} ({len(findings)})"
    table = Table(title=title, title_justify="left", title_style="bold", expand=False)
    for column in ("file", "found", "expected", "to mend"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        table.add_row(*map(escape, (finding.file, finding.found, finding.expected, finding.mend)))
    out.print(table)
