"""Which sections an evaluation shows: spread over the cancer types, and where the second look changed most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.data.cases import Dataset
from ntrm.data.parts import few_sections
from ntrm.evaluation.sections import PredictedSection
from ntrm.labels import IGNORE, LabelSchema

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
        from ntrm.report.evaluation_figures import Improvement
        from ntrm.report.training_figures import Example

        self._schema, self._side = schema, FIELD_WINDOWS * window
        self._shown = {case.name for case in few_sections(part, min(EXAMPLES, len(part)))}
        self._changed = {case.name for case in few_sections(part, min(FIELDS, len(part)))}
        self._examples: list[Example] = []
        self._improvements: list[Improvement] = []

    def show(self, found: PredictedSection) -> None:
        """Keep this section if it is one of those to be shown."""
        from ntrm.report.evaluation_figures import Improvement
        from ntrm.report.training_figures import Example

        name, mask, initial = found.case.name, found.stitched.mask, found.stitched.initial_mask
        if name in self._shown:
            self._examples.append(Example(name, found.section.image, found.truth, mask))
        if name in self._changed and initial is not None:
            field = most_changed(found.truth, initial, mask, self._side)
            parts = (np.array(each[field]) for each in (found.section.image, found.truth, initial, mask))
            self._improvements.append(Improvement(name, *parts))

    def draw(self, examples: Path, improvement: Path) -> None:
        """Write the two figures; the second only for networks with a coarse head."""
        from ntrm.report.evaluation_figures import improvement_figure
        from ntrm.report.training_figures import examples_figure

        examples_figure(self._examples, self._schema, examples)
        if self._improvements:
            improvement_figure(self._improvements, self._schema, improvement)


def most_changed(truth: Mask, initial: Mask, final: Mask, side: int) -> tuple[slice, slice]:
    """Rows and columns of the field, at most ``side`` pixels square, with the most corrected and broken pixels."""
    changed = ((initial == truth) != (final == truth)) & (truth != IGNORE)
    high, wide = (min(side, length) for length in truth.shape)
    # Sums over every field at once; those that would leave the section are cut off.
    sums = ndimage.uniform_filter(changed.astype(np.float32), size=(high, wide), mode="constant")
    top, left = high // 2, wide // 2
    inside = sums[top : truth.shape[0] - high + top + 1, left : truth.shape[1] - wide + left + 1]
    row, column = np.unravel_index(int(inside.argmax()), inside.shape)
    return slice(int(row), int(row) + high), slice(int(column), int(column) + wide)
