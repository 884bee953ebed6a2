"""``ntrm phantom`` and ``ntrm data``: make, check, import, resample, split and describe datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command, make_table
from ntrm.core.wording import counted

if TYPE_CHECKING:
    from ntrm.annotations.importing import ImportReport
    from ntrm.data.check import CheckReport


@command
def phantom(
    console: Console,
    out: Annotated[Path, typer.Argument()],
    sections: Annotated[int, typer.Option("--sections", "-n", min=1)] = 60,
    seed: options.Seed = 0,
    resolutions: str = "10x",
    ambiguity: options.Share = 0.5,
    pieces: options.Count = 1,
    normal: options.Share = 0.0,
    phantom_version: str = "1",
    jobs: options.Jobs = options.JOBS,
) -> None:
    """Draw a synthetic skin dataset in the layout of the real one, with the ground truth of every section.

    The same seed gives the same files, whatever --jobs is. After an interruption, the same command continues.

    Example: ntrm phantom my-phantom --sections 60 --seed 1 --resolutions 10x

    Args:
        out (OUT): Folder to write to; an unfinished phantom is continued.
        sections: Number of sections.
        resolutions: Levels to write: 10x,5x,2x.
        ambiguity: 0: every tissue has its own texture; 1: similar tissues have the same texture.
        pieces: Sections on one slide-sized image.
        normal (SHARE): Fraction of sections without a cancer.
        phantom_version (VERSION): 1, or 2 with more structures of real skin.

    """
    from ntrm.core.mpp import parse_levels
    from ntrm.phantom.generate import PhantomOptions, write_phantom

    wanted = PhantomOptions(sections, seed, parse_levels(resolutions), ambiguity, pieces, normal, phantom_version)
    report = write_phantom(out, wanted, jobs=jobs, progress=console.progress)

    kinds = report.cancers | {"normal": report.normal}
    counts = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
    kept = f" ({report.kept} were there already)" if report.kept else ""
    drawn = f"{counted(report.drawn, 'section')} drawn{kept}: {counts}; {', '.join(wanted.levels)} in {out}"
    console.result(report.as_dict(), drawn, f"next: ntrm data check {out}")


@command
def check(
    console: Console,
    data: options.DataFolder,
    max_pixels: options.CountOrNone = None,
    jobs: options.Jobs = options.JOBS,
) -> int:
    """Check a whole dataset and report every fault: file, found, expected, how to fix it.

    Own data, layout plain: Images/, Masks/ (indexed, or RGB in the colours of classes.csv), classes.csv with columns
    index,name,r,g,b and cases.csv with columns name,group,split,mpp. An image and its mask have the same name.

    Example: ntrm data check phantom/

    Args:
        max_pixels (N): Refuse images with more pixels than this (default 400 million).

    """
    from ntrm.data.check import check_dataset
    from ntrm.data.image_files import MAX_PIXELS

    report = check_dataset(data, max_pixels=max_pixels or MAX_PIXELS, jobs=jobs, progress=console.progress)
    console.result(report.as_dict(), *_findings(report), *_summary(report))
    return int(not report.clean)


def _findings(report: CheckReport) -> Iterator[Table]:
    for code, group in groupby(report.findings, key=lambda finding: finding.code):
        findings = [*group]
        title = f"{findings[0].severity} {code}: {findings[0].title} ({len(findings)})"
        rows = [(each.file, each.found, each.expected, each.hint) for each in findings]
        yield make_table(title, ("file", "found", "expected", "hint"), rows)


def _summary(report: CheckReport) -> Iterator[str]:
    for level in report.levels:
        name = f"{level.level}: " if level.level else ""
        what = "masks" if report.layout == "masks" else "sections"
        mpp = ", ".join(str(known).removesuffix(" µm/px") for known in level.resolutions) or "unknown"
        small, large = (f"{width} × {height}" for height, width in (level.smallest, level.largest))
        sizes = small if small == large else f"{small} to {large}"
        yield f"{name}{level.cases} {what} at {mpp} µm/px, {sizes} pixels"
    if (strays := report.strays).pixels:
        yield (
            f"stray colours: {strays.pixels} pixels ({strays.share:.2g} of all) in {strays.masks} masks, "
            f"{strays.ignored} of them become ignore, the others the nearest class"
        )
    verdict = "clean" if report.clean else counted(len(report.faults), "fault")
    splits = ", ".join(f"{count} {split}" for split, count in report.splits.items()) or "not split"
    yield (
        f"{verdict}, {counted(len(report.notes), 'note')}: {report.root}, layout {report.layout}, "
        f"{counted(report.sections, 'section')} of {counted(report.patients, 'patient')} ({splits})"
    )


@command
def data_import(
    console: Console,
    slides: Annotated[Path, typer.Argument()],
    annotations: Annotated[Path, typer.Argument()],
    out: options.OutFolder,
    names: Annotated[Path | None, typer.Option("--map")] = None,
    classes: Path | None = None,
    cases: Path | None = None,
    mpp: float | None = None,
    target_mpp: float | None = None,
    margin_um: float = 200.0,
) -> int:
    """Turn QuPath annotations into a dataset; areas without an annotation are ignored, never background.

    Example: ntrm data import slides/ annotations/ --out dataset --target-mpp 1.34

    Args:
        slides (SLIDES): Slide or image, or a folder of them.
        annotations (GEOJSON): <slide>.geojson, or a folder of them.
        names (CSV): Table of class names with columns from,to (empty: ignore).
        classes (CSV): classes.csv with other classes than the 12 tissues.
        cases (CSV): Table with columns slide,patient,split,mpp.
        mpp: µm/px of slides whose files do not contain it.
        target_mpp: µm/px of the dataset, such as 6.7 for the skin dataset's 10x; default: that of the slide.
        margin_um: Margin around the bounding box of the annotations, in µm.

    """
    from ntrm.annotations.importing import import_annotations
    from ntrm.annotations.pairing import read_names, read_slide_facts
    from ntrm.core.labels import SKIN, read_schema

    report = import_annotations(
        **console.given("names", "classes", "cases"),
        schema=read_schema(classes) if classes else SKIN,
        names=read_names(names) if names else None,
        facts=read_slide_facts(cases) if cases else None,
        progress=console.progress,
    )
    console.result(report.as_dict(), *_imported(report))
    for case in report.imported:
        if told := not_as_drawn(case.counts):
            console.note(f"{case.name}: {told}")
    for failure in report.failures:
        console.failed(failure.error)
    return report.exit_code


NOT_AS_DRAWN = {
    "unclassified": "without a class",
    "degenerate": "without an area",
    "no_pixel": "on no pixel of the mask",
    "not_areas": "as point or line",
    "not_annotations": "as cell or detection",
    "clipped": "clipped at the slide's edge",
    "repaired": "repaired",
}
"""Counts of annotations that are left out or changed, in words."""


def not_as_drawn(counts: Mapping[str, Any]) -> str:
    """What a mask has otherwise than it was drawn; empty where that is nothing."""
    told = ", ".join(f"{counts[key]:,} {words}" for key, words in NOT_AS_DRAWN.items() if counts.get(key))
    return f"annotations left out or changed: {told}" if told else ""


def _imported(report: ImportReport) -> Iterator[RenderableType]:
    rows = []
    for case in report.imported:
        tissues = ", ".join(name for name, pixels in case.pixels.items() if pixels and name != "ignore")
        size, state = f"{case.width} × {case.height}", "there already" if case.name in report.reused else "new"
        rows.append((case.name, size, f"{case.mpp:g}", str(case.counts["used"]), tissues, state))
    if rows:
        yield make_table(f"imported into {report.out}", ("case", "pixels", "µm/px", "areas", "tissues", ""), rows)
    left = {
        "slides without annotations": report.slides_without_annotations,
        "annotations without a slide": report.annotations_without_slide,
        "failed": [failure.slide for failure in report.failures],
    }
    yield from (f"{what}: {', '.join(files)}" for what, files in left.items() if files)


@command
def resample(
    console: Console, folder: options.DataFolder, to: str, out: options.OutFolder, jobs: options.Jobs = options.JOBS
) -> None:
    """Derive coarser resolutions from the finest one: area averages for images, majority votes for masks.

    Downsample factors are relative to the scan in the layout queensland, and to the images in the layout plain. A
    number alone is µm/px, and makes a dataset of layout plain. The input is not changed. After an interruption, the
    same command continues.

    Example: ntrm data resample my-data --to 5x,10x --out coarser

    ntrm data resample my-data --to 0.77 --out my-data-0.77um

    Args:
        to (2x,5x|UM): Resolutions to derive: downsample factors, or one µm/px.

    """
    from ntrm.data.resample import parse_targets, resample_dataset

    done = resample_dataset(folder, parse_targets(to), out, jobs=jobs, progress=console.progress)
    there = f" ({done.skipped} were there already)" if done.skipped else ""
    levels = ", ".join(level if isinstance(level, str) else f"{level:g} µm/px" for level in done.levels)
    line = f"{done.sections} sections at {levels}: {done.written} files written{there} in {out}"
    console.result(done.as_dict(), line)


@command
def split(
    console: Console,
    folder: options.DataFolder,
    out: Path,
    fractions: str = "70,15,15",
    seed: options.Seed = 0,
    anew: bool = False,
) -> None:
    """Split sections by patient, so that no patient is in two splits and every split has every cancer type.

    Sections that already have a split, in the dataset or in FILE, keep it, and other sections of their patients get the
    same.

    Example: ntrm data split my-data --out split.csv --seed 1

    Args:
        out (FILE): CSV file to write: name,group,split,cancer.
        fractions: Percentages for train, val and test.
        anew: Ignore existing splits; needs a new FILE.

    """
    from ntrm.data.split import parse_fractions, write_split

    assigned = write_split(folder, out, fractions=parse_fractions(fractions), seed=seed, anew=anew)
    facts = assigned.as_dict()
    columns = ("patients", "sections", *(cancer or "other" for cancer in facts["cancers"]["train"]))
    rows = [
        (name, *map(str, (facts["patients"][name], facts["sections"][name], *cells.values())))
        for name, cells in facts["cancers"].items()
    ]
    table = make_table("Sections per split", ("split", *columns), rows, right=columns)
    console.result({"out": str(out), **facts}, table)
    if assigned.kept:
        kept = f"{assigned.kept} of {len(assigned.rows)} sections kept the split that they or their patient had"
        console.note(f"{kept} (--anew splits all)")
    console.note(f"written: {out}")


@command
def stats(
    console: Console,
    folder: options.DataFolder,
    resolution: options.Level = None,
    figure: Path | None = None,
    tile: options.Count = 256,
    jobs: options.Jobs = options.JOBS,
) -> None:
    """Count sections, sizes, pixels per tissue, shared boundaries and tissues per tile. Needs only the masks.

    Example: ntrm data stats my-data --resolution 10x --figure stats.png

    Args:
        figure (FILE): Draw the class fractions to a PNG, SVG or PDF file.
        tile: Side of the tiles, in pixels.

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
    names, rows, least = stats.schema.names, [], 0.10
    for tissue, pixels, row in zip(stats.schema.tissues, stats.pixel_share, stats.boundary_share, strict=True):
        order = sorted(range(len(names)), key=lambda other: -row[other])
        borders = ", ".join(f"{names[other]} {row[other]:.0%}" for other in order if row[other] >= least)
        rows.append((tissue.name, tissue.explanation, f"{pixels:.1%}", borders))
    columns = ("tissue", "", "pixels", f"borders on (share of its boundary, from {least:.0%} on)")
    console.result(stats.as_dict(), make_table(stats.headline, columns, rows, right=["pixels"]))
    if figure is not None:
        write_figure(figure, stats_figure, stats)
        console.note(f"picture: {figure}")
