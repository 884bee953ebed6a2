"""The scores of one network on one split, as one document, and that document read back and checked."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.labels import LabelSchema
from ntrm.evaluation.interfaces import InterfaceCounts
from ntrm.evaluation.robustness import RobustnessRow
from ntrm.evaluation.sections import SectionResult
from ntrm.inference.sliding_window import Stitching
from ntrm.metrics.boundary import BoundaryAgreement
from ntrm.metrics.calibration import CalibrationCounts
from ntrm.metrics.cancer_rule import score_cancers
from ntrm.metrics.confusion import Counts
from ntrm.metrics.graph_agreement import GraphAgreement
from ntrm.metrics.overlap import Overlap, per_section, pooled
from ntrm.metrics.significance import pixel_accuracy
from ntrm.models.names import network_saved_as
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
    def coarse(self) -> Overlap | None:
        """All pixels together as the coarse head sees them; None without one."""
        tables = [section.coarse for section in self.sections if section.coarse is not None]
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
            "coarse": None if self.coarse is None else self.coarse.as_dict(),
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
        before = [section.coarse for section in self.sections if section.coarse is not None]
        return {
            "scc_false_positives": {
                "coarse": _false_positives(np.sum(before, axis=0), scc) if before else None,
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


# An evaluation read back from its folder, and checked: what ``ntrm evaluate`` wrote, for those who compare.


METRICS, CONFUSIONS = "metrics.json", "confusions.npz"

TRAITS = ("arch", "options", "recipe", "init", "encoder_init", "data", "sections", "level", "mpp")
"""What tells models of one name apart, beside how they were stitched; the seed does not."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One evaluation, read back and checked."""

    folder: Path
    name: str
    """The model's name, or its architecture."""
    traits: Mapping[str, str]
    """Everything that tells models apart, flat, as text."""
    seed: int | None
    """Of its training; None where it is not known."""
    sha256: str | None
    data: Mapping[str, Any]
    """Fingerprint, split, resolution."""
    classes: tuple[str, ...]
    sections: tuple[str, ...]
    patients: tuple[str, ...]
    confusions: NDArray[np.int64] = field(repr=False)
    """(S, K, K)"""


def read_evaluation(folder: Path) -> Evaluated:
    """Read an evaluation back, and refuse one that is incomplete or whose files do not belong together."""
    document = _read_metrics(folder / METRICS)
    arrays = _read_confusions(folder / CONFUSIONS)
    try:
        model, data = document["model"], document["data"]
        model = {**model, "arch": network_saved_as(str(model["arch"]))}
        found = Evaluated(
            folder=folder,
            name=str(model.get("name") or model["arch"]),
            traits=_traits({**{key: model.get(key) for key in TRAITS}, "stitching": document.get("stitching")}),
            seed=None if model["seed"] is None else int(model["seed"]),
            sha256=None if model.get("sha256") is None else str(model["sha256"]),
            data={key: data.get(key) for key in ("fingerprint", "split", "level", "mpp")},
            classes=tuple(map(str, document["classes"])),
            sections=tuple(arrays["names"].astype(str).ravel().tolist()),
            patients=tuple(arrays["patients"].astype(str).ravel().tolist()),
            confusions=arrays["final"],
        )
        accuracy = document["pooled"]["pixel_accuracy"]
        pooled = None if accuracy is None else float(accuracy)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataError(
            f"{folder / METRICS} cannot be understood",
            got=f"{type(error).__name__}: {error}",
            hint="evaluate again with this version of ntrm",
        ) from error
    _check_whole(found, pooled)
    return found


def _traits(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values as one flat table: ``{"options": {"width": 0.5}}`` becomes ``{"width": "0.5"}``."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            inner = prefix if key == "options" else f"{prefix}{key}."
            flat.update(_traits(dict(sorted(value.items())), inner))
        else:
            flat[prefix + key] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return flat


def _check_whole(found: Evaluated, pooled: float | None) -> None:
    """Refuse counts that do not fit the sections and classes, or that are not the ones the scores came from."""
    count, classes = len(found.sections), len(found.classes)
    fits = found.confusions.shape == (count, classes, classes) and found.confusions.dtype.kind in "iu"
    if not fits or len(found.patients) != count or len(set(found.sections)) != count or not count:
        raise DataError(
            f"{found.folder / CONFUSIONS} does not fit its evaluation",
            got=f"{count} sections, {len(found.patients)} patients, {found.confusions.dtype} {found.confusions.shape}",
            expected=f"whole numbers (S, {classes}, {classes}) for S sections of different names",
            hint="evaluate again",
        )
    total = found.confusions.sum(axis=0).astype(np.float64)
    accuracy = pixel_accuracy(total[None])[0]
    if pooled is None or not abs(accuracy - pooled) < 1e-9:
        raise DataError(
            f"{METRICS} and {CONFUSIONS} of {found.folder} are not of one evaluation",
            got=f"pixel accuracy {pooled} and {accuracy:.6f}",
            expected="the same score of both",
            hint="evaluate again",
        )


def _read_metrics(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(
            f"{path.parent} holds no evaluation",
            got=f"no {METRICS}",
            expected="a folder that `ntrm evaluate --out` wrote",
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}", got=error, hint="evaluate again") from error
    return document if isinstance(document, dict) else {}


def _read_confusions(path: Path) -> dict[str, NDArray[Any]]:
    try:
        # Opened here: numpy leaves a file open that turns out to be no archive.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in ("names", "patients", "final")}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise DataError(f"cannot read {path}", got=f"{type(error).__name__}: {error}", hint="evaluate again") from error
