"""The ``ntrm`` command: its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from ntrm.cli import correct, data, doctor, evaluate, reproduce, segment, serve, train
from ntrm.cli.console import CommandGroup, prepare_streams
from ntrm.version import __version__

app = typer.Typer(
    name="ntrm",
    cls=CommandGroup,
    help="Segment H&E skin sections into tissues, with a graph of how the tissues touch.",
    epilog="Exit codes: 0 done · 1 done, but some inputs failed or faults were found · 2 wrong usage · "
    "3 refused (unsafe, mismatched, missing µm/px) · 130 interrupted, resumable.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
datasets = typer.Typer(no_args_is_help=True, help="Check, describe, split, resample and import datasets.")
app.add_typer(datasets, name="data")


app.command("doctor")(doctor.doctor)
app.command("demo")(serve.demo)
app.command("phantom")(data.phantom)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("calibrate")(evaluate.calibrate)
app.command("compare")(evaluate.compare)
app.command("reproduce")(reproduce.reproduce)
app.command("export")(train.export)
app.command("segment")(segment.segment)
app.command("correct", cls=correct.CorrectCommand)(correct.correct)
app.command("serve")(serve.serve)
app.command("report")(segment.report)
datasets.command("check")(data.check)
datasets.command("stats")(data.stats)
datasets.command("split")(data.split)
datasets.command("resample")(data.resample)
datasets.command("import")(data.data_import)


def _version(asked: bool) -> None:
    if asked:
        print(f"ntrm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Segment H&E skin sections into tissues, with a graph of how the tissues touch."""


def main() -> None:
    """Entry point of the console script."""
    prepare_streams()
    app()


if __name__ == "__main__":
    main()
