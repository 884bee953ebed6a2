"""The scores of one network on one part of a dataset, as one document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ntrm.evaluation.cancers import score_cancers
from ntrm.evaluation.interfaces import InterfaceCounts
from ntrm.evaluation.robustness import RobustnessRow
from ntrm.evaluation.sections import SectionResult
from ntrm.labels import LabelSchema
from ntrm.metrics.boundary import BoundaryAgreement
from ntrm.metrics.calibration import CalibrationCounts
from ntrm.metrics.confusion import Counts
from ntrm.metrics.graph_agreement import GraphAgreement
from ntrm.metrics.overlap import Overlap, per_section, pooled
from ntrm.stitching import Stitching
from ntrm.version import __version__


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of one network on one part of a dataset."""

    schema: LabelSchema
    """Of the network; masks of the dataset were matched to it by name."""
    sections: tuple[SectionResult, ...]
    model: dict[str, Any]
    data: dict[str, Any]
    stitching: Stitching
    robustness: tuple[RobustnessRow, ...] | None = None
    command: tuple[str, ...] = ()
    device: str = ""
    seconds: float = 0.0

    @cached_property
    def pooled(self) -> Overlap:
        """All pixels together: the headline."""
        return pooled([section.confusion for section in self.sections], self.schema)

    @cached_property
    def per_section(self) -> Overlap:
        """Every section scored by itself, then averaged."""
        return per_section([section.confusion for section in self.sections], self.schema)

    @cached_property
    def initial(self) -> Overlap | None:
        """All pixels together as the coarse head sees them; None without one."""
        tables = [section.initial for section in self.sections if section.initial is not None]
        return pooled(tables, self.schema) if tables else None

    @cached_property
    def calibration(self) -> CalibrationCounts:
        """All sections together."""
        first, *rest = (section.calibration for section in self.sections)
        return sum(rest, first)

    @cached_property
    def interfaces(self) -> InterfaceCounts:
        """All sections together."""
        return InterfaceCounts.total([section.interfaces for section in self.sections])

    @property
    def confusion(self) -> Counts:
        """(K, K) all sections together."""
        total: Counts = np.sum([section.confusion for section in self.sections], axis=0)
        return total

    def as_dict(self) -> dict[str, Any]:
        """``metrics.json``."""
        boundaries = [section.boundary for section in self.sections if section.boundary is not None]
        calibration = self.calibration.as_dict()
        return {
            "program": __version__,
            "model": self.model,
            "data": self.data,
            "classes": list(self.schema.names),
            "pooled": self.pooled.as_dict(),
            "per_section": self.per_section.as_dict(),
            "initial": None if self.initial is None else self.initial.as_dict(),
            "boundary": BoundaryAgreement.total(boundaries).as_dict() if boundaries else None,
            "graph": GraphAgreement.total([section.graph for section in self.sections]).as_dict(),
            "calibration": {"ece": calibration.pop("expected_calibration_error"), **calibration},
            "interfaces": self.interfaces.as_dict(),
            "claims": self.claims(),
            "cancers": self._cancers(),
            "robustness": None if self.robustness is None else [row.as_dict() for row in self.robustness],
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
        scc = self.schema.index("SCC")
        before = [section.initial for section in self.sections if section.initial is not None]
        return {
            "scc_false_positives": {
                "initial": _false_positives(np.sum(before, axis=0), scc) if before else None,
                "final": _false_positives(self.confusion, scc),
                "other_pixels": int(self.confusion.sum() - self.confusion[scc].sum()),
            }
        }

    def _cancers(self) -> dict[str, Any] | None:
        if not any(section.cancers for section in self.sections):
            return None
        pairs = [section.cancers for section in self.sections], [section.true_cancers for section in self.sections]
        return score_cancers(*pairs).as_dict()


def _false_positives(confusion: Counts, index: int) -> int:
    """Pixels called this class that are another."""
    return int(confusion[:, index].sum() - confusion[index, index])
