"""``ntrm demo``: the whole tour on embedded defaults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console as RichConsole

from ntrm.cli.common import JOBS, Jobs
from ntrm.cli.console import Console, command


@command
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for what the tour makes.")] = Path("demo"),
    jobs: Jobs = JOBS,
    serve: Annotated[
        bool | None, typer.Option("--serve/--no-serve", help="Show the slides in the browser at the end.")
    ] = None,
    *,
    console: Console,
) -> None:
    """Draw synthetic sections, check them, segment them with the bundled model, and show what came of it.

    At a terminal the viewer starts at the end, and its link is printed; Ctrl-C ends it.

    Example: ntrm demo --out demo
    """
    from ntrm.tour import tour

    result = tour(out, jobs=jobs, progress=console.progress, note=console.note)

    def show(to: RichConsole) -> None:
        to.print(f"{result.sections} sections drawn and checked, {result.faults} faults found.", markup=False)
        to.print(f"bundled model on {result.scored} of them: mean IoU {result.iou:.3f}", markup=False)
        to.print(f"the dataset: {result.page.resolve().as_uri()}", markup=False, soft_wrap=True)
        reports = (result.results / "index.html").resolve().as_uri()
        to.print(f"the slides:  {reports}", markup=False, soft_wrap=True)

    console.result(result.as_dict(), show)
    if result.faults:
        raise typer.Exit(1)
    if _at_a_terminal(console) if serve is None else serve:
        _serve(result.results, result.dataset, console)
    else:
        console.note(f"the viewer:  ntrm serve {result.results} --root {result.dataset}")


def _at_a_terminal(console: Console) -> bool:
    return not console.json and sys.stdin.isatty() and sys.stdout.isatty()


def _serve(results: Path, slides: Path, console: Console) -> None:
    """Until Ctrl-C; where the service is not installed, say how to get it."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        console.note('the viewer:  pip install "ntrm[serve]", then ntrm serve')
        return
    from ntrm.cli.serve import start
    from ntrm.service.core.settings import ServiceSettings

    start(ServiceSettings(out=results, roots=(slides,), port=0), console, open_page=True)
