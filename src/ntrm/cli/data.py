"""``ntrm phantom`` and ``ntrm data``: make, check, import, resample, split and describe datasets."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command, make_table
from ntrm.core.wording import counted

if TYPE_CHECKING:
    from ntrm.annotations.importing import ImportReport
    from ntrm.data.check import CheckReport, LevelSummary
    from ntrm.data.faults import Fault
    from ntrm.data.split_file import Split
    from ntrm.data.stats import DatasetStats


@command
def phantom(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to; an unfinished phantom is continued.")],
    sections: Annotated[int, typer.Option("--sections", "-n", min=1, help="Number of sections.")] = 60,
    seed: options.Seed = 0,
    resolutions: Annotated[str, typer.Option("--resolutions", help="Levels to write: 10x,5x,2x.")] = "10x",
    ambiguity: Annotated[
        float,
        typer.Option(
            "--ambiguity",
            min=0,
            max=1,
            help="0: every tissue has its own texture; 1: similar tissues have the same texture.",
        ),
    ] = 0.5,
    pieces: Annotated[int, typer.Option("--pieces", min=1, help="Sections on one slide-sized image.")] = 1,
    normal: Annotated[
        float, typer.Option("--normal", min=0, max=1, metavar="SHARE", help="Fraction of sections without a cancer.")
    ] = 0.0,
    version: Annotated[
        str, typer.Option("--phantom-version", metavar="VERSION", help="1, or 2 with more structures of real skin.")
    ] = "1",
    jobs: options.Jobs = options.JOBS,
    *,
    console: Console,
) -> None:
    """Draw a synthetic skin dataset in the layout of the real one, with the ground truth of every section.

    The same seed gives the same files, whatever --jobs is. After an interruption, the same command continues.

    Example: ntrm phantom my-phantom --sections 60 --seed 1 --resolutions 10x
    """
    from ntrm.core.mpp import parse_levels
    from ntrm.phantom.generate import PhantomOptions, write_phantom

    wanted = PhantomOptions(sections, seed, parse_levels(resolutions), ambiguity, pieces, normal, version)
    report = write_phantom(out, wanted, jobs=jobs, progress=console.progress)

    def show(to: RichConsole) -> None:
        kinds = report.cancers | {"normal": report.normal}
        counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
        kept = f" ({report.kept} were there already)" if report.kept else ""
        to.print(
            f"{counted(report.drawn, 'section')} drawn{kept}: {counts}; {', '.join(wanted.levels)} in {out}",
            markup=False,
        )
        to.print(f"next: ntrm data check {out}", markup=False)

    console.result(report.as_dict(), show)


@command
def check(
    data: options.DataFolder,
    max_pixels: Annotated[
        int | None,
        typer.Option(
            "--max-pixels", min=1, metavar="N", help="Refuse images with more pixels than this (default 400 million)."
        ),
    ] = None,
    jobs: options.Jobs = options.JOBS,
    *,
    console: Console,
) -> None:
    """Check a whole dataset and report every fault: file, found, expected, how to fix it.

    Own data, layout plain: Images/, Masks/ (indexed, or RGB in the colours of classes.csv), classes.csv with columns
    index,name,r,g,b and cases.csv with columns name,group,split,mpp. An image and its mask have the same name.

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
    verdict = "[green]clean[/]" if report.clean else f"[red]{counted(len(report.faults), 'fault')}[/]"
    splits = ", ".join(f"{count} {split}" for split, count in report.splits.items()) or "not split"
    out.print(
        f"{verdict}, {counted(len(report.notes), 'note')}: {escape(str(report.root))}, layout {report.layout}, "
        f"{counted(report.sections, 'section')} of {counted(report.patients, 'patient')} ({splits})"
    )


def _show_level(out: RichConsole, level: LevelSummary, what: str) -> None:
    name = f"{level.level}: " if level.level else ""
    mpp = ", ".join(str(known).removesuffix(" µm/px") for known in level.resolutions) or "unknown"
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


