"""Many slides, one after the other: a failure is reported, the others go on, and the same command continues later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ntrm.core.errors import RefusedError, UsageError, choices_error
from ntrm.core.mpp import Resolution, stated_resolution
from ntrm.core.processes import terminated_like_interrupted
from ntrm.core.progress import Progress, as_progress
from ntrm.core.wording import short_repr
from ntrm.models.base import SegmentationModel
from ntrm.models.folders import BUNDLED
from ntrm.results.familiarity import NOT_JUDGED
from ntrm.results.slide_state import finished
from ntrm.segment.annotate import Blank
from ntrm.segment.file_transfer import FileTransfer, Storage
from ntrm.segment.options import Options
from ntrm.segment.segmenter import Outcome, Segmenter
from ntrm.segment.slide import PredictedSlide, SlideTask
from ntrm.segment.tabulating import tabulate
from ntrm.slides.inputs import SlideInput, find_inputs, remember_places, shard_of
from ntrm.slides.isolated import ReaderPool
from ntrm.slides.object_store import Address, is_address
from ntrm.slides.slide_folders import LeftOut
from ntrm.slides.slide_ids import distinguishing_paths, slide_ids


@dataclass(frozen=True)
class Segmented:
    """The outcomes of all slides."""

    out: Path
    slides: tuple[Outcome, ...]
    identity: dict[str, Any]
    notes: tuple[str, ...] = ()  # How unclear inputs were understood, and what was not judged
    address: str | None = None
    """Of the results, where they are not in a folder; ``out`` then holds what could not be sent."""

    __repr__ = short_repr

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
        """The fields as a JSON document."""
        out = self.address or str(self.out)
        return {"out": out, "slides": [slide.as_dict() for slide in self.slides], **self.identity}


def segment_slides(
    inputs: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    model: str | Path | SegmentationModel | Blank = "bundled",
    mpp: float | Resolution | None = None,
    options: Options | None = None,
    device: str | torch.device = "auto",
    batch: int = 16,
    shard: str | None = None,
    pseudonymise: str | Path | None = None,
    cluster: str | None = None,
    workers: int | None = None,
    cache: str | Path | None = None,
    progress: Progress | bool = True,
    **choices: Any,
) -> Segmented:
    """Segment slides and images into masks, polygons, relations and tables under ``out``.

    Args:
        inputs: a slide, a folder, a CSV (slide, optionally slide_id, mpp, mpp_y, covariates), or several of these;
            each may be an address (``s3://bucket/slides``), and so may a CSV's slides.
        out: folder of the results, or its address; where it holds some of the same model and options, what is missing
            is added.
        model: folder, hub id or ``bundled``, or a network in memory; or ``Blank``, to name tissues from nothing.
        mpp: µm/px of the slides, instead of what their files tell; a row of a CSV may state its own.
        options: what changes results; or give its fields one by one (``min_area_um2=2000, zarr=True``).
        device: ``auto`` takes cuda, then mps, then cpu.
        batch: windows predicted at a time.
        shard: ``I/N``: only every N-th slide from the I-th on.
        pseudonymise: a key file outside ``out``; outputs then bear random names that only this file explains.
        cluster: ``ray``: share the slides among workers, on this machine or on the cluster of ``RAY_ADDRESS``.
        workers: how many; by default one for each GPU, or one for two cores.
        cache: folder for slides from addresses and for results on the way to one; by default that of ``NTRM_CACHE``.
        progress: whether to show one bar for slides and one within, in a terminal or a notebook; or what shows them.
        choices: fields of ``options``.

    """
    if cluster not in (None, "ray"):
        raise choices_error("unknown kind of cluster", cluster, ["ray"])
    if workers is not None and cluster is None:
        raise UsageError("workers without a cluster", got=f"--workers {workers}", hint="add --cluster ray")
    if cluster is not None and isinstance(model, nn.Module | Blank):
        raise UsageError(
            "a network in memory cannot go to a cluster",
            got=type(model).__name__,
            expected="a folder, a hub id or bundled",
            hint="save it with save_pretrained, and give the folder",
        )
    for path in (pseudonymise, cache):
        if path is not None and is_address(path):
            raise UsageError("this must be on a disk of this machine", got=path, expected="a path")
    known = [field.name for field in fields(Options)]
    for name in choices.keys() - known:
        raise choices_error("unknown option of segment_slides", name, known)
    chosen, progress = replace(options or Options(), **choices), as_progress(progress)
    stated = None if mpp is None else stated_resolution(mpp)
    address = Address.parse(str(out)) if is_address(out) else None
    storage = Storage(None if cache is None else Path(cache), address)
    several = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    left_out, key_file = LeftOut(), None if pseudonymise is None else Path(pseudonymise)
    with terminated_like_interrupted(), closing(FileTransfer(storage)) as transfer:
        results = transfer.results
        folder = Path(out) if results is None else results.out
        slides = find_inputs(several, stated, out=folder, remote=transfer.slides, left_out=left_out)
        ids = slide_ids(slides, key_file=key_file, out=folder, results=results)
        named = {slide.path: name for slide, name in zip(slides, ids, strict=True)}
        tasks = [SlideTask(slide, named[slide.path]) for slide in shard_of(slides, shard)]
        covariates = [*dict.fromkeys(name for slide in slides for name in slide.covariates)]
        if cluster is None or not tasks or isinstance(model, nn.Module | Blank):
            # The first reading process starts while the network is loaded.
            with closing(ReaderPool(len(tasks))) as readers:
                opening: dict[str, Any] = {"open_slide": readers.open, "transfer": transfer}
                segmenter = Segmenter(model, folder, chosen, device=device, batch=batch, **opening)
                segmenter.check_folder(covariates)
                transfer.expect({task.slide_id: task.slide for task in tasks})
                outcomes, run = _one_by_one(segmenter, tasks, progress), segmenter.run
        else:
            from ntrm.segment.ray_cluster import Orders, segment_on_ray

            # Actors run elsewhere: a folder must be named in full, a hub id or "bundled" as it is.
            name = str(Path(model).absolute()) if str(model) != BUNDLED and Path(model).is_dir() else str(model)
            if address is not None or any(task.slide.remote for task in tasks):
                storage = replace(storage, cache=storage.folder)  # slides have one path everywhere
            orders = Orders(name, folder.absolute(), chosen, str(device), batch, tuple(covariates), storage)
            outcomes, run = segment_on_ray(tasks, orders, workers=workers, progress=progress)
            if results is not None:
                for task in tasks:
                    results.deliver_failure(task.slide_id)  # those of lost workers were noted here
        tabulated = partial(tabulate, folder) if results is None else results.tabulate
        untold = tabulated(run, covariates, report=chosen.report)
    notes = left_out.notes(names=key_file is None)
    if key_file is None:
        _remember(folder, tasks, outcomes)
        notes = [*(f"{name} is {path}" for name, path in distinguishing_paths(slides, ids).items()), *notes]
    notes = [*notes, *_notes(slides, outcomes if run.model else ()), *untold]
    return Segmented(folder, tuple(outcomes), run.identity(), tuple(notes), None if address is None else str(address))


def _one_by_one(segmenter: Segmenter, tasks: Sequence[SlideTask], progress: Progress) -> list[Outcome]:
    def outcomes() -> Iterator[Outcome]:
        """In the order of the tasks; the files of a slide are written while the network works on the next."""
        waiting: Future[Outcome] | None = None
        with ThreadPoolExecutor(1, thread_name_prefix="ntrm-write") as writer:
            for task in tasks:
                found = segmenter.predict(task, progress)
                if waiting is not None:
                    yield waiting.result()
                waiting = writer.submit(segmenter.write, found)
                if isinstance(found, PredictedSlide) and found.large:
                    wait([waiting])
            if waiting is not None:
                yield waiting.result()

    # Whoever worked on a slide that was busy may be through by now.
    return [
        segmenter.segment(task, progress) if outcome.status == "busy" else outcome
        for task, outcome in zip(tasks, [*progress.track(outcomes(), len(tasks), "slides")], strict=True)
    ]


def _remember(folder: Path, tasks: Sequence[SlideTask], outcomes: Sequence[Outcome]) -> None:
    """Keep for this user where the slides of finished results lie on this machine."""
    done, places = {outcome.slide_id for outcome in outcomes if outcome.status in ("done", "kept")}, {}
    for task in tasks:
        here = task.slide.remote is None and task.slide_id in done
        state = finished(folder / task.slide_id) if here else None
        if state is not None and state.plan is not None and state.plan.source is not None:
            places[state.plan.source] = task.slide.path
    remember_places(places)


def _notes(slides: Sequence[SlideInput], outcomes: Sequence[Outcome]) -> list[str]:
    """What was given twice, and why slides were not compared with what the model knows: a line for each verdict."""
    often = sum(slide.times > 1 for slide in slides)
    notes = [f"given more than once, segmented once: {often} slide{'' if often == 1 else 's'}"] if often else []
    for verdict in NOT_JUDGED:
        reasons = Counter(outcome.row["familiarity_reason"] for outcome in outcomes if outcome.familiarity == verdict)
        if reasons:
            why = next(iter(reasons)) if len(reasons) == 1 else "slides.csv says why"
            notes.append(f"familiarity: {verdict} on {reasons.total()} of {len(outcomes)}: {why}")
    return notes
