"""The scores of one network on one split: one document, and a folder with tables and pictures.

``metrics.json`` is written last: where it is, the evaluation is complete.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

from ntrm.core.csv_text import rows_text
from ntrm.core.io import (
    PARTIAL,
    check_writable,
    foreign_files,
    read_object,
    remove_partials,
    write_arrays,
    write_json,
    write_text,
)
from ntrm.core.labels import IGNORE, Counts, LabelSchema, Mask
from ntrm.core.wording import short_repr
from ntrm.data.dataset import Dataset
from ntrm.data.split import few_sections
from ntrm.evaluation.interfaces import InterfaceCounts
from ntrm.evaluation.robustness import RobustnessRow
from ntrm.evaluation.sections import BINS, PredictedSection, SectionResult
from ntrm.metrics.boundary import BoundaryAgreement, mean_of
from ntrm.metrics.calibration import CalibrationCounts
from ntrm.metrics.cancer_scores import score_cancers
from ntrm.metrics.graph_agreement import GraphAgreement
from ntrm.metrics.overlap import Overlap, overlap, per_section, pooled
from ntrm.models.windows import Stitching
from ntrm.version import __version__

if TYPE_CHECKING:
    from ntrm.report.picture_grids import Example

METRICS, SECTIONS, CONFUSIONS, INTERFACES = "metrics.json", "sections.csv", "confusions.npz", "interfaces.npz"
INTERFACE_COUNTS = ("pixels", "wrong", "corrected", "broken")
CONFUSION_FIGURE, EXAMPLES_FIGURE, IMPROVEMENT_FIGURE = "confusion.png", "examples.png", "improvement.png"
FILES = (METRICS, SECTIONS, CONFUSIONS, INTERFACES, CONFUSION_FIGURE, EXAMPLES_FIGURE, IMPROVEMENT_FIGURE)

BOUNDARY_UM = 25.0  # Tolerance of the boundary F1 in the table of sections

EXAMPLES = 6  # Sections shown in full

FIELDS = 4  # Sections of which the field with the most changes is shown

FIELD_WINDOWS = 2
"""Side of such a field in windows of the network: small enough to see pixels change, large enough to know where."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of one network on one split of a dataset."""

    schema: LabelSchema  # Of the network; masks of the dataset were matched to it by name
    sections: tuple[SectionResult, ...]
    model: dict[str, Any]
    data: dict[str, Any]
    stitching: Stitching
    robustness: tuple[RobustnessRow, ...] | None
    notes: tuple[str, ...]  # What makes the scores doubtful
    command: tuple[str, ...]
    device: str
    seconds: float

    __repr__ = short_repr

    @cached_property
    def pooled(self) -> Overlap:
        """All pixels together: the headline."""
        return pooled([section.confusion for section in self.sections], self.schema)

    @cached_property
    def per_section(self) -> Overlap:
        """Every section scored by itself, then averaged."""
        return per_section([section.confusion for section in self.sections], self.schema)

    @cached_property
    def coarse_tables(self) -> list[Counts]:
        """(K, K) of the coarse head for each section; empty without one."""
        return [section.coarse for section in self.sections if section.coarse is not None]

    @property
    def confusion(self) -> Counts:
        """(K, K) all sections together."""
        total: Counts = np.sum([section.confusion for section in self.sections], axis=0)
        return total

    def as_dict(self) -> dict[str, Any]:
        """``metrics.json``."""
        boundaries = [section.boundary for section in self.sections if section.boundary is not None]
        predicted, true = zip(*((section.cancers, section.true_cancers) for section in self.sections), strict=True)
        calibration = sum((section.calibration for section in self.sections), CalibrationCounts.none(BINS)).as_dict()
        return {
            "program": __version__,
            "model": self.model,
            "data": self.data,
            "classes": list(self.schema.names),
            "pooled": self.pooled.as_dict(),
            "per_section": self.per_section.as_dict(),
            "coarse": pooled(self.coarse_tables, self.schema).as_dict() if self.coarse_tables else None,
            "boundary": BoundaryAgreement.total(boundaries).as_dict() if boundaries else None,
            "graph": GraphAgreement.total([section.graph for section in self.sections]).as_dict(),
            "calibration": {"ece": calibration.pop("expected_calibration_error"), **calibration},
            "interfaces": InterfaceCounts.total([section.interfaces for section in self.sections]).as_dict(),
            "claims": self.claims(),
            "cancers": score_cancers(predicted, true) if any(predicted) else None,
            "robustness": None if self.robustness is None else [asdict(row) for row in self.robustness],
            "notes": list(self.notes),
            "stitching": self.stitching.as_dict(),
            "command": list(self.command),
            "device": self.device,
            "seconds": round(self.seconds, 3),
            "seconds_predicting": round(sum(section.seconds for section in self.sections), 3),
            "pixels": sum(section.pixels for section in self.sections),
        }

    def claims(self) -> dict[str, Any]:
        """Counts behind claims of the paper that no other score shows; empty where the classes are others."""
        if "SCC" not in self.schema.names:
            return {}
        scc, coarse = self.schema.index("SCC"), self.coarse_tables
        totals = {"coarse": np.sum(coarse, axis=0) if coarse else None, "final": self.confusion}
        found: dict[str, int | None] = {
            name: None if table is None else int(table[:, scc].sum() - table[scc, scc])
            for name, table in totals.items()
        }
        found["other_pixels"] = int(self.confusion.sum() - self.confusion[scc].sum())
        return {"scc_false_positives": found}


