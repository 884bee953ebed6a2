"""The process that does jobs: takes them from the database one by one, and holds the network where they need it.

The first line of its input is its settings and the kinds of its jobs, and the end of the input ends it, so that it
never outlives the service. It may be killed at any moment: the job then begins again.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.mpp import Resolution
from ntrm.core.progress import Progress
from ntrm.results.manifest import read_run
from ntrm.results.paths import INDEX, RUN, SUMMARY, table_file
from ntrm.service.core.problems import ProblemError, document_of
from ntrm.service.core.settings import DATABASE, ServiceSettings
from ntrm.service.jobs.database import JobStore
from ntrm.service.jobs.rows import GIVEN_UP, NETWORK, Job, Kind, SlideRow, Status
from ntrm.slides.inputs import SlideInput, source_fingerprint

if TYPE_CHECKING:
    from ntrm.segment.segmenter import Segmenter

T = TypeVar("T")
BEAT_SECONDS = 0.5  # Between two reports of the progress
POLL_SECONDS = 0.5  # Between two looks for a job
BUSY_SECONDS = 5.0  # Before a slide that another process works on is tried again
TABLES_SECONDS = 10.0  # After the last change of a slide's results, before the tables of all slides are written
READ, SEGMENTED = 0.03, 0.8  # Progress at the end of these stages; the rest is measuring and writing


class JobEnd(BaseException):
    """Ends a job from within; not an ``Exception``, which would be the slide's own error."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


class Worker(Progress):
    """Does one job after another; it is its own report of their progress."""

    def __init__(self, settings: ServiceSettings, store: JobStore, name: str, segmenter: Segmenter | None) -> None:
        self._settings, self._store, self._name, self._segmenter = settings, store, name, segmenter

    def work(self, kinds: Sequence[Kind]) -> None:
        """Do jobs of these kinds; without the network, until there are none."""
        while (job := self._store.take(self._name, kinds)) is not None or self._segmenter is not None:
            if job is not None:
                self.run(job)
            else:
                time.sleep(POLL_SECONDS)

    def run(self, job: Job) -> None:
        """Do a job, whatever comes of it."""
        self._job, self._told, self._furthest = job, 0.0, 0.0
        work: dict[Kind, Callable[[], float | None]]
        work = {"segment": self.segment, "prepare": self.prepare, "correct": self.correct, "tables": self.tables}
        try:
            self._store.end(job, "done", at=work[job.kind]())
        except JobEnd as end:
            self._store.end(job, end.status)
        except NtrmError as error:
            self._store.end(job, "failed", error)
        except (OSError, MemoryError) as error:
            # A full disk or memory, perhaps: others have to be looked after all the same.
            reason = getattr(error, "strerror", None) or type(error).__name__
            self._store.end(job, "failed", DataError(GIVEN_UP[job.kind], got=reason))

    def track(self, items: Iterable[T], total: int, label: str) -> Iterator[T]:
        """Yield ``items``, the rows or windows that the network sees; raises ``JobEnd`` where the job has to end."""
        is_slide = self._job.kind == "segment"
        first, last, stage = (READ, SEGMENTED, "segmenting") if is_slide else (0.0, 1.0, "making")
        self._report(first, stage, at_once=True)
        for done, item in enumerate(items, start=1):
            yield item
            self._report(first + (last - first) * done / max(total, 1), stage)
        if is_slide:
            self._report(SEGMENTED, "measuring", at_once=True)

    def _report(self, progress: float, stage: str, *, at_once: bool = False) -> None:
        """At most a few times a second; a second pass over the slide does not start at zero."""
        self._furthest = max(self._furthest, min(progress, 1.0))
        if at_once or time.monotonic() - self._told >= BEAT_SECONDS:
            self._told = time.monotonic()
            if not self._store.beat(self._job, self._furthest, stage):
                raise JobEnd("cancelled")

    def _slide(self) -> tuple[SlideRow, SlideInput, Segmenter]:
        """What a job with the network is about, and the network."""
        slide = self._store.get(self._job.slide)
        if slide.source is None or self._segmenter is None:
            raise DataError("the slide's file is not known", hint="upload it again")
        mpp = None if slide.mpp is None else Resolution(*slide.mpp)
        source = SlideInput(slide.source, slide.slide_id, slide.slide_id, mpp, alone=slide.alone)
        return slide, source, self._segmenter

    def segment(self) -> float:
        """Segment a slide; returns when its results were written."""
        from ntrm.segment.slide import SlideTask

        slide, source, segmenter = self._slide()
        # It may be another file by now than when it was queued.
        fingerprint = source_fingerprint(source.path)
        outcome = segmenter.segment(SlideTask(source, slide.slide_id), self)
        if outcome.status == "busy":
            # With a command, or with a process that is just being killed.
            self._store.ask(slide.id, "segment", BUSY_SECONDS)
            raise JobEnd("queued")
        if outcome.status not in ("done", "kept"):
            code = "refused" if outcome.refused else "unreadable"
            raise ProblemError(422, code, GIVEN_UP["segment"], got=outcome.reason)
        self._store.change(slide.id, fingerprint=fingerprint)
        self._store.ask("", "tables", TABLES_SECONDS)
        return (segmenter.out / slide.slide_id / SUMMARY).stat().st_mtime

    def prepare(self) -> None:
        """Read the texture of a slide that is done."""
        from ntrm.core.devices import choose_device
        from ntrm.correct.engine import ENGINE
        from ntrm.correct.mask import open_mask
        from ntrm.segment.segmenter import reason_of

        slide, source, segmenter = self._slide()
        self._report(0.0, "making", at_once=True)
        try:
            mask = open_mask(segmenter.out / slide.slide_id)
            device = choose_device(self._settings.device) if segmenter.blank else segmenter.predictor.device
            ENGINE.prepare(mask, source, str(device), self)
        except NtrmError as error:
            code = "refused" if isinstance(error, RefusedError) else "unreadable"
            raise ProblemError(422, code, GIVEN_UP["prepare"], got=reason_of(error, source, slide.slide_id)) from error

    def correct(self) -> None:
        """Write the files of a slide's corrected mask, where they are not there already."""
        from ntrm.correct.slide import SlideCorrections

        corrections = SlideCorrections(self._settings.out / self._store.get(self._job.slide).slide_id)
        if not corrections.is_written:
            corrections.write()
            self._store.ask("", "tables", TABLES_SECONDS)

    def tables(self) -> None:
        """Write the tables of all slides, and the overview unless somebody did without it."""
        from ntrm.segment.tabulating import tabulate

        out = self._settings.out
        if (out / RUN).is_file():
            run = read_run(out)
            report = (out / INDEX).is_file() or not (out / table_file("slides")).is_file()
            tabulate(out, run, run.covariates, report=report)


