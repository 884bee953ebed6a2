"""Where a result comes from: everything needed to make it again, and nothing about who made it."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import ntrm
from ntrm.core.errors import UsageError
from ntrm.core.processes import HOME, child_environment
from ntrm.training.recipe import Recipe
from ntrm.version import __version__

LIBRARIES = (
    "torch",
    "lightning",
    "numpy",
    "scipy",
    "scikit-image",
    "safetensors",
    "tifffile",
    "pillow",
    "torchmetrics",
    "transformers",
    "timm",
)
"""Distributions whose version can change a result; the last two where they are installed."""

_PATIENCE_S = 10.0


def provenance(
    *,
    command: Sequence[str],
    recipe: Recipe | None,
    seed: int,
    device: torch.device,
    parts_fingerprint: object,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A JSON document: what was run, on which data, by which code, where and when.

    ``extra`` comes first (what the run is: architecture, options …) and may not replace what stands here. A number
    that JSON cannot write (NaN, infinity) becomes null.
    """
    document = {
        "command": list(command),
        "seed": seed,
        "recipe": None if recipe is None else recipe.as_dict(),
        "data": parts_fingerprint,
        "versions": versions(),
        "git": git_state(),
        "device": describe_device(device),
        "platform": _platform(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    twice = sorted(document.keys() & (extra or {}).keys())
    if twice:
        raise UsageError("provenance is told twice", got=", ".join(twice), expected=f"other keys than {[*document]}")
    plain: dict[str, Any] = _plain({**(extra or {}), **document}, "provenance")
    return plain


def versions() -> dict[str, str | None]:
    """Versions of the program, of Python, of CUDA and of the libraries; those that are not installed are left out."""
    found: dict[str, str | None] = {"ntrm": __version__, "python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["torch"] = torch.__version__  # with its build, which the distribution's version may lack
    cudnn = torch.backends.cudnn.version() if torch.version.cuda else None  # type: ignore[no-untyped-call]
    return {**found, "cuda": torch.version.cuda, "cudnn": None if cudnn is None else str(cudnn)}


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """Commit of the package's source, and whether it was changed since; None for an installed copy.

    ``folder`` is the package's own where none is given.
    """
    folder = Path(ntrm.__file__).parent if folder is None else folder
    # A package installed inside someone's repository is not part of it: only a tracked one has that history.
    tracked = _git(folder, "ls-files", "--", ".")
    commit = _git(folder, "rev-parse", "HEAD") if tracked else None
    changes = _git(folder, "status", "--porcelain", "--", ".") if commit else None
    return None if commit is None or changes is None else {"commit": commit, "dirty": bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    program = shutil.which("git")
    if program is None:
        return None
    # Not git's own variables: a hook of another repository names that one there.
    # Without optional locks, `status` leaves the repository as it is.
    surroundings = {**child_environment(*HOME), "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, no shell
            [program, "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
            env=surroundings,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def describe_device(device: torch.device) -> dict[str, Any]:
    """Kind and name of a device, and its memory where it has its own."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        gib = round(properties.total_memory / 2**30, 1)
        return {"type": "cuda", "name": properties.name, "memory_gib": gib, "count": torch.cuda.device_count()}
    name = platform.processor() or platform.machine()
    return {"type": device.type, "name": name, "threads": torch.get_num_threads()}


def _platform() -> dict[str, Any]:
    # Never the machine's name (platform.node), which often is its owner's.
    return {"system": platform.system(), "release": platform.release(), "machine": platform.machine()}


def _plain(value: Any, where: str) -> Any:
    """``value`` as JSON has it: tuples become lists, paths and numpy's numbers what they stand for."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each, f"{where}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, where) for each in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # numpy's and torch's numbers
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    try:
        json.dumps(value)
    except TypeError as error:
        raise UsageError(f"{where} cannot be written as JSON", got=type(value).__name__) from error
    return value
