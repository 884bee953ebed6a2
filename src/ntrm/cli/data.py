"""``ntrm data``: check, import, resample, split and describe datasets."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.common import JOBS, DataFolder, Jobs, Level, OutFolder, Seed
from ntrm.cli.console import Console, command

if TYPE_CHECKING:
    from ntrm.annotations.importing import ImportReport
    from ntrm.data.check import CheckReport, LevelSummary
    from ntrm.data.faults import Fault
    from ntrm.data.split import Split
    from ntrm.data.stats import DatasetStats


MaxPixels = Annotated[
    int | None,
    typer.Option("--max-pixels", min=1, metavar="N", help="Decode no image with more pixels than this (400 million)."),
]


@command
def check(data: DataFolder, max_pixels: MaxPixels = None, jobs: Jobs = JOBS, *, console: Console) -> None:
    """Walk a whole dataset and report every fault: file, found, expected, how to fix it.

    Example: ntrm data check phantom/
    """
    from ntrm.data.check import check_dataset
    from ntrm.data.image_files import MAX_PIXELS

    report = check_dataset(data, max_pixels=max_pixels or MAX_PIXELS, jobs=jobs, progress=console.progress)
    console.result(report.as_dict(), lambda out: _show_check(out, report))
    if not report.clean:
        raise typer.Exit(1)


def _show_check(out: RichConsole, report: CheckReport) -> None:
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
    for column in ("file", "found", "expected", "hint"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        table.add_row(*map(escape, (finding.file, finding.found, finding.expected, finding.hint)))
    out.print(table)


# ``ntrm data import``: QuPath annotations to a dataset.


Slides = Annotated[Path, typer.Argument(metavar="SLIDES", help="Slide or image, or a folder of them.")]
Annotations = Annotated[Path, typer.Argument(metavar="GEOJSON", help="<slide>.geojson, or a folder of them.")]
Map = Annotated[Path | None, typer.Option("--map", metavar="CSV", help="Class names: from,to (empty to: ignore).")]
Classes = Annotated[
    Path | None, typer.Option("--classes", metavar="CSV", help="classes.csv instead of the 12 tissues.")
]
Cases = Annotated[Path | None, typer.Option("--cases", metavar="CSV", help="Table: slide,patient,split,mpp.")]
Mpp = Annotated[float | None, typer.Option("--mpp", help="µm/px of slides that do not tell theirs.")]
TargetMpp = Annotated[float | None, typer.Option("--target-mpp", help="µm/px to write; the slide's own if not given.")]
ImportLevel = Annotated[
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
    resolution: ImportLevel = None,
    margin_um: Margin = 200.0,
    *,
    console: Console,
) -> None:
    """Turn areas drawn in QuPath into a dataset; what was not annotated is ignore, never background.

    Example: ntrm data import slides/ annotations/ --out dataset --target-mpp 1.34
    """
    from ntrm.annotations.importing import import_annotations
    from ntrm.annotations.pairing import read_names, read_slide_facts
    from ntrm.core.labels import SKIN, read_schema

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
    console.result(report.as_dict(), lambda stdout: _show_import(report, stdout))
    for failure in report.failures:
        console.note(f"error: {failure.error}")
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _target(mpp: float | None, level: str | None) -> float | None:
    from ntrm.core.errors import UsageError
    from ntrm.core.mpp import level_resolution

    if mpp is not None and level is not None:
        raise UsageError("two resolutions given", got=f"{mpp} µm/px and {level}", expected="one of them")
    return mpp if level is None else level_resolution(level).x


def _show_import(report: ImportReport, stdout: RichConsole) -> None:
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


# ``ntrm data resample``: coarser resolutions of a dataset.


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
    from ntrm.core.mpp import parse_levels
    from ntrm.data.resample import resample_dataset

    done = resample_dataset(folder, parse_levels(to), out, jobs=jobs, progress=console.progress)
    there = f" ({done.skipped} were there already)" if done.skipped else ""
    line = f"{done.sections} sections at {', '.join(done.levels)}: {done.written} files written{there} in {out}"
    console.result(done.as_dict(), lambda to: to.print(line, markup=False))


# ``ntrm data split``: training, validation and test, patient by patient.


@command
def split(
    folder: DataFolder,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write: name,group,split,cancer.")],
    fractions: Annotated[str, typer.Option("--fractions", help="Training, validation and test in %.")] = "70,15,15",
    seed: Seed = 0,
    *,
    console: Console,
) -> None:
    """Split sections so that no patient is in two parts and every cancer type in all of them.

    Sections that have a split already, in the dataset or in FILE, keep it; their patients' other sections join them.

    Example: ntrm data split my-data --out split.csv --seed 1
    """
    from ntrm.data.split import parse_fractions, write_split

    made = write_split(folder, out, fractions=parse_fractions(fractions), seed=seed)
    console.result({"out": str(out), **made.as_dict()}, lambda to: _show_split(made, to))
    if made.kept:
        console.note(f"{made.kept} of {len(made.rows)} sections kept the split that they or their patient had")
    console.note(f"written: {out}")


def _show_split(made: Split, out: RichConsole) -> None:
    facts = made.as_dict()
    cancers = sorted({row.cancer for row in made.rows})
    table = Table(title="Sections per split", title_justify="left")
    for column in ("split", "patients", "sections", *(cancer for cancer in cancers if cancer)):
        table.add_column(escape(column), justify="left" if column == "split" else "right")
    for name, cells in facts["cancers"].items():
        counts = [facts["patients"][name], facts["sections"][name], *(cells[cancer] for cancer in cancers if cancer)]
        table.add_row(name, *map(str, counts))
    out.print(table)


# ``ntrm data stats``: what a dataset consists of.


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
    from ntrm.report.dataset_report import stats_figure
    from ntrm.report.drawing import check_format, write_figure

    if figure is not None:
        check_format(figure)
    found = dataset_stats(open_dataset(folder, resolution=resolution), tile=tile, jobs=jobs, progress=console.progress)
    if figure is not None:
        write_figure(figure, stats_figure, found)
    console.result(found.as_dict(), lambda out: _show_stats(found, out))
    if figure is not None:
        console.note(f"picture: {figure}")


def _show_stats(stats: DatasetStats, out: RichConsole) -> None:
    table = Table(title=escape(stats.headline), title_justify="left")
    for column in ("tissue", "", "pixels", f"borders on (share of its boundary, from {NEIGHBOUR:.0%} on)"):
        table.add_column(column, justify="right" if column == "pixels" else "left")
    names = stats.schema.names
    for tissue, pixels, row in zip(stats.schema.tissues, stats.pixel_share, stats.boundary_share, strict=True):
        order = sorted(range(len(names)), key=lambda other: -row[other])
        borders = ", ".join(f"{names[other]} {row[other]:.0%}" for other in order if row[other] >= NEIGHBOUR)
        table.add_row(escape(tissue.name), escape(tissue.explanation), f"{pixels:.1%}", escape(borders))
    out.print(table)
