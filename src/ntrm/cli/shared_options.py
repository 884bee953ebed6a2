"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntrm.core.errors import MOST_SEED
from ntrm.core.threads import cores_given

Count = Annotated[int, typer.Option(min=1)]
Share = Annotated[float, typer.Option(min=0, max=1)]
CountOrNone = Annotated[int | None, typer.Option(min=1)]
DATASET = "Dataset folder (layout queensland or plain)."
Data = Annotated[Path, typer.Option("--data", metavar="DIR", help=DATASET)]
DataFolder = Annotated[Path, typer.Argument(metavar="DIR", help=DATASET)]
Results = Annotated[Path, typer.Argument(metavar="OUT", help="Folder that `ntrm segment` wrote to.")]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write to.")]
Model = Annotated[str, typer.Option("--model", metavar="M", help="Model folder, bundled, or a hub id (downloaded).")]
Level = Annotated[str | None, typer.Option(metavar="10x", help="Resolution level; needed only if there are several.")]
Splits = Annotated[Path | None, typer.Option(metavar="FILE", help="Table of splits, as written by `ntrm data split`.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a field of the recipe; may be repeated.")
]
Overlap = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Overlap of windows in pixels; default a quarter of a window.")
]
Pictures = Annotated[bool, typer.Option(help="Whether to draw pictures.")]
Boundaries = Annotated[bool, typer.Option(help="Whether to measure boundary distances in evaluations.")]
Device = Annotated[str, typer.Option(metavar="D", help="auto, cpu, cuda, cuda:N or mps.")]
Batch = Annotated[int, typer.Option(min=1, help="Windows (tiles) predicted at a time.")]
Seed = Annotated[int, typer.Option(min=0, max=MOST_SEED, help="Random seed.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Number of parallel processes.")]
Reference = Annotated[
    bool,
    typer.Option(
        help="Store a reference of the training sections with the model, to detect slides that are unlike them."
    ),
]
JOBS = cores_given()  # Default of ``--jobs``: the cores that this process may use
