"""Jobs that make a slide's region graph: a second kind beside segmentation, for the same workers.

waiting → making → gone, once the graph lies beside the results; or failed, until somebody asks again. Somebody sits
and waits for it, so that a worker takes it before the next slide.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ntrm.core.errors import DataError, NtrmError
from ntrm.service.core.problems import document_of
from ntrm.service.jobs.slide_record import as_json

WAITING, MAKING, FAILED = "waiting", "making", "failed"
SCHEMA = """
CREATE TABLE IF NOT EXISTS graphs (
  slide TEXT PRIMARY KEY,
  status TEXT NOT NULL,
  progress REAL NOT NULL DEFAULT 0,
  error TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  deaths INTEGER NOT NULL DEFAULT 0,
  queued REAL NOT NULL, started REAL,
  worker TEXT,
  cancel REAL
) STRICT;
"""


@dataclass(frozen=True)
class GraphJob:
    """A region graph in the making."""

    slide: str
    """Id of the slide."""
    status: str
    progress: float
    error: dict[str, Any] | None
    attempts: int
    deaths: int
    started: float | None
    worker: str | None
    cancel: float | None
    """When somebody asked for the end of a running job."""


class GraphJobs:
    """The jobs, one a slide at most; ``key`` is always the id of a slide."""

    def __init__(self, do: Callable[..., list[sqlite3.Row]], most_deaths: int, most_attempts: int) -> None:
        self._do, self._most_deaths, self._most_attempts = do, most_deaths, most_attempts

    def _jobs(self, sql: str, *values: Any) -> list[GraphJob]:
        names = GraphJob.__dataclass_fields__
        rows = ({name: row[name] for name in names} for row in self._do(sql, *values))
        return [GraphJob(**{**row, "error": json.loads(row["error"] or "null")}) for row in rows]

    def drop_bad(self) -> None:
        """Drop jobs that no service writes, and those that failed: whoever wants the graph asks again."""
        self._do(
            "DELETE FROM graphs WHERE slide NOT IN (SELECT id FROM slides) OR status NOT IN ('waiting', 'making') "
            "OR error IS NOT NULL OR worker GLOB '*[^0-9a-z]*' OR attempts NOT BETWEEN 0 AND 100 "
            "OR deaths NOT BETWEEN 0 AND 100 OR NOT progress BETWEEN 0 AND 1"
        )

    def get(self, key: str) -> GraphJob | None:
        """The job of a slide, if there is one."""
        jobs = self._jobs("SELECT * FROM graphs WHERE slide = ?", key)
        return jobs[0] if jobs else None

    def running(self) -> list[GraphJob]:
        """Those that a worker has."""
        return self._jobs("SELECT * FROM graphs WHERE status = 'making'")

    def ask(self, key: str) -> None:
        """Have the graph of a slide made; one that waits or is being made already is left alone."""
        self._do(
            "INSERT INTO graphs (slide, status, queued) VALUES (?, 'waiting', ?) ON CONFLICT (slide) DO UPDATE "
            "SET status = 'waiting', queued = excluded.queued, error = NULL, attempts = 0, deaths = 0, progress = 0 "
            "WHERE status = 'failed'",
            key, time.time(),
        )  # fmt: skip

    def drop(self, key: str) -> None:
        """Forget a job that nobody wants any more, or ask its worker to stop."""
        self._do("DELETE FROM graphs WHERE slide = ? AND status <> 'making'", key)
        self._do("UPDATE graphs SET cancel = coalesce(cancel, ?) WHERE slide = ?", time.time(), key)

    def claim(self, worker: str) -> GraphJob | None:
        """The next one for a worker; its slide must be done."""
        jobs = self._jobs(
            "UPDATE graphs SET status = 'making', worker = ?, started = ?, progress = 0, attempts = attempts + 1, "
            "error = NULL, cancel = NULL WHERE slide = (SELECT slide FROM graphs JOIN slides ON slides.id = slide "
            "WHERE graphs.status = 'waiting' AND slides.status = 'done' AND NOT deleted "
            "ORDER BY graphs.queued, slide LIMIT 1) RETURNING *",
            worker, time.time(),
        )  # fmt: skip
        return jobs[0] if jobs else None

    def beat(self, key: str, worker: str, progress: float, stage: str) -> bool:
        """Report how far it is; returns whether to continue. There is one stage."""
        rows = self._do(
            "UPDATE graphs SET progress = ? WHERE slide = ? AND worker = ? AND status = ? RETURNING cancel",
            progress, key, worker, stage,
        )  # fmt: skip
        return bool(rows) and rows[0]["cancel"] is None

    def finish(self, key: str, worker: str, error: NtrmError | None = None) -> None:
        """The end of a job: the graph is there, or why it is not."""
        mine = "slide = ? AND worker = ? AND status = 'making'"
        if error is None:
            self._do(f"DELETE FROM graphs WHERE {mine}", key, worker)  # noqa: S608 - a constant
        else:
            self._do(
                f"UPDATE graphs SET status = 'failed', error = ?, worker = NULL, cancel = NULL WHERE {mine}",  # noqa: S608
                as_json(document_of(error)["error"]), key, worker,
            )  # fmt: skip

    def release(self, key: str, worker: str) -> None:
        """Let it wait again, because the worker was asked to stop; or forget it, if nobody wants it."""
        mine = "slide = ? AND worker = ? AND status = 'making'"
        self._do(f"DELETE FROM graphs WHERE {mine} AND cancel IS NOT NULL", key, worker)  # noqa: S608
        self._do(f"UPDATE graphs SET status = 'waiting', worker = NULL WHERE {mine}", key, worker)  # noqa: S608

    def reclaim(self, alive: Callable[[str], bool], *, blame: bool) -> None:
        """Take jobs from workers that are gone; ``blame``: the worker died of the job, not with the whole service."""
        for job in self.running():
            if job.worker is None or alive(job.worker):
                continue
            deaths = job.deaths + blame
            if job.cancel is not None:
                self.finish(job.slide, job.worker)
            elif deaths >= self._most_deaths or job.attempts >= self._most_attempts:
                error = given_up("the region graph could not be made", deaths, job.attempts)
                self.finish(job.slide, job.worker, error)
            else:
                self._do("UPDATE graphs SET deaths = ? WHERE slide = ?", deaths, job.slide)
                self.release(job.slide, job.worker)


def given_up(what: str, deaths: int, attempts: int) -> DataError:
    """Why a job is not tried again."""
    return DataError(
        what,
        got=f"{attempts} attempts, of which {deaths} ended the process that worked on it",
        hint="look into worker.log for the reason; less memory is used with a smaller --batch",
    )
