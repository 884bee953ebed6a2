"""``ntrm segment`` and ``ntrm report``: slides and images to masks, polygons, relations and tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command, make_table
from ntrm.core.wording import counted
from ntrm.results.familiarity import cancers_in_words

if TYPE_CHECKING:
    from ntrm.segment.batch import Segmented


@command
def segment(
    console: Console,
    inputs: Annotated[list[str], typer.Argument()],
    out: str,
    model: options.Model = "bundled",
    mpp: float | None = None,
    shard: str | None = None,
    pseudonymise: Path | None = None,
    tissue_mask: bool = True,
    strict: bool = False,
    overlap: options.Overlap = None,
    simplify_um: float | None = None,
    gzip: bool = False,
    zarr: bool = False,
    maps: bool = False,
    probabilities: bool = False,
    min_area_um2: Annotated[float, typer.Option("--min-area")] = 0.0,
    stain_norm: str = "none",
    report: bool = True,
    device: options.Device = "auto",
    batch: options.Batch = 16,
    cluster: str | None = None,
    workers: options.CountOrNone = None,
    cache: Path | None = None,
) -> int:
    """Segment whole slides and section images. For research, not for diagnosis.

    Writes slides.csv, pieces.csv, regions.csv, interfaces.csv and a folder for each slide to OUT. If a run was
    interrupted, run the same command again to continue. A slide that fails does not stop the others: slides.csv says
    why it failed.

    Example: ntrm segment slides/ --out results

    Args:
        inputs (INPUT…): Slides, folders, or a CSV: slide[,slide_id,mpp,covariates…]; also as s3://…
        out (OUT): Folder of the results, or s3://…; unfinished results are continued.
        mpp: µm/px of the slides, instead of the value in their files.
        shard (I/N): Only every N-th slide, starting with the I-th.
        pseudonymise (KEY): Random names in all outputs; the file KEY translates them back.
        tissue_mask: Whether to skip empty glass.
        strict: Refuse slides of poor quality or unlike the training data, instead of warning.
        simplify_um (X): Simplify polygons by at most X µm; default: exact outlines.
        gzip: Compress regions.geojson.
        zarr: Also write labels.zarr (OME-NGFF).
        maps: Also write confidence.ome.tif and, from the coarse head, coarse.ome.tif.
        probabilities: Also write probabilities.zarr (OME-NGFF), for every class.
        min_area_um2 (UM2): Relabel regions smaller than this (µm²) as their neighbours; 0: none.
        stain_norm (HOW): Stain normalisation to the training sections: macenko, strength or none. May help on unknown
            stains.
        report: Whether to write report.html.
        cluster (ray): Distribute the slides over workers of a Ray cluster.
        workers (N): Number of workers; default one per GPU.
        cache (DIR): Folder for slides from s3://…; default NTRM_CACHE.

    """
    from ntrm.models.folders import BUNDLED
    from ntrm.segment.batch import segment_slides as run

    if model == BUNDLED:
        console.note(
            "using the bundled model: trained on synthetic sections, for trying the software, not for real slides"
        )
    result = run(**console.given(), progress=console.progress)
    show_slides(result, console)
    console.note(f"written: {out}")
    return result.exit_code


def show_slides(result: Segmented, console: Console) -> None:
    """What became of each slide."""
    document = result.as_dict()
    console.result(document, _slides(document))
    for note in result.notes:
        console.note(f"note: {note}")
    for slide in result.failed:
        console.failed(slide.reason, slide.slide_id)


def _slides(document: dict[str, Any]) -> Table:
    rows = []
    for slide in document["slides"]:
        area = cancers = "–"
        if slide["tissue_area_mm2"] is not None:
            area = f"{slide['tissue_area_mm2']:.2f}"
            cancers = cancers_in_words(slide["cancers"], slide["cancers_looked_for"])
        rows.append((slide["slide_id"], slide["status"], area, cancers, slide["warnings"]))
    columns = ("slide", "status", "tissue mm²", "cancers", "warnings")
    return make_table(f"{counted(len(rows), 'slide')}, for research only", columns, rows, right=["tissue mm²"])


@command
def report(console: Console, out: options.Results, jobs: options.Jobs = options.JOBS) -> int:
    """Write report.html of every slide and index.html of all slides again. For research, not for diagnosis.

    Only files in OUT are read: neither slides nor a model are needed.

    Example: ntrm report results
    """
    from ntrm.report.slide_overview import remake_reports

    result = remake_reports(out, jobs=jobs, progress=console.progress)
    console.result(result.as_dict(), f"{counted(len(result.reported), 'report')} and {result.overview}")
    for failure in result.failures:
        console.failed(failure["reason"], failure["slide_id"])
    return int(bool(result.failures))
