"""A loaded network that segments one slide after the other; an error is the outcome of one slide."""

from __future__ import annotations

import gc
import logging
import re
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from ntrm.core.errors import NtrmError, RefusedError
from ntrm.core.io import holding
from ntrm.core.progress import SILENT, Progress
from ntrm.core.wording import NO_MODEL, short_repr
from ntrm.familiarity.loaded_model import open_subject
from ntrm.familiarity.reference import Reference
from ntrm.models.base import SegmentationModel
from ntrm.models.predictor import Predictor
from ntrm.results.familiarity import NONE, NOT_ASSESSED
from ntrm.results.manifest import check_out, check_results_folder
from ntrm.results.paths import RUN_LOCK
from ntrm.results.slide_state import BusyError, MadeOtherwiseError, SlideState, remember_failure
from ntrm.segment.annotate import Blank
from ntrm.segment.file_transfer import FileTransfer
from ntrm.segment.options import Options, run_of
from ntrm.segment.slide import OpenSlide, PredictedSlide, SlideTask, predict_slide, write_slide
from ntrm.slides.inputs import SlideInput
from ntrm.slides.isolated import open_isolated
from ntrm.slides.slide_ids import without_name

LONGEST = 600  # Characters of a reason: some libraries write pages
EXPECTED = (NtrmError, OSError, MemoryError)
"""What a slide, a disk or a full memory may cause; everything else is a bug, ours or a library's."""

