"""A run on disk: its folder, whether it is the same run as before, its result and its provenance.

The provenance is everything needed to reproduce a result, and nothing about who made it.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import ntrm
from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import PARTIAL, check_folder, holding, read_json, remove_partials, write_json
from ntrm.core.processes import HOME, child_environment
from ntrm.core.wording import short_repr
from ntrm.models.folders import CONFIG
from ntrm.training.recipe import Recipe, write_recipe
from ntrm.version import __version__

PROVENANCE, RECIPE, MODEL = "provenance.json", "recipe.yaml", "model"
LOCK = ".lock"  # Held while a training works in a folder; stays where a run is not finished
CORRECTED_DATA = "corrections"  # Corrected slides that a run learns from, as a dataset

IDENTITY = ("arch", "options", "seed", "level", "mpp", "sections", "init", "init_sha256", "data", "recipe")
"""Keys of the provenance that make two runs the same run."""

FREE = ("workers", "resident")  # Fields of a recipe that do not change the result


@dataclass(frozen=True)
class RunResult:
    """The result of a finished training."""

    folder: Path
    model: Path
    steps: int
    epochs: float
    best: dict[str, Any]  # Scores of the kept weights, with their step and epoch
    seconds: float
    provenance: dict[str, Any]

    __repr__ = short_repr

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        # Without levels in the layout there is none, as other commands say it.
        provenance = {**self.provenance, "level": self.provenance.get("level") or None}
        return {**asdict(self), "folder": str(self.folder), "model": str(self.model), "provenance": provenance}


def read_result(out: Path) -> RunResult | None:
    """The result of a finished run; None where there is none."""
    document = _read_provenance(out)
    if not document.get("finished") or not (out / MODEL / CONFIG).is_file():
        return None
    outcome = {name: document[name] for name in ("steps", "epochs", "best", "seconds")}
    return RunResult(out, out / MODEL, **outcome, provenance=document)


@contextmanager
def locked(out: Path, *, resume: bool) -> Iterator[None]:
    """Hold ``out`` against other trainings; it must be new, empty, or (``resume``) the folder of a run.

    Where no run is begun, nothing is left behind.
    """
    check_folder(out)
    new = not out.exists()
    with holding(out / LOCK):
        try:
            # Corrected slides are written before the run begins.
            if not all(path.name.startswith(PARTIAL) or path.name in (LOCK, CORRECTED_DATA) for path in out.iterdir()):
                elsewhere = "choose an empty or a new folder"
                if not resume:
                    raise RefusedError(
                        "the folder is not empty", got=out, hint=f"continue with --resume, or {elsewhere}"
                    )
                if not _read_provenance(out):
                    raise RefusedError("there is no run in this folder", got=out, expected=PROVENANCE, hint=elsewhere)
            yield
        finally:
            if not (out / PROVENANCE).is_file() or read_result(out) is not None:
                (out / LOCK).unlink(missing_ok=True)
            if new:
                with suppress(OSError):  # it is not empty: the run is begun
                    out.rmdir()


@dataclass(frozen=True)
class TrainingRun:
    """A training that is about to start or to resume: everything that decides its result, and where it goes."""

    out: Path
    arch: str
    options: Mapping[str, Any]
    level: str
    mpp: float
    sections: int | None
    init: str | None
    seed: int
    recipe: Recipe
    data: str  # Fingerprint of the dataset
    name: str
    device: torch.device
    command: tuple[str, ...] = ()
    init_sha256: str | None = None  # Of the weights of the model to start from
    corrections: Mapping[str, Any] | None = None  # Which versions of which corrections are learned from

    def check(self) -> None:
        """Make sure that a run that is already in the folder is the same."""
        document = _read_provenance(self.out)
        if not document:
            return
        before, now = _identity(document), _identity(self._document())
        names = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
        if names:
            # The name that the user gave may mean another network by now.
            network = f" (--arch {before['arch']} is the network of this run)" if "arch" in names else ""
            raise RefusedError(
                "this folder contains a different run",
                got="; ".join(f"{name} {now.get(name)}" for name in names),
                expected="; ".join(f"{name} {before.get(name)}" for name in names),
                hint=f"give the same settings as before{network}, or choose a new folder",
            )

    def begin(self, init_report: Mapping[str, Any] | None, windows: int = 0, unknown_windows: int = 0) -> None:
        """Write what is known before the first step: what is run, on which data, by which code, where and when.

        A run that goes on from a checkpoint has no ``init_report``: it started as its provenance says.
        """
        before = _read_provenance(self.out)
        remove_partials(self.out)
        document = self._document() | {"windows": windows, "unknown_windows": unknown_windows}
        if init_report is None:
            document |= {key: before.get(key) for key in ("encoder_init", "init_report")}
        else:
            document |= {"encoder_init": init_report["encoder"], "init_report": dict(init_report)}
        write_json(self.out / PROVENANCE, document | {"sessions": int(before.get("sessions", 0)) + 1})
        write_recipe(self.recipe, self.out / RECIPE)

    def end(self, steps: int, epochs: float, best: dict[str, Any], seconds: float, *, write: bool) -> RunResult:
        """Write the result; only a run whose provenance says so is finished."""
        document = _read_provenance(self.out) if write else {}
        document |= {"finished": True, "steps": steps, "epochs": epochs, "seconds": seconds, "best": best}
        if write:
            write_json(self.out / PROVENANCE, document)
        return RunResult(self.out, self.out / MODEL, steps, epochs, best, seconds, document if write else {})

    def _document(self) -> dict[str, Any]:
        """The provenance, but for what is known only when the run begins."""
        apart = ("out", "device", "recipe", "corrections")
        return {
            **{field.name: getattr(self, field.name) for field in fields(self) if field.name not in apart},
            "recipe": self.recipe.as_dict(),
            "finished": False,
            **({} if self.corrections is None else {"corrections": dict(self.corrections)}),
            "versions": versions(),
            "git": git_state(),
            "device": describe_device(self.device),
            # Never the machine's name (platform.node), which often is its owner's.
            "platform": {name: getattr(platform, name)() for name in ("system", "release", "machine")},
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def _identity(document: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs must have in common to be the same run: fields of the recipe, for one, as ``recipe.batch``."""
    plain = json.loads(json.dumps({name: document.get(name) for name in IDENTITY}, default=str))
    for name in ("recipe", "options"):
        parts = plain.pop(name) or {}
        plain |= {f"{name}.{key}": value for key, value in parts.items() if key not in FREE}
    return dict(plain)


