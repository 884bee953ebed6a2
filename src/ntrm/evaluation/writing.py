"""An evaluation as a folder, with pictures. ``metrics.json`` comes last: where it is, the evaluation is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import PARTIAL, check_writable, remove_partials, rows_text, whole_file, write_json, write_text
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.data.dataset import Dataset
from ntrm.data.split import few_sections
from ntrm.evaluation.result import Evaluation
from ntrm.evaluation.sections import PredictedSection, SectionResult
from ntrm.metrics.boundary import mean_of
from ntrm.metrics.overlap import overlap

EXAMPLES = 6
"""Sections shown whole."""

FIELDS = 4
"""Sections of which the most changed field is shown."""

FIELD_WINDOWS = 2
"""Side of such a field in windows of the network: small enough to see pixels change, large enough to know where."""

Mask = NDArray[np.uint8]


class Gallery:
    """Keeps what will be drawn of the sections that come by, and draws it at the end."""

    def __init__(self, part: Dataset, schema: LabelSchema, window: int) -> None:
        from ntrm.report.picture_grids import Example

        self._schema, self._side = schema, FIELD_WINDOWS * window
        self._shown = {case.name for case in few_sections(part, min(EXAMPLES, len(part)))}
        self._changed = {case.name for case in few_sections(part, min(FIELDS, len(part)))}
        self._examples: list[Example] = []
        self._improvements: list[Example] = []

    def show(self, found: PredictedSection) -> None:
        """Keep this section if it is one of those to be shown."""
        from ntrm.report.picture_grids import Example

        name, mask, coarse = found.case.name, found.stitched.mask, found.stitched.coarse_mask
        if name in self._shown:
            self._examples.append(Example(name, found.section.image, found.truth, {"prediction": mask}))
        if name in self._changed and coarse is not None:
            field = most_changed(found.truth, coarse, mask, self._side)
            whole = (found.section.image, found.truth, coarse, mask)
            image, truth, before, after = (np.array(pixels[field]) for pixels in whole)
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


# An evaluation as a folder. ``metrics.json`` comes last: where it is, the evaluation is whole.


METRICS, SECTIONS, CONFUSIONS = "metrics.json", "sections.csv", "confusions.npz"
CONFUSION_FIGURE, EXAMPLES_FIGURE, IMPROVEMENT_FIGURE = "confusion.png", "examples.png", "improvement.png"
FILES = (METRICS, SECTIONS, CONFUSIONS, CONFUSION_FIGURE, EXAMPLES_FIGURE, IMPROVEMENT_FIGURE)

BOUNDARY_UM = 25.0
"""Tolerance of the boundary F1 in the table of sections."""


def claim_folder(out: Path) -> None:
    """Refuse a folder that holds anything but an evaluation, whole or broken off."""
    if out.exists() and not out.is_dir():
        raise UsageError("the output is not a folder", got=out, hint="choose another --out")
    check_writable(out)
    names = [path.name for path in out.iterdir()] if out.exists() else []
    strange = sorted(name for name in names if name not in FILES and not name.startswith(PARTIAL))
    if strange and not _is_evaluation(out / METRICS):
        raise RefusedError(
            f"the folder {out} holds something that is no evaluation",
            got=", ".join(strange[:3]) + (" …" if len(strange) > 3 else ""),
            hint="choose an empty or a new folder for --out",
        )


def _is_evaluation(path: Path) -> bool:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and {"model", "data", "pooled"} <= document.keys()


def write_evaluation(out: Path, evaluation: Evaluation, gallery: Gallery | None) -> None:
    """Write all files of an evaluation in the place of an earlier one."""
    out.mkdir(parents=True, exist_ok=True)
    # Without this first, a killed run would leave new tables beside old scores.
    for name in FILES:
        (out / name).unlink(missing_ok=True)
    remove_partials(out)
    write_text(out / SECTIONS, sections_table(evaluation))
    _write_confusions(out / CONFUSIONS, evaluation)
    if gallery is not None:
        from ntrm.report.charts import confusion_figure
        from ntrm.report.drawing import write_figure

        write_figure(out / CONFUSION_FIGURE, confusion_figure, evaluation.confusion, evaluation.schema)
        gallery.draw(out / EXAMPLES_FIGURE, out / IMPROVEMENT_FIGURE)
    write_json(out / METRICS, evaluation.as_dict())


def sections_table(evaluation: Evaluation) -> str:
    """CSV text, one row for each section; a score that does not exist is an empty cell."""
    rows = [_row(section, evaluation.schema) for section in evaluation.sections]
    return rows_text([rows[0], *(row.values() for row in rows)])


def _row(section: SectionResult, schema: LabelSchema) -> dict[str, Any]:
    scores = overlap(section.confusion, schema).as_dict()
    before = None if section.coarse is None else overlap(section.coarse, schema).as_dict()["macro"]["iou"]
    boundary = section.boundary
    return {
        "name": section.name,
        "patient": section.patient,
        "cancer": section.cancer,
        "pixels": section.pixels,
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


def _write_confusions(path: Path, evaluation: Evaluation) -> None:
    """Arrays ``names``, ``patients``, ``final`` (S, K, K) and, with a coarse head, ``coarse``."""
    arrays: dict[str, Any] = {
        "names": np.array([section.name for section in evaluation.sections]),
        "patients": np.array([section.patient for section in evaluation.sections]),
        "final": np.stack([section.confusion for section in evaluation.sections]),
    }
    coarse = [section.coarse for section in evaluation.sections if section.coarse is not None]
    if coarse:
        arrays["coarse"] = np.stack(coarse)
    with whole_file(path) as partial, partial.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
