"""``ntrm correct``: name wrong regions of segmented slides, and carry the names on."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ntrm.cli import shared_options as options
from ntrm.cli.console import Console, command, make_table
from ntrm.cli.data import not_as_drawn
from ntrm.core.errors import NtrmError, UsageError
from ntrm.core.wording import counted
from ntrm.results.paths import CORRECTED

if TYPE_CHECKING:
    from ntrm.correct.folder import FolderCorrections

CLICK, WORDS = "--click", 4
TOLD = ["number", "action", "tissue", "regions", "area_mm2", "spread", "reach", "of", "origin", "by", "when", "version"]
"""Of each step, without its pixels."""


class CorrectCommand(TyperCommand):
    """Takes four words after ``--click``, as often as it is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words of each click made one."""
        for k in reversed([k for k, word in enumerate(args, start=1) if word == CLICK]):  # from the end: places stay
            words = [*takewhile(lambda word: not word.startswith("--"), args[k : k + WORDS])]
            args = [*args[:k], json.dumps(words), *args[k + len(words) :]]
        return super().parse_args(ctx, args)


@command
def correct(
    console: Console,
    out: options.Results,
    click: Annotated[list[str] | None, typer.Option(CLICK)] = None,
    spread: bool = True,
    how_far: Annotated[float, typer.Option(min=0.25, max=4.0)] = 1.0,
    whole_region: bool = False,
    all_slides: bool = False,
    drawn: Annotated[list[Path] | None, typer.Option("--from", exists=True)] = None,
    slide: str | None = None,
    undo: list[str] | None = None,
    redo: list[str] | None = None,
    listed: Annotated[bool, typer.Option("--list")] = False,
    preview: bool = False,
    slides: list[Path] | None = None,
    by: str | None = None,
    device: options.Device = "auto",
) -> int:
    """Correct segmented slides: name the tissue of wrong regions. For research, not for diagnosis.

    What looks alike follows: it gets the same name. The network's result is kept. The steps are written to
    OUT/SLIDE/corrections.jsonl, and the corrected mask, polygons, graph, tables and report to OUT/SLIDE/corrected. To
    correct in the browser, use ntrm serve.

    Example: ntrm correct results --click slide-1 410 230 BCC

    Args:
        click (SLIDE X Y TISSUE): Name what is around a pixel of mask.ome.tif; may be repeated.
        spread: Whether to carry the name over to what looks like it.
        how_far (R): How far the name is carried: 0.25 (little) to 4 (far).
        whole_region: Name the whole connected region around the pixel.
        all_slides: Apply what all clicks so far say to all other slides of OUT, too.
        drawn (FILE.geojson): Name areas that were drawn in QuPath; may be repeated.
        slide (SLIDE): Slide that FILE belongs to, if its name differs; or slide to --list.
        undo (SLIDE): Undo the last step of this slide; may be repeated.
        redo (SLIDE): Redo the step of this slide that was undone last; may be repeated.
        listed: Show all steps so far.
        preview: Show what would change, but write nothing.
        slides (DIR): Folder of the slides, if moved since; read once each, for their texture.
        by (INITIALS): Your initials, for the log.

    """
    from ntrm.correct.folder import FolderCorrections

    asked = {CLICK: click, "--from": drawn, "--undo": undo, "--redo": redo, "--list": listed or None}
    chosen = [name for name, value in asked.items() if value]
    if len(chosen) != 1:
        raise UsageError(
            "what to do is not clear", got=" ".join(chosen) or "nothing", expected=f"one of {', '.join(asked)}"
        )
    if slide and chosen[0] not in ("--from", "--list"):
        raise UsageError("--slide goes with --from or --list", got=f"--slide {slide} {chosen[0]}")
    clicks = [_click(text) for text in click or ()]
    corrections = FolderCorrections(out, slides or (), device, by, preview, console.progress)
    if listed:
        return _list(corrections, slide, console)
    try:
        for words in clicks:
            how: dict[str, Any] = {"spread": spread, "reach": how_far, "whole_regions": whole_region}
            corrections.click(*words, all_slides=all_slides, **how)
        for path in drawn or ():
            corrections.draw(path, slide)
        for name in undo or redo or ():
            corrections.go("undo" if undo else "redo", name)
    except (NtrmError, OSError, KeyboardInterrupt):
        if corrections.changes and not preview:
            console.done["changes"] = corrections.changes
            console.note(f"written before this error: {counted(len(corrections.changes), 'step')}")
        raise
    finally:
        # Steps that were taken before an error stay taken.
        corrections.finish()
    return _show(corrections, console)


def _click(text: str) -> tuple[str, int, int, str]:
    try:
        slide_id, x, y, tissue = json.loads(text)
        return slide_id, int(x), int(y), tissue
    except ValueError as error:
        expected = f"{CLICK} SLIDE X Y TISSUE, such as {CLICK} slide-1 410 230 BCC"
        raise UsageError("unreadable click", got=text, expected=expected) from error


def _show(corrections: FolderCorrections, console: Console) -> int:
    preview, changes = corrections.preview, corrections.changes
    document = {
        "out": str(corrections.out),
        "preview": preview,
        "changes": changes,
        "areas": corrections.areas,
        "failures": [{"slide_id": name, "reason": reason} for name, reason in corrections.failures.items()],
    }
    rows = []
    for change in changes:
        followed = (f"{name} {area:.3f} mm²" for name, area in change["followed_mm2"].items())
        rows.append((change["slide_id"], str(change["step"]), *_cells(change), ", ".join(followed) or "–"))
    title = f"{counted(len(changes), 'step')}{', a preview' if preview else ''}"
    columns = ("slide", "step", "action", "tissue", "parts", "mm²", "of which followed")
    console.result(document, make_table(title, columns, rows, right=("step", "parts", "mm²")))
    for name, reason in corrections.failures.items():
        console.failed(reason, name)
    for counts in corrections.areas:
        if told := not_as_drawn(counts):
            console.note(f"{counts['slide_id']}: {told}")
    if preview:
        console.note("a preview: nothing was written")
    else:
        for name in dict.fromkeys(change["slide_id"] for change in changes):
            folder = corrections.out / name / CORRECTED
            console.note(f"written: {folder}" if folder.is_dir() else f"{name} has no corrections left")
    return int(bool(corrections.failures))


def _list(corrections: FolderCorrections, slide: str | None, console: Console) -> int:
    """The logs as one table."""
    steps, rows = [], []
    for slide_id in [slide] if slide else corrections.slide_ids:
        log = corrections.slide(slide_id).log
        active = {step.number for step in log.active}
        for step in log.steps:
            told = {key: getattr(step, key) for key in TOLD}
            steps.append({"slide_id": slide_id, "active": step.number in active, **told})
            undone = "undone" if step.of is None and step.number not in active else ""
            cells = (*_cells(told), undone, step.origin, step.by or "", step.when)
            rows.append((slide_id, str(step.number), *cells))
    columns = ("slide", "step", "action", "tissue", "parts", "mm²", "", "from", "by", "when")
    table = make_table(counted(len(steps), "step"), columns, rows, right=("step", "parts", "mm²"))
    console.result({"out": str(corrections.out), "steps": steps}, table)
    return 0


def _cells(step: dict[str, Any]) -> tuple[str, ...]:
    """Action, tissue, parts and mm²."""
    is_change = step["of"] is None
    action = step["action"] if is_change else f"{step['action']} step {step['of']}"
    return action, step["tissue"] or "", str(step["regions"] or ""), f"{step['area_mm2']:.3f}" if is_change else ""