def _read_provenance(out: Path) -> dict[str, Any]:
    path, hint = out / PROVENANCE, "choose a new folder"
    document = read_json(path, hint=hint) if path.is_file() else {}
    if not isinstance(document, dict):
        raise DataError(f"{path} is not a provenance record", got=type(document).__name__, hint=hint)
    return document


# --- provenance ---


def versions() -> dict[str, str | None]:
    """Versions of the program, of Python, of CUDA and of the libraries; those that are not installed are left out."""
    known: dict[str, str | None] = {"ntrm": __version__, "python": platform.python_version()}
    for name in ("numpy", "scipy", "safetensors", "tifffile", "pillow", "transformers", "timm"):
        with suppress(importlib.metadata.PackageNotFoundError):
            known[name] = importlib.metadata.version(name)
    cudnn = torch.backends.cudnn.version() if torch.version.cuda else None  # type: ignore[no-untyped-call]
    known |= {"torch": torch.__version__, "cuda": torch.version.cuda}
    return known | {"cudnn": None if cudnn is None else str(cudnn)}


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """Commit of the package's source (or of ``folder``), and whether it was changed; None for an installed copy."""
    # Not git's own variables: a hook of another repository names that one there.
    # Without optional locks, `status` leaves the repository as it is.
    environment = {**child_environment(*HOME), "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder or Path(ntrm.__file__).parent), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10, env=environment)  # noqa: S603
        return done.stdout.strip()

    try:
        # A package installed inside someone's repository is not part of it: only a tracked one has that history.
        if not git("ls-files", "--", "."):
            return None
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain", "--", "."))}
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None


def describe_device(device: torch.device) -> dict[str, Any]:
    """Kind and name of a device, and its memory where it has its own."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gib = round(properties.total_memory / 2**30, 1)
        return {"type": "cuda", "name": properties.name, "memory_gib": gib, "count": torch.cuda.device_count()}
    name = platform.processor() or platform.machine()
    return {"type": device.type, "name": name, "threads": torch.get_num_threads()}
