"""What a model's training sections are like: a file of aggregates beside its weights. No torch.

``reference.json`` describes it, ``reference.safetensors`` holds the numbers. The first names the weights that it
was made with and the hash of the second: a reference of other weights, or one that was changed, is refused. Every
number is a mean, a covariance or a quantile over many sections, so that nothing describes a single patient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ntrm.core.arrays import Floats
from ntrm.core.errors import DataError
from ntrm.core.io import STRICT, parsed, sha256_of, whole_file, write_json
from ntrm.data.stains import Stains
from ntrm.models.folders import REFERENCE
from ntrm.models.folders import REFERENCE_NUMBERS as NUMBERS
from ntrm.results.familiarity import ASPECTS
from ntrm.version import __version__

AGAIN = "make it again with ntrm calibrate, or delete both files of the reference"

COLOURS, TEXTURES = 3, 6
STATISTICS = COLOURS + TEXTURES  # Of a cell (ntrm.familiarity.cells)

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.9)
"""Of the quantiles that are kept of each score; beyond the last an exponential tail goes on."""


@dataclass(frozen=True, eq=False)
class ReferenceNumbers:
    """K classes, D statistics of cells, A numbers of anatomy, M sizes of sections, Q levels, 3 aspects."""

    class_means: Floats  # (K, D) of training cells
    class_whitening: Floats  # (K, D, D)
    unit_mean: Floats  # (D,) of a section's mean z, over training sections and parts of them
    unit_covariance: Floats  # (D, D) of the same: how sections differ from each other
    anatomy_mean: Floats  # (A,)
    anatomy_covariance: Floats  # (A, A)
    anatomy_most: Floats  # (A,) 99 % quantile over training sections
    smallest_mm2: Floats  # (1,) less tissue cannot be judged
    log_areas: Floats  # (M,) logarithms of mm², rising
    quantiles: Floats  # (3, M, Q) of the scores of held-out sections and parts of them
    tails: Floats  # (3, M) mean excess over the last of these


@dataclass(frozen=True, eq=False)
class Reference:
    """The numbers, and what they describe."""

    numbers: ReferenceNumbers
    classes: tuple[str, ...]
    mpp: float
    about: Mapping[str, Any]  # Sections and patients that it was made from, and how
    sha256: str = ""  # Of the numbers as they are on disk
    stains: Stains | None = None
    """How the training sections are stained, seen from as far as a slide's thumbnail; None where they show no stain."""

    def write(self, folder: Path, weights_sha256: str) -> None:
        """Write both files."""
        from safetensors.numpy import save_file

        arrays = {field.name: np.ascontiguousarray(getattr(self.numbers, field.name)) for field in fields(self.numbers)}
        # A reader that meets half of it finds no document, and takes it for a model without a reference.
        (folder / REFERENCE).unlink(missing_ok=True)
        with whole_file(folder / NUMBERS) as partial:
            save_file(arrays, partial)
        known = {name: getattr(self, name) for name in ("classes", "mpp", "about", "stains")}
        hashes = {"weights_sha256": weights_sha256, "numbers_sha256": sha256_of(folder / NUMBERS)}
        write_json(folder / REFERENCE, _Document(**known | hashes))


@dataclass(frozen=True, kw_only=True)
class _Document:
    """``reference.json``."""

    __pydantic_config__ = STRICT
    format: Literal["ntrm-reference/1"] = "ntrm-reference/1"
    program: str = __version__
    weights_sha256: str
    numbers_sha256: str
    classes: tuple[str, ...]
    mpp: float
    about: dict[str, Any]
    stains: Any = None


def read_reference(folder: Path, weights_sha256: str, classes: tuple[str, ...]) -> Reference | None:
    """The reference of a model's folder, None where there is none; a damaged or foreign one is refused."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = folder / REFERENCE
    if not path.is_file():
        return None
    try:
        document = parsed(_Document, path.read_bytes())
        stains = None if document.stains is None else Stains.parse(document.stains)
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    if document.weights_sha256 != weights_sha256 or document.classes != classes:
        what = "other weights" if document.classes == classes else f"classes {', '.join(document.classes)}"
        raise DataError("the reference belongs to another model", got=what, expected="this model's", hint=AGAIN)
    path = folder / NUMBERS
    try:
        if sha256_of(path) != document.numbers_sha256:
            raise _damaged(path, f"another file than {REFERENCE} names")
        numbers = ReferenceNumbers(**load_file(path))
        _check_numbers(numbers, len(classes))
    except (OSError, SafetensorError, TypeError, ValueError) as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error
    return Reference(numbers, classes, document.mpp, document.about, document.numbers_sha256, stains)


def _check_numbers(numbers: ReferenceNumbers, classes: int) -> None:
    """Refuse what no distance or p-value could be computed with."""
    anatomy, sizes = classes + classes * (classes - 1) // 2, numbers.log_areas.size
    shapes = {
        "class_means": (classes, STATISTICS),
        "class_whitening": (classes, STATISTICS, STATISTICS),
        "unit_mean": (STATISTICS,),
        "unit_covariance": (STATISTICS, STATISTICS),
        "anatomy_mean": (anatomy,),
        "anatomy_covariance": (anatomy, anatomy),
        "anatomy_most": (anatomy,),
        "smallest_mm2": (1,),
        "log_areas": (max(sizes, 1),),
        "quantiles": (len(ASPECTS), sizes, len(LEVELS)),
        "tails": (len(ASPECTS), sizes),
    }
    for name, shape in shapes.items():
        values = getattr(numbers, name)
        if values.shape != shape or values.dtype != np.float64:
            raise ValueError(f"{name}: {values.dtype} of shape {values.shape}, expected float64 of shape {shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name}: values that are no numbers")
    if (np.diff(numbers.log_areas) < 0).any() or (np.diff(numbers.quantiles) < 0).any():
        raise ValueError("sizes or quantiles that do not rise")
    if any(np.linalg.eigvalsh(matrix).min() <= 0 for matrix in (numbers.unit_covariance, numbers.anatomy_covariance)):
        raise ValueError("no covariance: not positive definite")


def _damaged(path: Path, got: object) -> DataError:
    return DataError(f"{path.name} cannot be used", got=got, expected="what ntrm calibrate wrote", hint=AGAIN)
