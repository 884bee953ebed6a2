"""A network on a part of a dataset, whole sections at a time: every score, as one result and as files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.progress import SILENT, Progress
from ntrm.data.dataset import Dataset
from ntrm.data.split import DatasetSplits, open_splits
from ntrm.evaluation.loaded_model import class_table, open_subject
from ntrm.evaluation.measuring import MasksToMeasure, measure, stream_map
from ntrm.evaluation.result import Evaluation
from ntrm.evaluation.robustness import degraded, robustness_rows
from ntrm.evaluation.sections import PredictedSection, SectionCounts, SectionResult, confusion_of, predict_section
from ntrm.evaluation.writing import Gallery, claim_folder, write_evaluation
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import A_QUARTER, Stitching
from ntrm.metrics.confusion import Counts
from ntrm.models.base import SegmentationModel


def evaluate(
    model: str | Path | SegmentationModel,
    data: str | Path,
    out: str | Path | None = None,
    *,
    resolution: str | None = None,
    split: str = "test",
    splits: str | Path | None = None,
    device: str = "auto",
    precision: str = "auto",
    batch: int = 16,
    stitching: Stitching | None = None,
    overlap: int | None = None,
    robustness: bool = False,
    pictures: bool = True,
    boundaries: bool = True,
    jobs: int = 1,
    command: Sequence[str] = (),
    progress: Progress = SILENT,
) -> Evaluation:
    """Predict every section of a part, score it, and write the result to ``out`` where that is given.

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
        stitching: windows of the network's own size with a quarter overlapping, if not given.
        overlap: pixels that windows of the network's own size share, in place of that quarter.
        robustness: also score images made worse on purpose, which takes nine times as long.
        pictures: also draw.
        boundaries: also measure distances of boundaries, which takes most of the time on a fast device.
        jobs: processes that measure while the device predicts.
        command: what the user typed, for the record.
        progress: told about sections.

    """
    start = time.monotonic()
    out, split_file = None if out is None else Path(out), None if splits is None else Path(splits)
    if out is not None:
        claim_folder(out)
    subject, parts = open_subject(model), open_splits(Path(data), resolution=resolution, splits=split_file)
    config, part = subject.config, parts[split]
    work = _Work(
        Predictor(subject.network, device, batch=batch, precision=precision),
        parts,
        part,
        class_table(config, parts),
        stitching or Stitching(config.window, A_QUARTER if overlap is None else overlap),
        Gallery(part, config.schema, config.window) if pictures and out is not None else None,
        robustness,
        boundaries,
    )
    sections = work.run(jobs, progress)
    evaluation = Evaluation(
        schema=config.schema,
        sections=sections,
        model=subject.as_dict(),
        data=_describe(parts, part, split),
        stitching=work.stitching,
        robustness=robustness_rows(work.worse, config.schema) if robustness else None,
        command=tuple(command),
        device=str(work.predictor.device),
        seconds=time.monotonic() - start,
    )
    if out is not None:
        write_evaluation(Path(out), evaluation, work.gallery)
    return evaluation


@dataclass(eq=False)
class _Work:
    """What the sections go through, and what is kept of each: counts, but no maps."""

    predictor: Predictor
    parts: DatasetSplits
    part: Dataset
    table: NDArray[np.uint8]
    stitching: Stitching
    gallery: Gallery | None
    robustness: bool
    boundaries: bool
    counted: list[SectionCounts] = field(default_factory=list)
    worse: list[list[Counts]] = field(default_factory=list)

    def run(self, jobs: int, progress: Progress) -> tuple[SectionResult, ...]:
        """All sections: predicted here, measured by ``jobs`` processes."""
        cases = progress.track(self.part, total=len(self.part), label="sections")
        predicted = (
            predict_section(self.predictor, case, self.parts.schema, self.table, stitching=self.stitching)
            for case in cases
        )
        with closing(stream_map(measure, (self._keep(each) for each in predicted), jobs)) as measuring:
            measured = list(measuring)
        pairs = zip(self.counted, measured, strict=True)
        return tuple(SectionResult(**vars(counts), **vars(measures)) for counts, measures in pairs)

    def _keep(self, predicted: PredictedSection) -> MasksToMeasure:
        self.counted.append(predicted.counts())
        if self.gallery is not None:
            self.gallery.show(predicted)
        if self.robustness:
            self.worse.append([predicted.tally.final, *self._under_degradation(predicted)])
        return MasksToMeasure(
            section=predicted.section,
            table=self.table,
            mask=predicted.stitched.mask,
            confidence=predicted.stitched.confidence,
            coarse=predicted.stitched.coarse_mask,
            schema=self.predictor.config.schema,
            resolution=self.parts.resolution,
            boundaries=self.boundaries,
        )

    def _under_degradation(self, predicted: PredictedSection) -> Iterator[Counts]:
        for image in degraded(predicted.section.image, self.predictor.device):
            yield confusion_of(self.predictor, image, predicted.truth, stitching=self.stitching)


def _describe(parts: DatasetSplits, part: Dataset, split: str) -> dict[str, Any]:
    return {
        "fingerprint": parts.fingerprint(split),
        "split": split,
        "level": part.cases[0].level or None,
        "mpp": parts.resolution.mean,
        "sections": len(part),
        "patients": len({case.group for case in part}),
    }
