"""``ntrm segment`` and ``ntrm report``: slides and images to masks, polygons, relations and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console as RichConsole

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command, make_table
from ntrm.core.wording import counted
from ntrm.results.familiarity import cancers_in_words


@command
def segment(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT…", help="Slides, folders, or a CSV: slide[,slide_id,mpp,covariates…]; also as s3://…"
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out", metavar="OUT", help="Folder of the results, or s3://…; unfinished results are continued."
        ),
    ],
    model: options.Model = "bundled",
    mpp: Annotated[
        float | None, typer.Option("--mpp", help="µm/px of the slides, instead of the value in their files.")
    ] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="I/N", help="Only every N-th slide, starting with the I-th.")
    ] = None,
    pseudonymise: Annotated[
        Path | None,
        typer.Option(
            "--pseudonymise", metavar="KEY", help="Random names in all outputs; the file KEY translates them back."
        ),
    ] = None,
    tissue_mask: Annotated[
        bool, typer.Option("--tissue-mask/--no-tissue-mask", help="Whether to skip empty glass.")
    ] = True,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse slides of poor quality or unlike the training data, instead of warning."),
    ] = False,
    overlap: options.Overlap = None,
    simplify_um: Annotated[
        float | None,
        typer.Option("--simplify-um", metavar="X", help="Simplify polygons by at most X µm; default: exact outlines."),
    ] = None,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress regions.geojson.")] = False,
    zarr: Annotated[bool, typer.Option("--zarr", help="Also write labels.zarr (OME-NGFF).")] = False,
    maps: Annotated[
        bool, typer.Option("--maps", help="Also write confidence.ome.tif and, from the coarse head, coarse.ome.tif.")
    ] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also write probabilities.zarr (OME-NGFF), for every class.")
    ] = False,
    min_area: Annotated[
        float,
        typer.Option(
            "--min-area", metavar="UM2", help="Relabel regions smaller than this (µm²) as their neighbours; 0: none."
        ),
    ] = 0.0,
    stain_norm: Annotated[
        str,
        typer.Option(
            "--stain-norm",
            metavar="HOW",
            help="Stain normalisation to the training sections: macenko, strength or none. May help on unknown stains.",
        ),
    ] = "none",
    report: Annotated[bool, typer.Option("--report/--no-report", help="Whether to write report.html.")] = True,
    device: options.Device = "auto",
    batch: options.Batch = 16,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ray", help="Distribute the slides over workers of a Ray cluster."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="Number of workers; default one per GPU.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", metavar="DIR", help="Folder for slides from s3://…; default NTRM_CACHE.")
    ] = None,
    *,
    console: Console,
) -> None:
    """Segment whole slides and section images. For research, not for diagnosis.

    Writes slides.csv, pieces.csv, regions.csv, interfaces.csv and a folder for each slide to OUT. If a run was
    interrupted, run the same command again to continue. A slide that fails does not stop the others: slides.csv says
    why it failed.

    Example: ntrm segment slides/ --out results
    """
    from ntrm.models.folders import BUNDLED
    from ntrm.pipeline.batch import segment_slides as run

    if model == BUNDLED:
        console.note(
            "using the bundled model: trained on synthetic sections, for trying the software, not for real slides"
        )
    result = run(
        inputs,
        out=out,
        model=model,
        mpp=mpp,
        tissue_mask=tissue_mask,
        strict=strict,
        overlap=overlap,
        simplify_um=simplify_um,
        gzip=gzip,
        zarr=zarr,
        maps=maps,
        probabilities=probabilities,
        report=report,
        min_area_um2=min_area,
        stain_norm=stain_norm,
        device=device,
        batch=batch,
        shard=shard,
        pseudonymise=pseudonymise,
        cluster=cluster,
        workers=workers,
        cache=cache,
        progress=console.progress,
    )
    document = result.as_dict()
    console.result(document, lambda to: _show(document, to))
    for note in result.notes:
        console.note(f"note: {note}")
    for slide in result.failed:
        console.failed(slide.reason, slide.slide_id)
    console.note(f"written: {out}")
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _show(document: dict[str, Any], out: RichConsole) -> None:
    rows = []
    for slide in document["slides"]:
        area = cancers = "–"
        if slide["tissue_area_mm2"] is not None:
            area = f"{slide['tissue_area_mm2']:.2f}"
            cancers = cancers_in_words(slide["cancers"], slide["cancers_looked_for"])
        rows.append((slide["slide_id"], slide["status"], area, cancers, slide["warnings"]))
    columns = ("slide", "status", "tissue mm²", "cancers", "warnings")
    out.print(make_table(f"{counted(len(rows), 'slide')}, for research only", columns, rows, right=["tissue mm²"]))


@command
def report(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder that `ntrm segment` wrote to.")],
    jobs: options.Jobs = options.JOBS,
    *,
    console: Console,
) -> None:
    """Write report.html of every slide and index.html of all slides again. For research, not for diagnosis.

    Only files in OUT are read: neither slides nor a model are needed.

    Example: ntrm report results
    """
    from ntrm.report.slide_overview import remake_reports

    result = remake_reports(out, jobs=jobs, progress=console.progress)
    said = f"{counted(len(result.reported), 'report')} and {result.overview}"
    console.result(result.as_dict(), lambda to: to.print(said, markup=False, soft_wrap=True))
    for slide_id, reason in result.failures:
        console.failed(reason, slide_id)
    if result.failures:
        raise typer.Exit(1)
