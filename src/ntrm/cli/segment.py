"""``ntrm segment``: slides and images to masks, polygons, relations and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table

from ntrm.cli.common import Batch, Device
from ntrm.cli.console import Console, command, count

Inputs = Annotated[
    list[Path], typer.Argument(metavar="INPUT…", help="Slides, folders, or a CSV: slide[,slide_id,mpp,covariates…].")
]
Out = Annotated[Path, typer.Option("--out", metavar="OUT", help="Folder of the results; unfinished ones go on.")]
Model = Annotated[str, typer.Option("--model", metavar="M", help="Model folder, hub id or bundled.")]
Mpp = Annotated[float | None, typer.Option("--mpp", help="µm/px of the slides, instead of what they tell.")]
Shard = Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Only every N-th slide from the I-th on.")]
Key = Annotated[
    Path | None,
    typer.Option("--pseudonymise", metavar="KEY", help="Random names in all outputs; KEY, kept apart, explains them."),
]
TissueMask = Annotated[bool, typer.Option("--tissue-mask/--no-tissue-mask", help="Leave out empty glass, or do not.")]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse slides of poor quality instead of warning.")]
Overlap = Annotated[
    int | None, typer.Option("--overlap", metavar="N", min=0, help="Pixels that windows share; default a quarter.")
]
Simplify = Annotated[
    float | None, typer.Option("--simplify-um", metavar="X", help="Simplify polygons by at most X µm; default exact.")
]
Gzip = Annotated[bool, typer.Option("--gzip", help="Compress regions.geojson.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", metavar="ray", help="Share the slides among workers of a Ray cluster.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", min=1, help="Workers of the cluster; default one per GPU.")
]
Zarr = Annotated[bool, typer.Option("--zarr", help="Also write labels.zarr (OME-NGFF).")]
Maps = Annotated[
    bool, typer.Option("--maps", help="Also write confidence.ome.tif, and coarse.ome.tif of the coarse head.")
]
Probabilities = Annotated[
    bool, typer.Option("--probabilities", help="Also write probabilities.zarr (OME-NGFF), of every class.")
]
MinArea = Annotated[
    float,
    typer.Option("--min-area", metavar="UM2", help="Give regions under so many µm² to their neighbours; 0: none."),
]
Report = Annotated[bool, typer.Option("--report/--no-report", help="Write report.html, or do not.")]


@command
def segment(
    inputs: Inputs,
    out: Out,
    model: Model = "bundled",
    mpp: Mpp = None,
    shard: Shard = None,
    pseudonymise: Key = None,
    tissue_mask: TissueMask = True,
    strict: Strict = False,
    overlap: Overlap = None,
    simplify_um: Simplify = None,
    gzip: Gzip = False,
    zarr: Zarr = False,
    maps: Maps = False,
    probabilities: Probabilities = False,
    min_area: MinArea = 0.0,
    report: Report = True,
    device: Device = "auto",
    batch: Batch = 16,
    cluster: Cluster = None,
    workers: Workers = None,
    *,
    console: Console,
) -> None:
    """Segment whole slides and section images. For research, not for diagnosis.

    OUT gets slides.csv, pieces.csv, regions.csv, interfaces.csv and a folder for each slide. A run that was killed goes
    on with the same command. A slide that fails does not stop the others: slides.csv says why.

    Example: ntrm segment slides/ --out results
    """
    from ntrm.models.folders import BUNDLED
    from ntrm.pipeline.batch import segment_slides as run
    from ntrm.pipeline.options import Options

    if model == BUNDLED:
        console.note(
            "using the bundled model: trained on synthetic sections, for trying the software, not for real slides"
        )
    found = run(
        inputs,
        out=out,
        model=model,
        mpp=mpp,
        options=Options(
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
        ),
        device=device,
        batch=batch,
        shard=shard,
        pseudonymise=pseudonymise,
        cluster=cluster,
        workers=workers,
        progress=console.progress,
    )
    document = found.as_dict()
    console.result(document, lambda to: _show(document, to))
    for note in found.notes:
        console.note(f"note: {note}")
    for slide in found.failed:
        console.note(f"error: {slide.slide_id}: {slide.reason}")
    console.note(f"written: {out}")
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _show(document: dict[str, Any], out: RichConsole) -> None:
    slides = document["slides"]
    table = Table(title=f"{count(len(slides), 'slide')}, for research only", title_justify="left")
    for column in ("slide", "status", "tissue mm²", "cancers", "warnings"):
        table.add_column(column, justify="right" if column.endswith("mm²") else "left")
    for slide in slides:
        area = slide["tissue_area_mm2"]
        cells = (slide["slide_id"], slide["status"], "–" if area is None else f"{area:.2f}")
        table.add_row(*map(escape, (*cells, ", ".join(slide["cancers"]) or "–", slide["warnings"])))
    out.print(table)
