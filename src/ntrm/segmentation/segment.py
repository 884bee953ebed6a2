"""Many slides, one after the other: what fails is told, the others go on, and the same command goes on later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.errors import RefusedError
from ntrm.models.base import SegmentationModel
from ntrm.progress import SILENT, Progress
from ntrm.resolution import Resolution
from ntrm.segmentation.identity import Options
from ntrm.segmentation.segmenter import Outcome, Segmenter
from ntrm.slide.inputs import SlideInput, find_inputs, shard_of
from ntrm.slide.naming import slide_ids


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
    folder = Path(out)
    stated = Resolution.square(mpp) if isinstance(mpp, int | float) else mpp
    several = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    slides = find_inputs(several, stated, out=folder)
    ids = slide_ids(slides, key_file=None if pseudonymise is None else Path(pseudonymise), out=folder)
    named = {slide.path: name for slide, name in zip(slides, ids, strict=True)}
    mine = shard_of(slides, shard)
    segmenter = Segmenter(model, folder, options, device=device, batch=batch)
    covariates = _covariates(slides)
    segmenter.claim(covariates)
    outcomes = [
        segmenter.segment(slide, named[slide.path], progress) for slide in progress.track(mine, len(mine), "slides")
    ]
    segmenter.tabulate(covariates)
    return Segmented(folder, tuple(outcomes), segmenter.identity.as_dict())


def _covariates(slides: Iterable[SlideInput]) -> list[str]:
    return [*dict.fromkeys(name for slide in slides for name in slide.covariates)]
