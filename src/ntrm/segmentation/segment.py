"""Many slides, one after the other: what fails is told, the others go on, and the same command goes on later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ntrm.errors import NtrmError, RefusedError
from ntrm.evaluation.subject import open_subject
from ntrm.models.base import SegmentationModel
from ntrm.predictor import Predictor
from ntrm.progress import SILENT, Progress
from ntrm.reproduction.locks import holding
from ntrm.resolution import Resolution
from ntrm.segmentation.identity import Identity, Options, claim
from ntrm.segmentation.memory import BusyError, remember_failure, remembered
from ntrm.segmentation.one_slide import Work, segment_slide
from ntrm.slide.inputs import SlideInput, find_inputs, shard_of
from ntrm.slide.naming import slide_ids, without_name
from ntrm.slide.tables import write_tables

LOCK = ".lock"


@dataclass(frozen=True)
class Outcome:
    """What became of one slide."""

    slide_id: str
    status: str
    """``done``, ``kept`` (it was there already), ``failed`` or ``busy`` (another process works on it)."""
    reason: str = ""
    refused: bool = False
    row: dict[str, Any] = field(default_factory=dict)
    """Of the table ``slides``, where there are results."""

    @property
    def cancers(self) -> list[str]:
        """Names of the cancers that were found."""
        return [key.removeprefix("cancer_") for key, value in self.row.items() if value is True and "cancer_" in key]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "slide_id": self.slide_id,
            "status": self.status,
            "reason": self.reason,
            "tissue_area_mm2": self.row.get("tissue_area_mm2"),
            "pieces": self.row.get("pieces"),
            "cancers": self.cancers,
            "warnings": self.row.get("warnings", ""),
        }


@dataclass(frozen=True)
class Segmented:
    """What became of all."""

    out: Path
    slides: tuple[Outcome, ...]
    identity: dict[str, Any]

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Slides without results."""
        return tuple(slide for slide in self.slides if slide.status in ("failed", "busy"))

    @property
    def exit_code(self) -> int:
        """0 if all is there; 3 if every slide was refused; else 1."""
        if not self.failed:
            return 0
        return RefusedError.exit_code if all(slide.refused for slide in self.slides) else 1

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"out": str(self.out), "slides": [slide.as_dict() for slide in self.slides], **self.identity}


def segment(
    inputs: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    model: str | Path | SegmentationModel = "bundled",
    mpp: float | Resolution | None = None,
    options: Options | None = None,
    device: str = "auto",
    batch: int = 16,
    shard: str | None = None,
    pseudonymise: str | Path | None = None,
    progress: Progress = SILENT,
) -> Segmented:
    """Segment slides and images into masks, polygons, relations and tables under ``out``.

    Args:
        inputs: a slide, a folder, a CSV (slide, optionally slide_id, mpp, mpp_y, covariates), or several of these.
        out: folder of the results; where it holds some of the same model and options, what is missing is added.
        model: folder, hub id or ``bundled``, or a network in memory.
        mpp: µm/px of the slides, instead of what their files tell; a row of a CSV may state its own.
        options: what changes results.
        device: ``auto`` takes cuda, then mps, then cpu.
        batch: windows predicted at a time.
        shard: ``I/N``: only every N-th slide from the I-th on.
        pseudonymise: a key file outside ``out``; outputs then bear random names that only this file explains.
        progress: one bar for slides, one within.

    """
    folder, options = Path(out), options or Options()
    stated = Resolution.square(mpp) if isinstance(mpp, int | float) else mpp
    several = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    slides = find_inputs(several, stated, out=folder)
    ids = slide_ids(slides, key_file=None if pseudonymise is None else Path(pseudonymise), out=folder)
    named = {slide.path: name for slide, name in zip(slides, ids, strict=True)}
    mine = shard_of(slides, shard)
    work = _prepare(model, folder, options, device=device, batch=batch)
    with holding(folder / LOCK, wait=True):
        claim(folder, work.identity, _covariates(slides))
    outcomes = [
        _attempt(slide, named[slide.path], work, progress) for slide in progress.track(mine, len(mine), "slides")
    ]
    with holding(folder / LOCK, wait=True):
        _tabulate(folder, work.identity, claim(folder, work.identity, _covariates(slides)))
    return Segmented(folder, tuple(outcomes), work.identity.as_dict())


def _prepare(model: str | Path | SegmentationModel, out: Path, options: Options, *, device: str, batch: int) -> Work:
    subject = open_subject(model)
    if subject.config.mpp is None:
        raise RefusedError(
            "the network does not say for which µm/px it is",
            got="none",
            mend="train it, or state it with network.describe(mpp=…) before saving",
        )
    predictor = Predictor(subject.network, device, batch=batch)
    return Work(out, predictor, options, Identity.of(subject, predictor, options))


def _attempt(slide: SlideInput, slide_id: str, work: Work, progress: Progress) -> Outcome:
    """One slide; its error is its own."""
    try:
        status, row = segment_slide(slide, slide_id, work, progress)
        return Outcome(slide_id, status, row=row)
    except BusyError as error:
        return Outcome(slide_id, "busy", _in_words(error))
    except (NtrmError, OSError, MemoryError) as error:
        reason = without_name(_in_words(error), slide, slide_id)
        refused = isinstance(error, RefusedError)
        failure = Outcome(slide_id, "failed", reason, refused=refused)
    remember_failure(work.out / slide_id, slide_id, reason, slide.covariates)
    return failure


def _in_words(error: Exception) -> str:
    """An error in one line: what, got, expected and how to mend it."""
    if not isinstance(error, NtrmError):
        return f"{type(error).__name__}: {error}"
    got = [] if error.got is None else [f"got {error.got}"]
    expected = [] if error.expected is None else [f"expected {error.expected}"]
    parts = [error.what, *got, *expected, *([error.mend] if error.mend else [])]
    return "; ".join(" ".join(part.split()) for part in parts)


def _covariates(slides: Iterable[SlideInput]) -> list[str]:
    return [*dict.fromkeys(name for slide in slides for name in slide.covariates)]


def _tabulate(out: Path, identity: Identity, covariates: Sequence[str]) -> None:
    """The tables of every slide in the folder, also of those that other processes segmented."""
    folders = sorted(each for each in out.iterdir() if each.is_dir() and not each.name.startswith("."))
    found = [document for folder in folders if (document := remembered(folder)) is not None]
    foot = identity.cells()
    documents = [
        {name: [{**row, **document["covariates"], **foot} for row in rows] for name, rows in document["tables"].items()}
        for document in found
    ]
    write_tables(out, documents, covariates)
