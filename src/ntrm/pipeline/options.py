"""What results were made with, and that a folder of results holds those of one model and one set of options only."""

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
"""Nobody takes more for a speck: ten times the stray spot of tumour that is not measured."""


@dataclass(frozen=True)
class Options:
    """What a user may choose and what changes results."""

    tissue_mask: bool = True
    """Leave out glass; without, every window is predicted."""
    strict: bool = False
    """Refuse slides of poor quality instead of warning."""
    overlap: int | None = None
    """Pixels that windows share; a quarter of the window if None."""
    simplify_um: float | None = None
    """Simplify polygons by at most so much; exact pixel edges if None."""
    gzip: bool = False
    """Compress the polygons."""
    zarr: bool = False
    """Also write labels.zarr."""
    maps: bool = False
    """Also write confidence.ome.tif and, where the network has a coarse head, coarse.ome.tif."""
    probabilities: bool = False
    """Also write probabilities.zarr."""
    report: bool = True
    """Write report.html; it says nothing that the other files do not, and so is not part of a run's identity."""
    min_area_um2: float = 0.0
    """Regions of less are given to what lies around them; 0 leaves all as the network has them."""

    def __post_init__(self) -> None:
        if self.simplify_um is not None:
            check_number("simplification in µm", self.simplify_um, 0, 1000)
        check_number("least area in µm²", self.min_area_um2, 0, MOST_AREA_UM2)
        # 64 and 64.0 are one option, and must be told alike in every output.
        object.__setattr__(self, "min_area_um2", float(self.min_area_um2))

    @property
    def lasting(self) -> dict[str, Any]:
        """Those that results of one folder must share."""
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
        """Whatever has a say in the bytes of the results; batch and precision change how a network rounds."""
        config = subject.config
        keys = ("name", "arch", "version", "sha256", "mpp", "window", "temperature")
        machine = {
            "device": predictor.device.type,
            "precision": str(predictor.precision).removeprefix("torch."),
            "batch": predictor.batch,
        }
        stitching = options.stitching(config.window).as_dict()
        known = subject.as_dict()
        return cls({key: known[key] for key in keys}, {**options.lasting, **stitching, **machine}, config.schema.names)

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
    before = _read_run(out)
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
    together = [*seen, *(name for name in covariates if name not in seen)]
    if not before or together != seen:
        write_json(out / RUN, {**mine, "covariates": together})
    return together


def check_out(out: Path) -> None:
    """Refuse a folder of something else, before the least thing is written to it."""
    _read_run(out)


def _read_run(out: Path) -> dict[str, Any]:
    path = out / RUN
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        strange = [each.name for each in out.iterdir() if not each.name.startswith(".")] if out.is_dir() else []
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
    if not isinstance(document, dict) or not _are_names(document.get("covariates", [])):
        raise DataError(f"{path} is no record of a run", hint="choose another --out")
    return document


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _differences(before: dict[str, Any], mine: dict[str, Any], keys: Sequence[str]) -> str:
    """The values that differ, down to the single option."""
    found = []
    for key in keys:
        old, new = before.get(key), mine[key]
        if isinstance(old, dict) and isinstance(new, dict):
            names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
            found += [f"{key} {name} {old.get(name)!r}, not {new.get(name)!r}" for name in names]
        else:
            found.append(f"{key} {old!r}, not {new!r}")
    return "; ".join(found)