@command
def data_import(
    slides: Annotated[Path, typer.Argument(metavar="SLIDES", help="Slide or image, or a folder of them.")],
    annotations: Annotated[Path, typer.Argument(metavar="GEOJSON", help="<slide>.geojson, or a folder of them.")],
    out: options.OutFolder,
    names: Annotated[
        Path | None,
        typer.Option("--map", metavar="CSV", help="Table of class names with columns from,to (empty: ignore)."),
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option("--classes", metavar="CSV", help="classes.csv with other classes than the 12 tissues."),
    ] = None,
    cases: Annotated[
        Path | None, typer.Option("--cases", metavar="CSV", help="Table with columns slide,patient,split,mpp.")
    ] = None,
    mpp: Annotated[float | None, typer.Option("--mpp", help="µm/px of slides whose files do not contain it.")] = None,
    target_mpp: Annotated[
        float | None, typer.Option("--target-mpp", help="µm/px of the dataset; default: that of the slide.")
    ] = None,
    resolution: Annotated[
        str | None,
        typer.Option("--resolution", metavar="10x", help="The same as a level of the skin dataset: 10x is 6.7 µm/px."),
    ] = None,
    margin_um: Annotated[
        float, typer.Option("--margin-um", help="Margin around the bounding box of the annotations, in µm.")
    ] = 200.0,
    *,
    console: Console,
) -> None:
    """Turn QuPath annotations into a dataset; areas without an annotation are ignored, never background.

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
    for case in report.imported:
        if told := not_as_drawn(case.counts):
            console.note(f"{case.name}: {told}")
    for failure in report.failures:
        console.failed(failure.error)
    if report.exit_code:
        raise typer.Exit(report.exit_code)


def _target(mpp: float | None, level: str | None) -> float | None:
    from ntrm.core.errors import UsageError
    from ntrm.core.mpp import level_resolution

    if mpp is not None and level is not None:
        raise UsageError("two resolutions given", got=f"{mpp} µm/px and {level}", expected="one of them")
    return mpp if level is None else level_resolution(level).x


LEFT_OUT = {
    "unclassified": "without a class",
    "degenerate": "without an area",
    "no_pixel": "on no pixel of the mask",
    "not_areas": "as point or line",
    "not_annotations": "as cell or detection",
}
CHANGED = {"clipped": "clipped at the slide's edge", "repaired": "repaired"}
"""Counts of annotations that were read, in words."""


def not_as_drawn(counts: Mapping[str, Any]) -> str:
    """What a mask has otherwise than it was drawn; empty where that is nothing."""
    told = {
        what: ", ".join(f"{counts[key]:,} {words}" for key, words in names.items() if counts.get(key))
        for what, names in (("left out", LEFT_OUT), ("changed", CHANGED))
    }
    return "; ".join(f"annotations {what}: {those}" for what, those in told.items() if those)


def _show_import(report: ImportReport, stdout: RichConsole) -> None:
    rows = []
    for case in report.imported:
        tissues = [name for name, pixels in case.pixels.items() if pixels and name != "ignore"]
        size, state = f"{case.width} × {case.height}", "there already" if case.name in report.reused else "new"
        overlaps = f"{sum(case.overlaps.values()):,} px" if case.overlaps else ""
        rows.append((case.name, size, f"{case.mpp:g}", str(case.counts["used"]), ", ".join(tissues), overlaps, state))
    if rows:
        columns = ("case", "pixels", "µm/px", "areas", "tissues", "overlaps", "")
        stdout.print(make_table(f"imported into {report.out}", columns, rows))
    for what, files in (
        ("kept from earlier imports, without a slide and annotations in this one", report.kept),
        (
            "patient, split or µm/px taken from an earlier import, because this one does not give them",
            report.remembered,
        ),
        ("slides without annotations", report.slides_without_annotations),
        ("annotations without a slide", report.annotations_without_slide),
        ("failed", tuple(failure.slide for failure in report.failures)),
    ):
        if files:
            stdout.print(f"{what}: {escape(', '.join(files))}")


@command
def resample(
    folder: options.DataFolder,
    to: Annotated[
        str, typer.Option("--to", metavar="2x,5x|UM", help="Resolutions to derive: downsample factors, or one µm/px.")
    ],
    out: options.OutFolder,
    jobs: options.Jobs = options.JOBS,
    *,
    console: Console,
) -> None:
    """Derive coarser resolutions from the finest one: area averages for images, majority votes for masks.

    Downsample factors are relative to the scan in the layout queensland, and to the images in the layout plain. A
    number alone is µm/px, and makes a dataset of layout plain. The input is not changed. After an interruption, the
    same command continues.

    Example: ntrm data resample my-data --to 5x,10x --out coarser

    ntrm data resample my-data --to 0.77 --out my-data-0.77um
    """
    from ntrm.data.resample import parse_targets, resample_dataset

    done = resample_dataset(folder, parse_targets(to), out, jobs=jobs, progress=console.progress)
    there = f" ({done.skipped} were there already)" if done.skipped else ""
    levels = ", ".join(level if isinstance(level, str) else f"{level:g} µm/px" for level in done.levels)
    line = f"{done.sections} sections at {levels}: {done.written} files written{there} in {out}"
    console.result(done.as_dict(), lambda to: to.print(line, markup=False))


@command
def split(
    folder: options.DataFolder,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write: name,group,split,cancer.")],
    fractions: Annotated[str, typer.Option("--fractions", help="Percentages for train, val and test.")] = "70,15,15",
    seed: options.Seed = 0,
    *,
    anew: Annotated[bool, typer.Option("--anew", help="Ignore existing splits; needs a new FILE.")] = False,
    console: Console,
) -> None:
    """Split sections by patient, so that no patient is in two splits and every split has every cancer type.

    Sections that already have a split, in the dataset or in FILE, keep it, and other sections of their patients get the
    same.

    Example: ntrm data split my-data --out split.csv --seed 1
    """
    from ntrm.data.split import parse_fractions, write_split

    assigned = write_split(folder, out, fractions=parse_fractions(fractions), seed=seed, anew=anew)
    console.result({"out": str(out), **assigned.as_dict()}, lambda to: _show_split(assigned, to))
    if assigned.kept:
        kept = f"{assigned.kept} of {len(assigned.rows)} sections kept the split that they or their patient had"
        console.note(f"{kept} (--anew splits all)")
    console.note(f"written: {out}")


def _show_split(assigned: Split, out: RichConsole) -> None:
    facts = assigned.as_dict()
    cancers = sorted({row.cancer for row in assigned.rows if row.cancer})
    columns = ("patients", "sections", *cancers)
    rows = []
    for name, cells in facts["cancers"].items():
        counts = [facts["patients"][name], facts["sections"][name], *(cells[cancer] for cancer in cancers)]
        rows.append((name, *map(str, counts)))
    out.print(make_table("Sections per split", ("split", *columns), rows, right=columns))


NEIGHBOUR = 0.10
"""Fraction of a tissue's boundary from which on a neighbour is listed."""


