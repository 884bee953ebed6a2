"""``ntrm data check``: every fault of a dataset, with what to do about it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.console import Console, command
from ntrm.cli.options import JOBS, DataFolder, Jobs

if TYPE_CHECKING:
    from ntrm.data.check import CheckReport, LevelSummary
    from ntrm.data.faults import Fault

MaxPixels = Annotated[
    int | None,
    typer.Option("--max-pixels", min=1, metavar="N", help="Decode no image with more pixels than this (400 million)."),
]


@command
def check(data: DataFolder, max_pixels: MaxPixels = None, jobs: Jobs = JOBS, *, console: Console) -> None:
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
        _show_level(out, level, "masks" if report.layout == "masks" else "sections")
    strays = report.strays
    if strays.pixels:
        out.print(
            f"stray colours: {strays.pixels} pixels ({strays.share:.2g} of all) in {strays.masks} masks, "
            f"{strays.ignored} of them become ignore, the others the nearest class"
        )
    verdict = "[green]clean[/]" if report.clean else f"[red]{_count(len(report.faults), 'fault')}[/]"
    splits = ", ".join(f"{count} {split}" for split, count in report.splits.items()) or "not split"
    out.print(
        f"{verdict}, {_count(len(report.notes), 'note')}: {escape(str(report.root))}, layout {report.layout}, "
        f"{_count(report.sections, 'section')} of {_count(report.patients, 'patient')} ({splits})"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _show_level(out: RichConsole, level: LevelSummary, what: str) -> None:
    name = f"{level.level}: " if level.level else ""
    mpp = ", ".join(f"{value:g}" for value in level.mpp) or "unknown"
    small, large = (f"{width} × {height}" for height, width in (level.smallest, level.largest))
    sizes = small if small == large else f"{small} to {large}"
    out.print(f"{name}{level.cases} {what} at {mpp} µm/px, {sizes} pixels")


def _show_group(out: RichConsole, code: str, findings: list[Fault]) -> None:
    colour = "red" if findings[0].severity == "fault" else "yellow"
    title = f"[{colour}]{code}[/]: {findings[0].title} ({len(findings)})"
    table = Table(title=title, title_justify="left", title_style="bold", expand=False)
    for column in ("file", "found", "expected", "to mend"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        table.add_row(*map(escape, (finding.file, finding.found, finding.expected, finding.mend)))
    out.print(table)