_PACKAGE = Path(__file__).parents[1]
_QUOTED = re.compile(r"(?<!\w)(['\"`]).*?\1(?!\w)")
_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[/\\][^\s/\\'\":;,]+){2,}")
_log = logging.getLogger(__name__)
Result = TypeVar("Result")


def reason_of(error: Exception, slide: SlideInput, slide_id: str) -> str:
    """What went wrong, with the id wherever the slide's name would stand."""
    kind = type(error).__name__
    if isinstance(error, NtrmError):
        got = [] if error.got is None else [f"got {error.got}"]
        expected = [] if error.expected is None else [f"expected {error.expected}"]
        sentences = [error.what, *got, *expected, *([error.hint] if error.hint else [])]
        text = "; ".join(" ".join(sentence.split()) for sentence in sentences)
        # A library's message stands there as it is.
        text = without_name(text, slide, slide_id, ours=not isinstance(error.got, BaseException))
    elif isinstance(error, MemoryError):
        text = f"{kind}: the memory is full; close other programs, or take a machine with more"
    else:
        # Of the system's errors what happened, without the file to which it happened.
        message = str((isinstance(error, OSError) and error.strerror) or error) or "no message"
        # The slide's own name first: what is left of a path with spaces could still hold a part of it.
        message = without_name(" ".join(message.split()), slide, slide_id)
        # What these quote are names of the program, which a developer needs; others may quote what a file holds.
        if not isinstance(error, AttributeError | NameError | ImportError):
            message = _QUOTED.sub("…", message)
        text = f"{kind}: {_PATH.sub('…', message)}"
        if not isinstance(error, EXPECTED):
            text = f"unexpected {text}{_where(error)}"
    if kind == "OutOfMemoryError":
        text += "; the device's memory is full: end what else uses it"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _where(error: Exception) -> str:
    """The last line of our code in the traceback: what a developer asks for first."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    if not frames:
        return ""
    return f" (at {Path(frames[-1].filename).relative_to(_PACKAGE).as_posix()}:{frames[-1].lineno})"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one slide."""

    slide_id: str
    status: str  # ``done``, ``kept`` (it was there already), ``failed`` or ``busy`` (another process works on it)
    reason: str = ""
    refused: bool = False
    unexpected: bool = False  # Whether a bug, a library's error or a lost process made it fail, not the slide itself
    row: dict[str, Any] = field(default_factory=dict)  # Of the table ``slides``, where there are results

    __repr__ = short_repr

    @property
    def cancers(self) -> list[str] | None:
        """Names of the cancers that were found; None where none was and some were not assessed, or the slide failed."""
        cells = {key.removeprefix("cancer_"): value for key, value in self.row.items() if key.startswith("cancer_")}
        found = [name for name, value in cells.items() if value is True]
        return found if found or (self.row and NOT_ASSESSED not in cells.values()) else None

    @property
    def cancers_looked_for(self) -> list[str] | None:
        """Those among the classes, so empty for a model that has none; None where there are no results."""
        cell = self.row.get("cancers_looked_for")
        return None if cell is None else cell.removeprefix(NONE).split()

    @property
    def familiarity(self) -> str | None:
        """The verdict; None where there are no results."""
        return self.row.get("familiarity")

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON document."""
        return {
            "slide_id": self.slide_id,
            "status": self.status,
            "reason": self.reason,
            "tissue_area_mm2": self.row.get("tissue_area_mm2"),
            "pieces": self.row.get("pieces"),
            "cancers": self.cancers,
            "cancers_looked_for": self.cancers_looked_for,
            "familiarity": self.familiarity,
            "familiarity_p": self.row.get("familiarity_p"),
            "warnings": self.row.get("warnings", ""),
        }


class Segmenter:
    """Holds the network, if there is one; segments one slide after the other into ``out``."""

    def __init__(
        self,
        model: str | Path | SegmentationModel | Blank,
        out: Path,
        options: Options | None = None,
        *,
        device: str | torch.device = "auto",
        batch: int = 16,
        open_slide: OpenSlide = open_isolated,
        transfer: FileTransfer | None = None,
    ) -> None:
        self.out, self.options = out, options or Options()
        self.open_slide, self.transfer = open_slide, transfer or FileTransfer()
        self.blank = model if isinstance(model, Blank) else None
        self.reference: Reference | None = None  # What the model's training sections are like; None where nobody says
        if isinstance(model, Blank):
            self.run = model.run(out, self.options)
            return
        subject = open_subject(model)
        subject.config.check_mpp()
        self._predictor, self.reference = subject.predictor(device, batch=batch), subject.reference
        self.run = run_of(subject, self._predictor, self.options)
        """Model, program and options."""

    @property
    def predictor(self) -> Predictor:
        """The network; refused where there is none."""
        if self.blank:
            raise RefusedError(f"{self.out} was {NO_MODEL}")
        return self._predictor

    def check_folder(self, covariates: Sequence[str] = ()) -> None:
        """Make ``out`` a folder of this model's results; refuses one that holds others."""

        def claim_folder() -> None:
            check_out(self.out)  # before anything is written to a folder of something else
            with holding(self.out / RUN_LOCK, wait=True):
                check_results_folder(self.out, self.run, covariates)
                if self.blank:
                    self.blank.keep_classes(self.out)

        results = self.transfer.results
        claim_folder() if results is None else results.check_folder(claim_folder)

    def segment(self, task: SlideTask, progress: Progress = SILENT) -> Outcome:
        """Do what is missing of one slide."""
        return self.write(self.predict(task, progress))

    def predict(self, task: SlideTask, progress: Progress = SILENT) -> PredictedSlide | Outcome:
        """Do what needs the network; what it gives must be written, or is the outcome already."""
        found = self._guarded(lambda: predict_slide(task, self, progress), task)
        return Outcome(task.slide_id, "kept", row=found.row) if isinstance(found, SlideState) else found

    def write(self, found: PredictedSlide | Outcome) -> Outcome:
        """Write the files of a predicted slide, in any thread."""
        if isinstance(found, Outcome):
            return found
        written = self._guarded(lambda: write_slide(found, self), found.task)
        return written if isinstance(written, Outcome) else Outcome(found.task.slide_id, "done", row=written.row)

    def _guarded(self, work: Callable[[], Result], task: SlideTask) -> Result | Outcome:
        """The result of the work; an error is the slide's outcome."""
        slide, slide_id = task.slide, task.slide_id
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - a bug that one slide brings out must not cost all the others
            reason, unexpected = reason_of(error, slide, slide_id), not isinstance(error, EXPECTED)
            if isinstance(error, BusyError):
                return Outcome(slide_id, "busy", reason)
            if unexpected:
                _log.debug("%s", without_name(traceback.format_exc(), slide, slide_id))
            failure = Outcome(
                slide_id, "failed", reason, refused=isinstance(error, RefusedError), unexpected=unexpected
            )
            if isinstance(error, MadeOtherwiseError):
                # Told, but not recorded: the tables keep what is there.
                return failure
        # After the block, when nothing holds the tensors of the failed slide any more.
        gc.collect()
        if torch.cuda.is_available():
            # A broken device fails here, too; the next slide will report it.
            with suppress(RuntimeError):
                torch.cuda.empty_cache()
        remember_failure(self.out / slide_id, slide_id, failure.reason, slide.covariates)
        if self.transfer.results is not None:
            self.transfer.results.deliver_failure(slide_id)
        return failure