def main() -> int:
    """Run until the input ends."""
    told = json.loads(sys.stdin.readline())
    kinds, name = tuple(told.pop("kinds")), told.pop("name")
    settings = ServiceSettings(**{**told, "out": Path(told["out"])})
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        segmenter = open_segmenter(settings) if kinds == NETWORK else None
    except NtrmError as error:
        _say({"refused": document_of(error)["error"]})
        return error.exit_code
    if segmenter is None or segmenter.run.options.get("device", "cpu") == "cpu":
        # The page comes first: whoever views slides must not wait for the next one.
        os.nice(5)
    devices = 1
    if segmenter is not None and settings.device in ("auto", "cuda"):
        import torch

        devices = max(torch.cuda.device_count(), 1)  # A worker for each GPU
    _say({"devices": devices})
    with closing(JobStore(settings.hidden / DATABASE)) as store:
        Worker(settings, store, name, segmenter).work(kinds)
    return 0


def open_segmenter(settings: ServiceSettings) -> Segmenter:
    """The network, with the options of results that are there already: those of one folder have the same options."""
    from ntrm.segment.annotate import Blank
    from ntrm.segment.options import Options
    from ntrm.segment.segmenter import Segmenter

    before: dict[str, Any] = {"maps": True, "batch": settings.batch, "device": settings.device}
    model: str | Blank = settings.model
    with suppress(DataError, UsageError):
        run = read_run(settings.out)
        before, model = before | run.options, Blank() if run.model is None else model
    options = Options(**{name: before[name] for name in Options.__dataclass_fields__ if name in before})
    device = before["device"] if settings.device == "auto" else settings.device
    segmenter = Segmenter(model, settings.out, options, device=str(device), batch=int(before["batch"]))
    segmenter.check_folder()
    return segmenter


def _end_with_input() -> None:
    sys.stdin.read()
    # The service is gone, perhaps killed. Nothing is lost by leaving at once.
    os._exit(0)


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)  # noqa: T201 - what the service waits for


if __name__ == "__main__":
    sys.exit(main())
