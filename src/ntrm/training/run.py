"""A run on disk: who may write into its folder, whether it is the same run, and what came out of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import PARTIAL, remove_partials, write_json
from ntrm.models.names import network_saved_as
from ntrm.models.saving import CONFIG
from ntrm.training.provenance import provenance
from ntrm.training.recipe import Recipe, write_recipe

PROVENANCE, RECIPE, MODEL = "provenance.json", "recipe.yaml", "model"

IDENTITY = ("arch", "options", "seed", "level", "mpp", "sections", "init", "data", "recipe")
"""What makes two runs the same run: parts of its provenance."""

_FREE = ("workers", "resident")
"""Parts of a recipe that do not touch the result."""


@dataclass(frozen=True)
class RunResult:
    """What a training has come to."""

    folder: Path
    model: Path
    finished: bool
    steps: int
    epochs: float
    best: dict[str, Any]
    """Scores of the kept weights, with their step and epoch."""
    seconds: float
    provenance: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "folder": str(self.folder),
            "model": str(self.model),
            "finished": self.finished,
            "steps": self.steps,
            "epochs": self.epochs,
            "best": self.best,
            "seconds": self.seconds,
            "provenance": self.provenance,
        }


def read_result(out: Path) -> RunResult | None:
    """The result of a finished run; None where there is none."""
    before = _read_provenance(out)
    if before is None or not before.get("finished") or not (out / MODEL / CONFIG).is_file():
        return None
    return RunResult(
        folder=out,
        model=out / MODEL,
        finished=True,
        steps=int(before["steps"]),
        epochs=float(before["epochs"]),
        best=dict(before["best"]),
        seconds=float(before["seconds"]),
        provenance=before,
    )


def check_folder(out: Path, *, resume: bool) -> None:
    """Make sure that ``out`` may be written to: new, empty, or (``resume``) the folder of a run."""
    if out.exists() and not out.is_dir():
        raise UsageError("the output is not a folder", got=out, mend="choose another --out")
    if not out.exists() or all(path.name.startswith(PARTIAL) for path in out.iterdir()):
        return
    if not resume:
        raise RefusedError(
            "the folder is not empty", got=out, mend="go on with --resume, or choose an empty or a new folder"
        )
    if _read_provenance(out) is None:
        raise RefusedError(
            "there is no run in this folder", got=out, expected=PROVENANCE, mend="choose an empty or a new folder"
        )


@dataclass(frozen=True)
class Run:
    """A training that is about to begin or to go on: everything that decides its result, and where it goes."""

    out: Path
    arch: str
    options: Mapping[str, Any]
    level: str
    mpp: float
    sections: int | None
    init: str | None
    seed: int
    recipe: Recipe
    data: str
    """Fingerprint of the dataset."""
    name: str
    device: torch.device
    command: tuple[str, ...] = ()

    def check(self) -> None:
        """Make sure that a run that is there already is the very same."""
        before = _read_provenance(self.out)
        changes = {} if before is None else differences(before, self.identity())
        if changes:
            raise RefusedError(
                "the run in this folder is another one",
                got="; ".join(f"{name} {now}" for name, (_, now) in changes.items()),
                expected="; ".join(f"{name} {then}" for name, (then, _) in changes.items()),
                mend=f"give the same settings as before{_same_network(changes)}, or choose a new folder",
            )

    def begin(self, encoder_init: str, init_report: Mapping[str, Any]) -> None:
        """Write what is known before the first step."""
        remove_partials(self.out)
        before = _read_provenance(self.out) or {}
        document = provenance(
            command=self.command,
            recipe=self.recipe,
            seed=self.seed,
            device=self.device,
            parts_fingerprint=self.data,
            extra={
                **{key: value for key, value in self.identity().items() if key not in ("seed", "recipe", "data")},
                "name": self.name,
                "encoder_init": encoder_init,
                "init_report": dict(init_report),
                "sessions": int(before.get("sessions", 0)) + 1,
                "finished": False,
                "steps": 0,
                "epochs": 0.0,
                "seconds": 0.0,
                "best": {},
            },
        )
        write_json(self.out / PROVENANCE, document)
        write_recipe(self.recipe, self.out / RECIPE)

    def end(self, *, steps: int, epochs: float, best: dict[str, Any], seconds: float, write: bool) -> RunResult:
        """Write what has come out; only a run whose provenance says so is finished."""
        outcome = {"finished": True, "steps": steps, "epochs": epochs, "seconds": seconds, "best": best}
        if write:
            write_json(self.out / PROVENANCE, {**(_read_provenance(self.out) or {}), **outcome})
        document = _read_provenance(self.out) or {} if write else {}
        return RunResult(self.out, self.out / MODEL, True, steps, epochs, best, seconds, document)

    def identity(self) -> dict[str, Any]:
        """What a run that goes on with this one must have in common with it."""
        values = {name: getattr(self, name) for name in IDENTITY}
        return {**values, "options": dict(self.options), "recipe": self.recipe.as_dict()}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """What differs between two runs: name → (before, now), single fields of the recipe as ``recipe.batch``."""
    return {
        name: (_flat(before).get(name), _flat(now).get(name))
        for name in sorted(_flat(before).keys() | _flat(now).keys())
        if _flat(before).get(name) != _flat(now).get(name)
    }


def _same_network(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """How to ask for the network of before, whose name may mean another one by now."""
    return f" (--arch {changes['arch'][0]} is the network of this run)" if "arch" in changes else ""


def _flat(document: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a run, as JSON would have it, with its recipe and options field by field."""
    plain = json.loads(json.dumps({name: document.get(name) for name in IDENTITY}, default=str))
    flat: dict[str, Any] = {}
    for name, value in plain.items():
        if name in ("recipe", "options") and isinstance(value, dict):
            flat |= {f"{name}.{key}": each for key, each in value.items() if key not in _FREE}
        else:
            flat[name] = value
    return flat


def _read_provenance(out: Path) -> dict[str, Any] | None:
    path = out / PROVENANCE
    if not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}", got=error, mend="choose a new folder") from error
    if not isinstance(document, dict):
        raise DataError(f"{path} is no provenance", got=type(document).__name__, mend="choose a new folder")
    return {**document, "arch": network_saved_as(str(document["arch"]))} if "arch" in document else document
