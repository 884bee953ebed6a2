"""Slides and their jobs in SQLite: whatever is killed, the next start finds every one where it was.

Of each kind a slide has one job: queued → running → done, failed or cancelled → queued again. The one that segments it
stays, and is the slide's status; others go once they are done. Several processes use the database.
"""

# ruff: noqa: S608 - statements are put together from constants and names of columns alone

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, get_args

from ntrm.core.errors import DataError, NtrmError
from ntrm.results.slide_state import Plan
from ntrm.service.core.problems import ProblemError, conflict, document_of, missing
from ntrm.service.core.settings import upload_path
from ntrm.service.jobs.rows import GIVEN_UP, JOB, SLIDE, UNUSABLE, Job, Kind, SlideRow, Status
from ntrm.slides.inputs import source_fingerprint

MOST_ATTEMPTS = 3  # A job whose worker died so often is given up
RETRY_SECONDS = 60.0  # After a failure, before what nobody has changed is tried again
MOVE_AWAY = "move it away; results are found again"


SCHEMA = """
CREATE TABLE IF NOT EXISTS slides (
  id TEXT PRIMARY KEY, slide_id TEXT NOT NULL UNIQUE COLLATE NOCASE, name TEXT NOT NULL, origin TEXT NOT NULL,
  source BLOB, fingerprint TEXT, mpp TEXT, area TEXT, file_mpp TEXT, created REAL NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS jobs (
  slide TEXT NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL, due REAL NOT NULL,
  progress REAL NOT NULL DEFAULT 0, stage TEXT NOT NULL DEFAULT '', error TEXT,
  attempts INTEGER NOT NULL DEFAULT 0, started REAL, finished REAL, worker TEXT, cancel REAL,
  PRIMARY KEY (slide, kind)
) STRICT;
"""
_SLIDES = "SELECT slides.*, jobs.* FROM slides JOIN jobs ON slide = id AND kind = 'segment'"
_ADD = "INSERT INTO jobs (slide, kind, status, due) VALUES (?, ?, 'queued', ?) ON CONFLICT DO UPDATE SET"
_DUE = (
    "status = 'queued' AND due <= ? AND kind IN (SELECT value FROM json_each(?)) "
    "AND (slide = '' OR slide IN (SELECT id FROM slides))"
)
_MINE = "slide = ? AND kind = ? AND worker IS ? AND status = 'running'"


