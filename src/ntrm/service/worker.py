"""The process that segments: takes slides from the database one by one, and holds the network meanwhile.

Its first line of input says where and how; every further one wakes it, and the end of the input ends it, so that it
never outlives the service. It may be killed at any moment: the slide goes on from its last band.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ntrm.errors import DataError, NtrmError
from ntrm.reproduction.locks import holding
from ntrm.resolution import Resolution
from ntrm.segmentation.identity import Options
from ntrm.segmentation.segmenter import Outcome, Segmenter
from ntrm.service.facts import facts_of
from ntrm.service.job_progress import CancelledError, JobProgress, StoppedError, TooLongError
from ntrm.service.jobs import JobStore
from ntrm.service.model_facts import ModelFacts, understand, write_facts
from ntrm.service.problems import ProblemError, document_of
from ntrm.service.records import CANCELLED, DONE, FAILED, Slide, new_id
from ntrm.service.settings import ServiceSettings
from ntrm.service.shared import DATABASE, lock_of
from ntrm.service.worker_settings import settings_from
from ntrm.slide.inputs import SlideInput
from ntrm.slide.isolated import open_isolated
from ntrm.slide.reading.base import SlideReader
from ntrm.slide.tables import RUN

IDLE_SECONDS = 5.0
"""How long it sleeps unless somebody wakes it."""
BUSY_SECONDS = 30.0
"""How long it waits for another process to leave a slide alone."""
TABLE_SECONDS = 60.0
"""Tables of all slides are written when the queue is empty, or this often."""
PAUSE_SECONDS = 0.5
NICE = 5


def main() -> int:
    """Run until the input ends."""
    settings = settings_from(json.loads(sys.stdin.readline()))
    stop, wake = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        stop.set()
        wake.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_listen, args=(wake,), daemon=True).start()
    name = new_id()
    with holding(lock_of(settings, name)):
        try:
            segmenter = open_segmenter(settings)
        except NtrmError as error:
            _say({"refused": document_of(error)["error"]})
            return error.exit_code
        if segmenter.identity.options["device"] == "cpu":
            # The page comes first: whoever looks at slides must not wait for the next one.
            os.nice(NICE)
        write_facts(settings, _facts(settings))
        _say({"ready": name, "devices": _devices(settings)})
        _work(settings, segmenter, name, stop, wake)
    return 0


def _work(
    settings: ServiceSettings, segmenter: Segmenter, name: str, stop: threading.Event, wake: threading.Event
) -> None:
    store = JobStore(settings.hidden / DATABASE)
    tabulated, behind = 0.0, True
    try:
        while not stop.is_set():
            wake.clear()
            slide = store.claim(name)
            if slide is not None:
                run_job(store, segmenter, slide, name, stop, settings.limits.slide_seconds)
                behind = True
            if behind and (slide is None or time.monotonic() - tabulated > TABLE_SECONDS):
                segmenter.tabulate()
                tabulated, behind = time.monotonic(), False
            if slide is None:
                wake.wait(IDLE_SECONDS)
    finally:
        store.close()


def run_job(
    store: JobStore, segmenter: Segmenter, slide: Slide, worker: str, stop: threading.Event, seconds: float
) -> None:
    """One slide, from the queue to its end."""
    progress = JobProgress(store, slide, worker, segmenter.out / slide.slide_id, stop, seconds)
    try:
        with progress:
            outcome = _segment(segmenter, slide, progress)
        if outcome.status in ("done", "kept"):
            store.finish(slide.id, worker, DONE, facts=facts_of(segmenter.out / slide.slide_id))
        else:
            store.finish(slide.id, worker, FAILED, error=_failure(outcome))
    except CancelledError:
        store.finish(slide.id, worker, CANCELLED)
    except StoppedError:
        store.release(slide.id, worker)
    except TooLongError:
        store.finish(slide.id, worker, FAILED, error=too_long(seconds))
    except NtrmError as error:
        store.finish(slide.id, worker, FAILED, error=error)


def _segment(segmenter: Segmenter, slide: Slide, progress: JobProgress) -> Outcome:
    if slide.source is None:
        raise DataError("the slide's file is not known", mend="upload it again")
    mpp = None if slide.mpp is None else Resolution(*slide.mpp)
    given = SlideInput(slide.source, slide.slide_id, slide.slide_id, mpp, alone=slide.alone)

    def opened(path: Path, *, alone: bool) -> SlideReader:
        return progress.reader(open_isolated(path, alone=alone))

    until = time.monotonic() + BUSY_SECONDS
    while True:
        outcome = segmenter.segment(given, slide.slide_id, progress, opened)
        # A process that is being killed may hold the slide a moment longer than its place among the workers.
        if outcome.status != "busy" or time.monotonic() > until:
            return outcome
        progress.tell(0.0, "waiting")
        time.sleep(PAUSE_SECONDS)


def too_long(seconds: float) -> ProblemError:
    """For a slide that used up its time."""
    return ProblemError(
        422,
        "too_long",
        "the slide took too long",
        expected=f"at most {seconds:g} s",
        mend="try again: it goes on where it stopped",
    )


def _failure(outcome: Outcome) -> NtrmError:
    code = "refused" if outcome.refused else "unreadable"
    return ProblemError(422, code, "the slide could not be segmented", got=outcome.reason)


def open_segmenter(settings: ServiceSettings) -> Segmenter:
    """The network, with the options of results that are there already."""
    options, batch, device = _options_of(settings)
    segmenter = Segmenter(settings.model, settings.out, options, device=device, batch=batch)
    segmenter.claim()
    return segmenter


def _options_of(settings: ServiceSettings) -> tuple[Options, int, str]:
    """Results of one folder share their options, so that new slides take those that are there."""
    names = {field.name for field in dataclasses.fields(Options)}
    try:
        before: dict[str, Any] = json.loads((settings.out / RUN).read_text(encoding="utf-8"))["options"]
    except (OSError, ValueError, KeyError, TypeError):
        wanted: dict[str, Any] = {"maps": True}
        return Options(**{key: value for key, value in wanted.items() if key in names}), settings.batch, settings.device
    kept = {key: value for key, value in before.items() if key in names}
    device = before.get("device", "auto") if settings.device == "auto" else settings.device
    return Options(**kept), int(before.get("batch", settings.batch)), str(device)


def _facts(settings: ServiceSettings) -> ModelFacts:
    from ntrm.models.hub import locate

    return understand((locate(settings.model) / "config.json").read_text(encoding="utf-8"))


def _devices(settings: ServiceSettings) -> int:
    """How many workers make sense: one for each GPU where any may be taken."""
    import torch

    several = settings.device in ("auto", "cuda") and torch.cuda.is_available()
    return torch.cuda.device_count() if several else 1


def _listen(wake: threading.Event) -> None:
    for _ in sys.stdin:
        wake.set()
    # The service is gone, perhaps killed. Nothing is lost by leaving at once.
    os._exit(0)


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
