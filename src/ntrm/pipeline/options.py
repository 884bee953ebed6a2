"""Options of a segmentation; a folder of results holds those of one model and one set of options only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, RefusedError, UsageError, check_number
from ntrm.core.io import remove_partials, write_json
from ntrm.evaluation.loaded_model import LoadedModel
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Stitching
from ntrm.results.paths import RUN
from ntrm.version import __version__

FORMAT = "ntrm-results/1"
PURPOSE = "for research, not for diagnosis"
MOST_AREA_UM2 = 20_000.0
"""Larger regions are not small: ten times the stray spot of tumour that is not measured."""


@dataclass(frozen=True)
class Options:
    """What a user may choose that changes results."""

    tissue_mask: bool = True
    """Leave out glass; without, every window is predicted."""
    strict: bool = False
    """Refuse slides of poor quality instead of warning."""
    overlap: int | None = None
    """Pixels that windows share; a quarter of the window if None."""
    simplify_um: float | None = None
    """Simplify polygons by at most this; exact pixel edges if None."""
    gzip: bool = False
    """Compress the polygons."""
    zarr: bool = False
    """Also write labels.zarr."""
    maps: bool = False
    """Also write confidence.ome.tif and, where the network has a coarse head, coarse.ome.tif."""
    probabilities: bool = False
    """Also write probabilities.zarr."""
    report: bool = True
    """Write report.html; it only repeats other files, and so is not part of a run's identity."""
    min_area_um2: float = 0.0
    """Smaller regions are relabelled as what lies around them; 0 leaves all as the network has them."""

    def __post_init__(self) -> None:
        if self.simplify_um is not None:
            check_number("simplification in µm", self.simplify_um, 0, 1000)
        check_number("least area in µm²", self.min_area_um2, 0, MOST_AREA_UM2)
        # 64 and 64.0 are one option, and must look alike in every output.
        object.__setattr__(self, "min_area_um2", float(self.min_area_um2))

    @property
    def lasting(self) -> dict[str, Any]:
        """Those that all results of a folder have in common."""
        return {key: value for key, value in asdict(self).items() if key != "report"}

    def stitching(self, window: int) -> Stitching:
        """Windows of the network's own size."""
        return Stitching(window) if self.overlap is None else Stitching(window, self.overlap)


@dataclass(frozen=True, eq=False)
class Identity:
    """Model, program and options of a run."""

    model: dict[str, Any]
    options: dict[str, Any]
    classes: tuple[str, ...]

    @classmethod
    def of(cls, subject: LoadedModel, predictor: Predictor, options: Options) -> Identity:
        """All that decides the bytes of the results; batch and precision change how a network rounds."""
        config, known = subject.config, subject.as_dict()
        model = {key: known[key] for key in ("name", "arch", "version", "sha256", "mpp", "window", "temperature")}
        chosen = {
            **options.lasting,
            **options.stitching(config.window).as_dict(),
            "device": predictor.device.type,
            "precision": str(predictor.precision).removeprefix("torch."),
            "batch": predictor.batch,
        }
        return cls(model, chosen, config.schema.names)

    def as_dict(self) -> dict[str, Any]:
        """For JSON; every output carries it."""
        return {
            "program": {"name": "ntrm", "version": __version__},
            "model": self.model,
            "options": self.options,
            "classes": list(self.classes),
            "purpose": PURPOSE,
        }

    def cells(self) -> dict[str, Any]:
        """For the rows of tables."""
        return {
            "model_name": self.model["name"] or self.model["arch"],
            "model_version": self.model["version"],
            "model_sha256": self.model["sha256"],
            "ntrm_version": __version__,
        }


def claim(out: Path, identity: Identity, covariates: Sequence[str]) -> list[str]:
    """Make ``out`` a folder of this run's results, or check that it is one; returns all covariates seen there.

    To be called by one process at a time.
    """
    before = read_run(out)
    remove_partials(out)
    mine = {"format": FORMAT, **identity.as_dict()}
    seen = list(before.get("covariates", ()))
    differing = sorted(key for key in mine if before and before.get(key) != mine[key])
    if differing:
        raise RefusedError(
            f"{out} holds results of another run",
            got=_differences(before, mine, differing),
            expected="the same model, program and options",
            hint="choose another --out, or give the options of before",
        )
    together = [*dict.fromkeys([*seen, *covariates])]
    if not before or together != seen:
        write_json(out / RUN, {**mine, "covariates": together})
    return together


def read_run(out: Path) -> dict[str, Any]:
    """What ``out`` was made with; empty where it is new or empty. Refuses a folder of something else."""
    path = out / RUN
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        strange = [path.name for path in out.iterdir() if not path.name.startswith(".")] if out.is_dir() else []
        if strange:
            raise RefusedError(
                f"{out} is not empty and holds no results",
                got=strange[0],
                hint="choose a new or an empty folder for --out",
            ) from None
        return {}
    except NotADirectoryError as error:
        raise UsageError("the output is not a folder", got=out, hint="choose another --out") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}", got=error, hint="choose another --out") from error
    covariates = document.get("covariates", []) if isinstance(document, dict) else None
    if not isinstance(covariates, list) or not all(isinstance(name, str) for name in covariates):
        raise DataError(f"{path} is no record of a run", hint="choose another --out")
    return dict(document)


def _differences(before: dict[str, Any], mine: dict[str, Any], keys: Sequence[str]) -> str:
    """The values that differ, down to the single option."""
    differences = []
    for key in keys:
        old, new = before.get(key), mine[key]
        if isinstance(old, dict) and isinstance(new, dict):
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            differences += [f"{key} {name} {old.get(name)!r}, not {new.get(name)!r}" for name in names]
        else:
            differences.append(f"{key} {old!r}, not {new!r}")
    return "; ".join(differences)
