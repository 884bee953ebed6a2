"""``ntrm doctor``: what is there, what is missing, how to get it."""

from __future__ import annotations

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.console import Console, command


@command
def doctor(*, console: Console) -> None:
    """Tell what this installation can do: Python, torch, devices, readers, extras.

    Example: ntrm doctor --json
    """
    from ntrm.core.environment import examine

    report = examine()

    def show(out: RichConsole) -> None:
        table = Table(title=f"ntrm {report.version}", title_justify="left", show_lines=False)
        for column in ("", "what", "found", "to get it"):
            table.add_column(column)
        for finding in report.findings:
            mark = "[green]ok[/]" if finding.present else ("[red]missing[/]" if finding.needed else "[dim]–[/]")
            hint = "" if finding.present else finding.hint
            table.add_row(mark, finding.what, escape(finding.found), escape(hint))
        out.print(table)

    console.result(report.as_dict(), show)
    if not report.complete:
        raise typer.Exit(1)