class Gallery:
    """Collects what will be drawn while sections are predicted, and draws it at the end."""

    def __init__(self, sections: Dataset, schema: LabelSchema, window: int) -> None:
        self._schema, self._side = schema, FIELD_WINDOWS * window
        self._shown, self._changed = (
            {case.name for case in few_sections(sections, min(count, len(sections)))} for count in (EXAMPLES, FIELDS)
        )
        self._examples: list[Example] = []
        self._improvements: list[Example] = []

    def show(self, predicted: PredictedSection) -> None:
        """Keep this section if it is one of those to be shown."""
        from ntrm.report.picture_grids import Example

        name, mask, coarse = predicted.counts.name, predicted.stitched.mask, predicted.stitched.coarse_mask
        if name in self._shown:
            self._examples.append(Example(name, predicted.section.image, predicted.truth, {"prediction": mask}))
        if name in self._changed and coarse is not None:
            field = most_changed(predicted.truth, coarse, mask, self._side)
            maps = (predicted.section.image, predicted.truth, coarse, mask)
            image, truth, before, after = (np.array(pixels[field]) for pixels in maps)
            self._improvements.append(Example(name, image, truth, {"coarse": before, "final": after}))

    def draw(self, examples: Path, improvement: Path) -> None:
        """Write the two figures; the second only for networks with a coarse head."""
        from ntrm.report.drawing import write_figure
        from ntrm.report.picture_grids import examples_figure, improvement_figure

        write_figure(examples, examples_figure, self._examples, self._schema)
        if self._improvements:
            write_figure(improvement, improvement_figure, self._improvements, self._schema)


def most_changed(truth: Mask, coarse: Mask, final: Mask, side: int) -> tuple[slice, slice]:
    """Rows and columns of the field, at most ``side`` pixels square, with the most corrected and broken pixels."""
    changed = ((coarse == truth) != (final == truth)) & (truth != IGNORE)
    high, wide = (min(side, length) for length in truth.shape)
    # Sums over every field at once; those that would leave the section are cut off.
    sums = ndimage.uniform_filter(changed.astype(np.float32), size=(high, wide), mode="constant")
    top, left = high // 2, wide // 2
    inside = sums[top : truth.shape[0] - high + top + 1, left : truth.shape[1] - wide + left + 1]
    row, column = np.unravel_index(int(inside.argmax()), inside.shape)
    return slice(int(row), int(row) + high), slice(int(column), int(column) + wide)


def check_scores_folder(out: Path) -> None:
    """Refuse a folder that holds anything but an evaluation, complete or not."""
    check_writable(out)
    names = [path.name for path in out.iterdir()] if out.exists() else []
    foreign = [name for name in names if name not in FILES and not name.startswith(PARTIAL)]
    if foreign and not {"model", "data", "pooled"} <= read_object(out / METRICS).keys():
        raise foreign_files(out, "evaluation", foreign)


def write_evaluation(out: Path, evaluation: Evaluation, gallery: Gallery | None) -> None:
    """Write all files of an evaluation, in place of an earlier one."""
    out.mkdir(parents=True, exist_ok=True)
    # Otherwise a killed run would leave new tables next to old scores.
    for name in FILES:
        (out / name).unlink(missing_ok=True)
    remove_partials(out)
    rows = [section_row(section, evaluation.schema) for section in evaluation.sections]
    write_text(out / SECTIONS, rows_text([rows[0], *(row.values() for row in rows)]))
    arrays: dict[str, Any] = {
        "names": np.array([section.name for section in evaluation.sections]),
        "patients": np.array([section.patient for section in evaluation.sections]),
        "final": np.stack([section.confusion for section in evaluation.sections]),
    }
    if evaluation.coarse_tables:
        arrays["coarse"] = np.stack(evaluation.coarse_tables)
    write_arrays(out / CONFUSIONS, arrays)
    counts = {name: [getattr(each.interfaces, name) for each in evaluation.sections] for name in INTERFACE_COUNTS}
    stacks = {name: np.stack(tables) for name, tables in counts.items() if tables[0] is not None}
    write_arrays(out / INTERFACES, stacks)
    if gallery is not None:
        from ntrm.report.charts import confusion_figure
        from ntrm.report.drawing import write_figure

        write_figure(out / CONFUSION_FIGURE, confusion_figure, evaluation.confusion, evaluation.schema)
        gallery.draw(out / EXAMPLES_FIGURE, out / IMPROVEMENT_FIGURE)
    write_json(out / METRICS, evaluation.as_dict())


def section_row(section: SectionResult, schema: LabelSchema) -> dict[str, Any]:
    """A section's row in ``sections.csv``; a score that does not exist is None."""
    scores, boundary = overlap(section.confusion, schema).as_dict(), section.boundary
    before = None if section.coarse is None else overlap(section.coarse, schema).as_dict()["macro"]["iou"]
    return {
        **{name: getattr(section, name) for name in ("name", "patient", "cancer", "pixels")},
        "annotated_pixels": scores["pixels"],
        "pixel_accuracy": scores["pixel_accuracy"],
        **{name: scores["macro"][name] for name in ("iou", "dice", "precision", "recall")},
        "coarse_iou": before,
        f"boundary_f1_{BOUNDARY_UM:g}um": None if boundary is None else mean_of(boundary.boundary_f1(BOUNDARY_UM)),
        "hausdorff95_um": None if boundary is None else mean_of(boundary.hausdorff_um),
        "adjacency_f1": section.graph.f1,
        "length_relative_error": section.graph.relative_error,
        "ece": section.calibration.expected_error,
        "brier": section.calibration.brier,
        "cancers": " ".join(finding.name for finding in section.cancers if finding.present),
        "true_cancers": " ".join(finding.name for finding in section.true_cancers if finding.present),
        "seconds": round(section.seconds, 4),
    }
