"""``ntrm data import``: QuPath annotations to a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.console import Console, command
from ntrm.cli.options import OutFolder

if TYPE_CHECKING:
    from ntrm.annotations.importing import ImportReport

Slides = Annotated[Path, typer.Argument(metavar="SLIDES", help="Slide or image, or a folder of them.")]
Annotations = Annotated[Path, typer.Argument(metavar="GEOJSON", help="<slide>.geojson, or a folder of them.")]
Map = Annotated[Path | None, typer.Option("--map", metavar="CSV", help="Class names: from,to (empty to: ignore).")]
Classes = Annotated[
    Path | None, typer.Option("--classes", metavar="CSV", help="classes.csv instead of the 12 tissues.")
]
Cases = Annotated[Path | None, typer.Option("--cases", metavar="CSV", help="Table: slide,patient,split,mpp.")]
Mpp = Annotated[float | None, typer.Option("--mpp", help="µm/px of slides that do not tell theirs.")]
TargetMpp = Annotated[float | None, typer.Option("--target-mpp", help="µm/px to write; the slide's own if not given.")]
Level = Annotated[
    str | None, typer.Option("--resolution", metavar="10x", help="The same as a level: 10x is 6.7 µm/px.")
]
Margin = Annotated[float, typer.Option("--margin-um", help="Surroundings kept around the annotated box, in µm.")]


@command
def data_import(
    slides: Slides,
    annotations: Annotations,
    out: OutFolder,
    names: Map = None,
    classes: Classes = None,
    cases: Cases = None,
    mpp: Mpp = None,
    target_mpp: TargetMpp = None,
    resolution: Level = None,
    margin_um: Margin = 200.0,
    *,
    console: Console,
) -> None:
    """Turn areas drawn in QuPath into a dataset; what was not annotated is ignore, never background.

    Example: ntrm data import slides/ annotations/ --out dataset --target-mpp 1.34
    """
    from ntrm.annotations.importing import import_annotations
    from ntrm.annotations.pairing import read_names, read_slide_facts
    from ntrm.labels import SKIN, read_schema

    report = import_annotations(
        slides,
        annotations,
        out,
        schema=read_schema(classes) if classes else SKIN,
        names=read_names(names) if names else None,
        facts=read_slide_facts(cases) if cases else None,
        mpp=mpp,
        target_mpp=_target(target_mpp, resolution),
        margin_um=margin_um,
        progress=console.progress,
    )
    console.result(report.as_dict(), lambda stdout: _show(report, stdout))
    for failure in report.failures:
        console.note(f"error: {failure.error}")
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _target(mpp: float | None, level: str | None) -> float | None:
    from ntrm.errors import UsageError
    from ntrm.resolution import level_resolution

    if mpp is not None and level is not None:
        raise UsageError("two resolutions given", got=f"{mpp} µm/px and {level}", expected="one of them")
    return mpp if level is None else level_resolution(level).x


def _show(report: ImportReport, stdout: RichConsole) -> None:
    table = Table(title=f"imported into {escape(str(report.out))}", title_justify="left")
    for column in ("case", "pixels", "µm/px", "areas", "tissues", "overlaps", ""):
        table.add_column(column)
    for case in report.imported:
        tissues = [name for name, pixels in case.pixels.items() if pixels and name != "ignore"]
        size, state = f"{case.width} × {case.height}", "there already" if case.name in report.reused else "new"
        overlaps = f"{sum(case.overlaps.values()):,} px" if case.overlaps else ""
        areas = str(case.counts["used"])
        table.add_row(escape(case.name), size, f"{case.mpp:g}", areas, escape(", ".join(tissues)), overlaps, state)
    if report.imported:
        stdout.print(table)
    for what, files in (
        ("slides without annotations", report.slides_without_annotations),
        ("annotations without a slide", report.annotations_without_slide),
        ("failed", tuple(failure.slide for failure in report.failures)),
    ):
        if files:
            stdout.print(f"{what}: {escape(', '.join(files))}")
