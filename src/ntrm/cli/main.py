"""The ``ntrm`` command: its subcommands."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ntrm.cli import annotate, correct, data, doctor, evaluate, reproduce, segment, serve, train
from ntrm.cli.console import prepare_streams
from ntrm.version import __version__

app = typer.Typer(
    name="ntrm",
    help="Segment H&E skin sections into tissues, with a graph of how the tissues touch.",
    epilog="Exit codes: 0 done · 1 done, but some inputs failed or faults were found · 2 wrong usage · "
    "3 refused (unsafe, mismatched, missing µm/px) · 130 interrupted, resumable.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
datasets = typer.Typer(no_args_is_help=True, help="Check, describe, split, resample and import datasets.")
app.add_typer(datasets, name="data")

for each in (
    *(doctor.doctor, serve.demo, data.phantom, train.train, evaluate.evaluate, evaluate.calibrate, evaluate.compare),
    *(reproduce.reproduce, train.export, segment.segment, annotate.annotate, correct.correct),
    *(serve.serve, segment.report),
):
    app.command(each.__name__, cls=correct.CorrectCommand if each is correct.correct else None)(each)
for each in (data.check, data.stats, data.split, data.resample):
    datasets.command(each.__name__)(each)
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
    # On ARM, torch's allocator would give freed memory back within 10 ms, and get it again in the next step of a
    # training: a sixth of its time. It looks when torch is imported; for glibc's see ``core.devices``.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "1000")
    prepare_streams()
    app()


if __name__ == "__main__":
    main()