@command
def stats(
    folder: options.DataFolder,
    resolution: options.Level = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE", help="Draw the class fractions to a PNG, SVG or PDF file."),
    ] = None,
    tile: Annotated[int, typer.Option("--tile", min=1, help="Side of the tiles, in pixels.")] = 256,
    jobs: options.Jobs = options.JOBS,
    *,
    console: Console,
) -> None:
    """Count sections, sizes, pixels per tissue, shared boundaries and tissues per tile. Needs only the masks.

    Example: ntrm data stats my-data --resolution 10x --figure stats.png
    """
    from ntrm.data.dataset import check_outside
    from ntrm.data.layouts import open_dataset
    from ntrm.data.stats import dataset_stats
    from ntrm.report.dataset_report import stats_figure
    from ntrm.report.drawing import check_format, write_figure

    if figure is not None:
        check_format(figure)
        check_outside(figure, folder)
    stats = dataset_stats(open_dataset(folder, resolution=resolution), tile=tile, jobs=jobs, progress=console.progress)
    if figure is not None:
        write_figure(figure, stats_figure, stats)
    console.result(stats.as_dict(), lambda out: _show_stats(stats, out))
    if figure is not None:
        console.note(f"picture: {figure}")


def _show_stats(stats: DatasetStats, out: RichConsole) -> None:
    names, rows = stats.schema.names, []
    for tissue, pixels, row in zip(stats.schema.tissues, stats.pixel_share, stats.boundary_share, strict=True):
        order = sorted(range(len(names)), key=lambda other: -row[other])
        borders = ", ".join(f"{names[other]} {row[other]:.0%}" for other in order if row[other] >= NEIGHBOUR)
        rows.append((tissue.name, tissue.explanation, f"{pixels:.1%}", borders))
    columns = ("tissue", "", "pixels", f"borders on (share of its boundary, from {NEIGHBOUR:.0%} on)")
    out.print(make_table(stats.headline, columns, rows, right=["pixels"]))
