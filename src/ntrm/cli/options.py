"""Options that several commands share, spelled once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

DataFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Dataset folder (layout queensland or plain).")]
OutFolder = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to write to.")]
Level = Annotated[
    str | None,
    typer.Option("--resolution", metavar="10x", help="Resolution level; needed only where several are present."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, help="Processes to work in.")]


def default_jobs() -> int:
    """As many processes as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


JOBS = default_jobs()
"""Default of ``--jobs``."""
