"""A network on a split of a dataset, section by section: every score, as one result and as files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ntrm.core.errors import RefusedError
from ntrm.core.labels import Counts
from ntrm.core.mpp import Resolution
from ntrm.core.processes import parallel_map
from ntrm.core.progress import Progress, as_progress
from ntrm.data.dataset import Case, Dataset, check_outside, resampling
from ntrm.data.split import DatasetSplits, open_splits, trained_on
from ntrm.evaluation.measuring import MasksToMeasure, measure
from ntrm.evaluation.result import Evaluation, Gallery, check_scores_folder, write_evaluation
from ntrm.evaluation.robustness import DEGRADATIONS, robustness_rows
from ntrm.evaluation.sections import SectionCounts, SectionResult, confusion_of, predict_section
from ntrm.familiarity.loaded_model import open_subject
from ntrm.models.base import SegmentationModel
from ntrm.models.config import ModelConfig
from ntrm.models.predictor import Predictor
from ntrm.models.windows import A_QUARTER, Stitching


def evaluate(
    model: str | Path | SegmentationModel,
    data: str | Path,
    out: str | Path | None = None,
    *,
    resolution: str | None = None,
    split: str = "test",
    splits: str | Path | None = None,
    device: str | torch.device = "auto",
    precision: str = "auto",
    batch: int = 16,
    stitching: Stitching | None = None,
    overlap: int | None = None,
    robustness: bool = False,
    pictures: bool = True,
    boundaries: bool = True,
    jobs: int = 1,
    command: Sequence[str] = (),
    progress: Progress | bool = True,
) -> Evaluation:
    """Predict every section of a split, score it, and write the result to ``out`` where that is given.

    Args:
        model: folder, hub id, or a network in memory.
        data: dataset folder; its µm/px must be the network's, its classes are matched by name.
        out: folder for ``metrics.json``, tables and pictures; new, empty, or of an earlier evaluation.
        resolution: resolution level, where the dataset has several.
        split: ``train``, ``val`` or ``test``.
        splits: what ``ntrm data split`` wrote, to be used in place of the dataset's own splits.
        device: where the network runs.
        precision: of the network; ``auto`` is what the device is good at.
        batch: windows predicted at a time.
        stitching: windows and their overlap; by default of the network's own size, overlapping by a quarter.
        overlap: pixels by which windows of the network's own size overlap, in place of that quarter.
        robustness: also score images made worse on purpose, which takes nine times as long.
        pictures: also draw.
        boundaries: also measure distances of boundaries, which takes most of the time on a fast device.
        jobs: processes that measure while the device predicts.
        command: what the user typed, for the record.
        progress: whether to show the sections, in a terminal or a notebook; or what shows them.

    """
    start, progress = time.monotonic(), as_progress(progress)
    out, split_file = None if out is None else Path(out), None if splits is None else Path(splits)
    if out is not None:
        check_outside(out, Path(data))
        check_scores_folder(out)
    subject, data_splits = open_subject(model), open_splits(Path(data), resolution=resolution, splits=split_file)
    config, cases = subject.config, data_splits[split]
    work = _Work(
        predictor=subject.predictor(device, batch=batch, precision=precision),
        splits=data_splits,
        table=class_table(config, data_splits),
        stitching=stitching or Stitching(config.window, A_QUARTER if overlap is None else overlap),
        gallery=Gallery(cases, config.schema, config.window) if pictures and out is not None else None,
        robustness=robustness,
        boundaries=boundaries,
    )
    sections = work.run(cases, jobs, progress)
    seen = "" if split == "train" else trained_on(config.trained_on, cases)
    too_good = "the scores are too good for other sections; evaluate with the splits of the training (--splits)"
    data_facts = describe_data(data_splits, split)
    evaluation = Evaluation(
        schema=config.schema,
        sections=sections,
        model=subject.as_dict(),
        data={**data_facts, "level": data_facts["level"] or None},
        stitching=work.stitching,
        robustness=robustness_rows(work.degraded, config.schema) if robustness else None,
        notes=(f"{seen}: {too_good}",) if seen else (),
        command=tuple(command),
        device=str(work.predictor.device),
        seconds=time.monotonic() - start,
    )
    if out is not None:
        write_evaluation(out, evaluation, work.gallery)
    return evaluation


def class_table(config: ModelConfig, splits: DatasetSplits) -> NDArray[np.uint8]:
    """(256,) from the dataset's classes to the network's, matched by name.

    Refuses a dataset of another resolution, or with classes that the network does not know.
    """
    root = splits.dataset.root
    config.check_mpp()
    own, found = Resolution.square(config.mpp or 0), splits.resolution
    if not own.same_as(found):
        finer = f"images cannot be made finer: choose a network that was trained at {found} or coarser"
        raise RefusedError(
            "network and dataset differ in resolution",
            got=f"{found} in {root}",
            expected=f"{own}, at which the network was trained",
            hint=resampling(root, own.x) if found < own else finer,
        )
    if unknown := [name for name in splits.schema.names if name not in config.schema.names]:
        raise RefusedError(
            f"the network does not know every class of {root}",
            got=", ".join(unknown),
            expected=f"only classes of the network: {', '.join(config.schema.names)}",
            hint="choose a network trained on these classes, or rename them in classes.csv",
        )
    return config.schema.remap_table(splits.schema)


def describe_data(splits: DatasetSplits, split: str) -> dict[str, Any]:
    """``data`` in ``metrics.json`` and ``calibration.json``."""
    sections = splits[split]
    return {
        "fingerprint": splits.fingerprint(split),
        "split": split,
        "level": sections.cases[0].level,
        "mpp": splits.resolution.mean,
        "sections": len(sections),
        "patients": len({case.group for case in sections}),
    }


@dataclass(eq=False)
class _Work:
    """The way of a section through an evaluation, and what is kept of it: counts, but no maps."""

    predictor: Predictor
    splits: DatasetSplits
    table: NDArray[np.uint8]
    stitching: Stitching
    gallery: Gallery | None
    robustness: bool
    boundaries: bool
    counted: list[SectionCounts] = field(default_factory=list)
    degraded: list[list[Counts]] = field(default_factory=list)

    def run(self, cases: Dataset, jobs: int, progress: Progress) -> tuple[SectionResult, ...]:
        """All sections: predicted here, measured by ``jobs`` processes."""
        tasks = (self._predict(case) for case in progress.track(cases, total=len(cases), label="sections"))
        with closing(parallel_map(measure, tasks, jobs)) as measured:
            measures = list(measured)
        pairs = zip(self.counted, measures, strict=True)
        return tuple(SectionResult(**vars(counts), **vars(section)) for counts, section in pairs)

    def _predict(self, case: Case) -> MasksToMeasure:
        predicted = predict_section(self.predictor, case, self.splits.schema, self.table, stitching=self.stitching)
        self.counted.append(predicted.counts)
        if self.gallery is not None:
            self.gallery.show(predicted)
        if self.robustness:
            worse = (degradation(predicted.section.image, self.predictor.device) for degradation in DEGRADATIONS)
            degraded = [
                confusion_of(self.predictor, image, predicted.truth, stitching=self.stitching) for image in worse
            ]
            self.degraded.append([predicted.counts.confusion, *degraded])
        return MasksToMeasure(
            section=predicted.section,
            table=self.table,
            mask=predicted.stitched.mask,
            confidence=predicted.stitched.confidence,
            coarse=predicted.stitched.coarse_mask,
            schema=self.predictor.config.schema,
            resolution=self.splits.resolution,
            boundaries=self.boundaries,
        )
