"""``ntrm annotate``: slides without a model, for a person to name their tissues from nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ntrm.cli.console import Console, command
from ntrm.cli.segment import show_slides
from ntrm.cli.serve import INSTALL, has_service, start_service


@command
def annotate(
    console: Console,
    inputs: Annotated[list[str], typer.Argument()],
    out: Path,
    classes: str | None = None,
    mask_mpp: float | None = None,
    mpp: float | None = None,
    pseudonymise: Path | None = None,
    report: bool = True,
    serve: bool | None = None,
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8765,
) -> int:
    """Open slides without a model, to name their tissues from nothing. For research, not for diagnosis.

    Finds the tissue of each slide, calls all of it unnamed, and writes what `ntrm segment` writes. In a terminal, the
    page starts at the end: click or brush there, or use `ntrm correct`. Run it again for further slides: finished ones
    are kept.

    Example: ntrm annotate slides/ --out annotated --classes tumour,stroma,gland

    Args:
        inputs (SLIDES…): Slides, folders, or a CSV: slide[,slide_id,mpp,covariates…]; also as s3://…
        out (OUT): Folder of the results; unfinished ones are continued.
        classes (A,B,C|FILE): Tissues to name, or a CSV: index,name,r,g,b; default those of OUT.
        mask_mpp (X): µm/px of the masks, 2 to 8; default 6.7, and no finer than a slide is.
        mpp: µm/px of the slides, instead of the value in their files.
        pseudonymise (KEY): Random names in all outputs; the file KEY translates them back.
        report: Whether to write report.html.
        serve: Start the page at the end; default in a terminal.
        port (P): Port of the page; 0 takes a free one.

    """
    from ntrm.results.classes import given_classes
    from ntrm.segment.annotate import Blank
    from ntrm.segment.batch import segment_slides

    blank = Blank(None if classes is None else given_classes(classes), mask_mpp)
    given = console.given("inputs", "classes", "mask_mpp", "serve", "port")
    result = segment_slides(inputs, model=blank, progress=console.progress, **given)
    show_slides(result, console)
    console.note(f"written: {out}, annotated from nothing: no model; tissue is unnamed until a person names it")
    if len(result.failed) == len(result.slides):
        return result.exit_code
    roots = sorted({each if each.is_dir() else each.parent for each in map(Path, inputs) if each.exists()})
    if serve is None:
        serve = sys.stdin.isatty() and sys.stdout.isatty() and not console.json
    if not (serve and has_service()):
        how = f"{INSTALL}, then " if serve else ""
        console.note(f"the page:  {how}ntrm serve {out} {' '.join(f'--root {root}' for root in roots)}")
        return result.exit_code
    from ntrm.service.core.settings import ServiceSettings

    return start_service(ServiceSettings(out=out, roots=tuple(roots), port=port), console) or result.exit_code
