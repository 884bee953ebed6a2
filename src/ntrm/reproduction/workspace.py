"""The folder of a reproduction: where everything lies, and that it is ours to write to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import write_json
from ntrm.reproduction.plan import Job
from ntrm.reproduction.results import EVALUATION
from ntrm.reproduction.runner import Task
from ntrm.training.recipe import Recipe, write_recipe

MARK = "reproduction.json"


@dataclass(frozen=True)
class Workspace:
    """``OUT`` and what is in it."""

    out: Path

    @property
    def page(self) -> Path:
        """The page with everything."""
        return self.out / "index.html"

    @property
    def tables(self) -> Path:
        """Tables as CSV."""
        return self.out / "tables"

    @property
    def figures(self) -> Path:
        """Figures as PNG."""
        return self.out / "figures"

    @property
    def jobs(self) -> Path:
        """What every job is to do, and what it printed."""
        return self.out / "jobs"

    @property
    def lock(self) -> Path:
        """Held while a reproduction works here."""
        return self.out / ".lock"

    def run(self, job: Job) -> Path:
        """The run of a job."""
        return self.out / "runs" / job.key

    def facts(self, level: str) -> Path:
        """What is known about the data at a level."""
        return self.out / "data" / f"{level or 'plain'}.json"

    def recipe(self, job: Job) -> Path:
        """The recipe of a job: one file for each start of encoders."""
        return self.out / "recipes" / f"{job.variant.init}-{job.recipe_digest}.yaml"

    def claim(self) -> None:
        """Refuse a folder that holds something else."""
        if self.out.exists() and not self.out.is_dir():
            raise UsageError("the output is not a folder", got=self.out, mend="choose another --out")
        strange = [path.name for path in self.out.iterdir() if path.name != self.lock.name] if self.out.exists() else []
        if strange and not (self.out / MARK).is_file():
            raise RefusedError(
                "the folder holds something that is no reproduction",
                got=f"{self.out}: {', '.join(sorted(strange)[:3])}",
                mend="choose an empty or a new folder",
            )

    def describe(self, document: Mapping[str, Any]) -> None:
        """Write what is done here."""
        write_json(self.out / MARK, dict(document))

    def task(self, job: Job, data: Path, split_file: Path | None, *, boundaries: bool, pictures: bool) -> Task:
        """A job as its worker reads it, with the commands that do the same by hand."""
        recipe, run = self.recipe(job), self.run(job)
        self._write_recipe(job.recipe, recipe)
        self.jobs.mkdir(parents=True, exist_ok=True)
        document = {
            "arch": job.variant.arch,
            "options": dict(job.variant.options),
            "data": str(data),
            "level": job.variant.level,
            "split_file": None if split_file is None else str(split_file),
            "recipe": str(recipe),
            "seed": job.seed,
            "run": str(run),
            "name": job.variant.label,
            "pictures": pictures,
            "boundaries": boundaries,
            "command": self.train_command(job, data, split_file),
            "evaluate_command": self.evaluate_command(job, data, split_file),
        }
        return Task(job.key, job.label, document, self.jobs)

    def train_command(self, job: Job, data: Path, split_file: Path | None) -> list[str]:
        """What trains the same network by hand."""
        options = [word for key, value in job.variant.options for word in ("--option", f"{key}={_yaml(value)}")]
        words = ["ntrm", "train", "--arch", job.variant.arch, *_data(job, data, split_file), *options]
        return [*words, "--recipe", str(self.recipe(job)), "--seed", str(job.seed), "--out", str(self.run(job))]

    def evaluate_command(self, job: Job, data: Path, split_file: Path | None) -> list[str]:
        """What evaluates it by hand."""
        run = self.run(job)
        where = _data(job, data, split_file)
        return ["ntrm", "evaluate", "--model", str(run / "model"), *where, "--out", str(run / EVALUATION)]

    def _write_recipe(self, recipe: Recipe, path: Path) -> None:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_recipe(recipe, path)


def _data(job: Job, data: Path, split_file: Path | None) -> Sequence[str]:
    level = ["--resolution", job.variant.level] if job.variant.level else []
    return ["--data", str(data), *level, *(["--splits", str(split_file)] if split_file else [])]


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