class JobStore:
    """The database; safe to use from several threads and processes. ``key`` is always the id of a slide."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path, self._folder = path, path.parent
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            # A text that is no UTF-8 is seen by whoever checks the rows.
            self._connection.text_factory = os.fsdecode
            self._connection.execute("PRAGMA trusted_schema=OFF")
            _check_database(self._connection, path)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.executescript(SCHEMA)
        except sqlite3.DatabaseError as error:
            raise DataError(f"cannot use {path}", got=error, hint=MOVE_AWAY) from error
        path.chmod(0o600)

    def check(self, show: Callable[[SlideRow], object]) -> None:
        """Refuse rows that no service writes, or that cannot be shown."""
        try:
            for row in self._do("SELECT * FROM jobs"):
                _job(row)
            for slide in self.every():
                show(slide)
        except UNUSABLE as error:
            got = ascii(str(error))[:200]
            raise DataError(f"cannot use {self._path}: no service wrote this", got=got, hint=MOVE_AWAY) from error

    def close(self) -> None:
        """Close the database's files."""
        with self._lock:
            self._connection.close()

    def _do(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All that happens inside, or nothing."""
        with self._lock, self._connection as one:
            one.execute("BEGIN IMMEDIATE")
            yield one

    def _slide(self, row: sqlite3.Row) -> SlideRow:
        """An upload is known by its id, wherever the service's folder lies now."""
        cells = dict(row)
        if cells["source"] is None and cells["origin"] == "upload":
            cells["source"] = upload_path(self._folder, cells["id"])
        return SLIDE.validate_python(cells)

    # What is there

    def get(self, key: str) -> SlideRow:
        """The slide, or 404."""
        rows = self._do(f"{_SLIDES} WHERE id = ?", key)
        if not rows:
            raise missing("no such slide", "ask /v1/slides for those that are there")
        return self._slide(rows[0])

    def every(self, status: Status | None = None) -> list[SlideRow]:
        """All slides, or those of one status, the newest first."""
        rows = self._do(f"{_SLIDES} WHERE status = coalesce(?, status) ORDER BY created DESC, id", status)
        return [self._slide(row) for row in rows]

    def job(self, key: str, kind: Kind) -> Job | None:
        """The job of this kind, if there is one."""
        rows = self._do("SELECT * FROM jobs WHERE slide = ? AND kind = ?", key, kind)
        return _job(rows[0]) if rows else None

    def running(self, key: str | None = None) -> list[Job]:
        """Jobs that a worker has, of one slide or of all."""
        rows = self._do("SELECT * FROM jobs WHERE status = 'running' AND slide = coalesce(?, slide)", key)
        return [_job(row) for row in rows]

    def waiting(self) -> list[str]:
        """Ids of the slides to be segmented, in the order in which they will be taken."""
        rows = self._do("SELECT slide FROM jobs WHERE status = 'queued' AND kind = 'segment' ORDER BY due, slide")
        return [row["slide"] for row in rows]

    def taken_names(self) -> set[str]:
        """Slide ids in lower case."""
        return {row["slide_id"].lower() for row in self._do("SELECT slide_id FROM slides")}

    def counts(self) -> dict[str, int]:
        """How many slides are in each state."""
        rows = self._do("SELECT status, count(*) FROM jobs WHERE kind = 'segment' GROUP BY 1")
        return dict.fromkeys(get_args(Status), 0) | {row[0]: row[1] for row in rows}

    # Slides

    def add(self, slide: SlideRow, most_queued: int | None = None) -> SlideRow:
        """Add a new slide and its job; refuses one too many and a taken name."""
        source = None if slide.source == upload_path(self._folder, slide.id) else slide.source
        cells = {name: getattr(slide, name) for name in ("id", "slide_id", "name", "origin", "fingerprint", "created")}
        cells |= {"source": _cell(source)}
        cells |= {name: _as_json(getattr(slide, name)) for name in ("mpp", "area", "file_mpp")}
        job = {name: getattr(slide, name) for name in ("status", "progress", "started", "finished")}
        job |= {"slide": slide.id, "kind": "segment", "due": slide.created, "error": _as_json(slide.error)}
        if most_queued is not None and slide.status == "queued":
            self.check_room(most_queued)
        try:
            with self._transaction() as one:
                for table, row in (("slides", cells), ("jobs", job)):
                    places = ",".join("?" * len(row))
                    one.execute(f"INSERT INTO {table} ({','.join(row)}) VALUES ({places})", [*row.values()])
        except sqlite3.IntegrityError as error:
            raise conflict("the name is taken", got=slide.slide_id, hint="choose another slide_id") from error
        return slide

    def change(self, key: str, **cells: Any) -> None:
        """Write some cells of a slide's row."""
        columns = ",".join(f"{name} = ?" for name in cells)
        self._do(f"UPDATE slides SET {columns} WHERE id = ?", *cells.values(), key)

    def locate(self, key: str, source: Path | None) -> None:
        """Note where the original of results was found, or that it is not known any more."""
        self.change(key, source=_cell(source))

    def forget(self, key: str) -> None:
        """Drop a slide and its jobs; a worker that still has one of these ends it."""
        with self._transaction() as one:
            one.execute("DELETE FROM jobs WHERE slide = ?", (key,))
            one.execute("DELETE FROM slides WHERE id = ?", (key,))

    def renew(self, slide: SlideRow, plan: Plan, finished: float) -> None:
        """A finished slide has other results, perhaps of another file; a job that began meanwhile counts more."""
        self.change(slide.id, fingerprint=plan.source, mpp=_as_json(plan.mpp))
        if slide.source is not None and source_fingerprint(slide.source) not in (plan.source, None):
            self.locate(slide.id, None)
        self._do("UPDATE jobs SET finished = ? WHERE slide = ? AND status = 'done'", finished, slide.id)

    def vanished(self, key: str) -> None:
        """The results of a finished slide are gone; it can be segmented again."""
        error = ProblemError(404, "gone", "the results were removed", hint="retry to segment the slide again")
        change = "UPDATE jobs SET status = 'failed', error = ?, progress = 0 WHERE slide = ? AND status = 'done'"
        self._do(change, _as_json(document_of(error)["error"]), key)

    # Requests

    def check_room(self, most_queued: int) -> None:
        """Refuse where the queue is full."""
        if len(self.waiting()) >= most_queued:
            expected, hint = f"at most {most_queued} slides that wait", "try again when some of them are done"
            again = {"Retry-After": "60"}
            raise ProblemError(429, "queue_full", "the queue is full", expected=expected, hint=hint, headers=again)

    def ask(self, key: str, kind: Kind, after: float = 0.0) -> None:
        """Have something done so many seconds from now: that moves on what waits, and what is running is repeated."""
        change = "due = excluded.due, status = iif(status = 'running', status, 'queued'), attempts = 0"
        self._do(f"{_ADD} {change}", key, kind, time.time() + after)

    def ask_again(self, key: str, kind: Kind) -> None:
        """Have done what is not there although nothing has changed: soon, or some time after it has failed."""
        change = "due = finished + ?, status = 'queued', attempts = 0 WHERE status = 'failed'"
        self._do(f"{_ADD} {change}", key, kind, time.time(), RETRY_SECONDS)

    def cancel(self, key: str) -> SlideRow:
        """Take a slide out of the queue, or ask its worker to stop."""
        slide = self.get(key)
        if slide.status in ("done", "failed"):
            raise conflict("nothing to cancel", got=slide.status, expected="queued or running")
        self.stop(key, "segment")
        return self.get(key)

    def stop(self, key: str, *kinds: Kind) -> None:
        """End jobs of these kinds: those that wait at once, running ones soon."""
        mine = "slide = :key AND kind IN (SELECT value FROM json_each(:kinds))"
        values = {"key": key, "kinds": json.dumps(kinds), "now": time.time()}
        with self._transaction() as one:
            for change in (
                "UPDATE jobs SET status = 'cancelled', finished = :now, stage = '' WHERE status = 'queued' AND",
                "UPDATE jobs SET cancel = coalesce(cancel, :now), due = min(due, started) WHERE status = 'running' AND",
                "DELETE FROM jobs WHERE status <> 'running' AND kind <> 'segment' AND",
            ):
                one.execute(f"{change} {mine}", values)

    def retry(self, key: str, mpp: tuple[float, float] | None, most_queued: int) -> SlideRow:
        """Queue a slide again that failed or was cancelled, on request with other µm/px."""
        slide = self.get(key)
        if slide.status not in ("failed", "cancelled"):
            raise conflict("nothing to try again", got=slide.status, expected="failed or cancelled")
        self.check_room(most_queued)
        self.change(key, mpp=_as_json(mpp or slide.mpp))
        change = "status = 'queued', due = ?, finished = NULL, error = NULL, attempts = 0, progress = 0"
        which = "slide = ? AND kind = 'segment' AND status IN ('failed', 'cancelled')"
        self._do(f"UPDATE jobs SET {change} WHERE {which}", time.time(), key)
        return self.get(key)

    # Workers

    def is_due(self, kinds: Sequence[Kind]) -> bool:
        """Whether a worker for these kinds has something to do."""
        return bool(self._do(f"SELECT 1 FROM jobs WHERE {_DUE} LIMIT 1", time.time(), json.dumps(kinds)))

    def take(self, worker: str, kinds: Sequence[Kind]) -> Job | None:
        """The next job for a worker; somebody waits for the texture."""
        now = time.time()
        rows = self._do(
            "UPDATE jobs SET status = 'running', worker = ?, started = ?, due = min(due, ?), progress = 0, "
            "stage = iif(kind = 'segment', 'reading', ''), attempts = attempts + 1, "
            "error = NULL, finished = NULL, cancel = NULL "
            f"WHERE rowid = (SELECT rowid FROM jobs WHERE {_DUE} ORDER BY kind = 'segment', due, slide LIMIT 1) "
            "RETURNING *",
            worker, now, now, now, json.dumps(kinds),
        )  # fmt: skip
        return _job(rows[0]) if rows else None

    def beat(self, job: Job, progress: float, stage: str) -> bool:
        """Report how far a job is; returns whether to continue."""
        change = f"UPDATE jobs SET progress = ?, stage = ? WHERE {_MINE} RETURNING cancel"
        rows = self._do(change, progress, stage, job.slide, job.kind, job.worker)
        return bool(rows) and rows[0]["cancel"] is None

    def end(
        self, job: Job, status: Status, error: NtrmError | None = None, *, at: float | None = None, attempts: int = 0
    ) -> None:
        """The end of a job, or back into the queue with it: because its worker stops, or as it was asked for again."""
        values = job.slide, job.kind, job.worker
        with self._transaction() as one:
            row = one.execute(f"SELECT cancel, due > started AS again FROM jobs WHERE {_MINE}", values).fetchone()
            if row is None:
                return
            if status == "queued" and row["cancel"] is not None:
                status = "cancelled"
            elif job.kind != "segment" and row["again"]:
                status, error = "queued", None
            if job.kind != "segment" and status in ("done", "cancelled"):
                one.execute(f"DELETE FROM jobs WHERE {_MINE}", values)
                return
            document = None if error is None else document_of(error)["error"]
            ended = None if status == "queued" else at or time.time()
            one.execute(
                "UPDATE jobs SET status = ?, error = ?, finished = ?, attempts = ?, worker = NULL, cancel = NULL, "
                f"stage = '', progress = iif(? = 'done', 1, progress) WHERE {_MINE}",
                (status, _as_json(document), ended, attempts, status, *values),
            )

    def reclaim(self, alive: Collection[str], *, blame: bool = True) -> None:
        """Take running jobs from workers that are gone; one to blame for the end of too many is given up."""
        for job in self.running():
            if job.worker in alive:
                continue
            if job.cancel is not None:
                self.end(job, "cancelled")
            elif not blame or job.attempts < MOST_ATTEMPTS:
                self.end(job, "queued", attempts=job.attempts if blame else 0)
            else:
                died = f"{job.attempts} attempts, each of which ended with the process that worked on it"
                hint = "look into worker.log for the reason; less memory is used with a smaller --batch"
                self.end(job, "failed", ProblemError(422, "worker_died", GIVEN_UP[job.kind], got=died, hint=hint))


def _job(row: sqlite3.Row) -> Job:
    return JOB.validate_python(dict(row))


def _cell(path: Path | None) -> bytes | None:
    return None if path is None else os.fsencode(path.absolute())


def _as_json(document: Any) -> str | None:
    return None if document is None else json.dumps(document, ensure_ascii=False, allow_nan=False)


def _check_database(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is damaged or holds anything but our tables: a trigger or a view would act for whoever made it."""
    if path.with_name(f"{path.name}-journal").exists():
        # SQLite would carry out what it says, and delete a file that it names.
        raise sqlite3.DatabaseError(f"{path.name}-journal, which no service leaves behind")
    entries = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
    with closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(SCHEMA)
        strange = {tuple(row) for row in connection.execute(entries)} - set(ours.execute(entries))
    if strange:
        names = ", ".join(sorted(ascii(row[1]) for row in strange))
        raise sqlite3.DatabaseError(f"not the tables of a service: {names}")
    if (damage := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
        raise sqlite3.DatabaseError(damage)
