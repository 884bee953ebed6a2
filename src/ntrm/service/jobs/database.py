"""Slides and their jobs in SQLite: whatever is killed, the next start finds every one where it was.

queued → running → done or failed; queued or running → cancelled; failed or cancelled → queued again. Almost every
statement is a transaction of its own, so that several processes can use the database.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, NtrmError
from ntrm.service.core.problems import ProblemError, conflict, document_of, missing
from ntrm.service.core.settings import DATABASE, upload_path
from ntrm.service.jobs import graph_jobs
from ntrm.service.jobs.graph_jobs import GraphJobs, given_up
from ntrm.service.jobs.slide_record import (
    CANCELLED,
    DONE,
    FAILED,
    QUEUED,
    STATUSES,
    UNUSABLE,
    Slide,
    as_json,
    check_row,
    from_row,
    to_row,
)

_log = logging.getLogger(__name__)
MOST_DEATHS = 3
"""A job whose worker died so often is given up."""
MOST_ATTEMPTS = 10
"""Starts of a job, whatever the reason for its ends."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS slides (
  id TEXT PRIMARY KEY,
  slide_id TEXT NOT NULL UNIQUE COLLATE NOCASE,
  name TEXT NOT NULL,
  origin TEXT NOT NULL,
  source BLOB,
  fingerprint TEXT,
  mpp_x REAL, mpp_y REAL,
  status TEXT NOT NULL,
  progress REAL NOT NULL DEFAULT 0,
  stage TEXT NOT NULL DEFAULT '',
  error TEXT,
  attempts INTEGER NOT NULL DEFAULT 0,
  deaths INTEGER NOT NULL DEFAULT 0,
  created REAL NOT NULL, queued REAL, started REAL, finished REAL,
  worker TEXT,
  cancel REAL,
  deleted INTEGER NOT NULL DEFAULT 0,
  info TEXT, facts TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS by_status ON slides (status, queued);
CREATE TABLE IF NOT EXISTS sessions (digest TEXT PRIMARY KEY, token TEXT NOT NULL, expires REAL NOT NULL) STRICT;
"""
_ENTRIES = "SELECT type, name, tbl_name, sql FROM sqlite_schema"


class JobStore:
    """The database; safe to use from several threads and processes. ``key`` is always the id of a slide."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = path.parent
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
            self._connection.executescript(SCHEMA + graph_jobs.SCHEMA)
        except sqlite3.DatabaseError as error:
            raise DataError(f"cannot use {path}", got=error, hint="move it away; results are found again") from error
        path.chmod(0o600)
        self.graphs = GraphJobs(self._do, MOST_DEATHS, MOST_ATTEMPTS)
        """Jobs that make region graphs."""

    def drop_bad(self, show: Callable[[Slide], object], may_read: Callable[[Path], bool]) -> None:
        """Drop rows that no service writes or that cannot be shown, and forget originals that may not be read."""
        for row in self._do("SELECT rowid AS place, * FROM slides"):
            try:
                check_row(row)
                slide = from_row(row, self._folder)
                show(slide)
                known = slide.source in (None, upload_path(self._folder, slide.id)) or may_read(slide.source)
            except UNUSABLE as error:
                _log.warning("a row of %s that no service wrote was dropped: %s", DATABASE, ascii(str(error))[:200])
                self._do("DELETE FROM slides WHERE rowid = ?", row["place"])
                continue
            if not known:
                self._do("UPDATE slides SET source = NULL WHERE id = ?", slide.id)
        self.graphs.drop_bad()

    def close(self) -> None:
        """Close the database's files."""
        with self._lock:
            self._connection.close()

    def _do(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def _slides(self, sql: str, *values: Any) -> list[Slide]:
        return [from_row(row, self._folder) for row in self._do(sql, *values)]

    # What is there

    def get(self, key: str) -> Slide:
        """The slide, or 404."""
        slides = self._slides("SELECT * FROM slides WHERE id = ? AND NOT deleted", key)
        if not slides:
            raise missing("no such slide", "ask /v1/slides for those that are there")
        return slides[0]

    def every(self, status: str | None = None) -> list[Slide]:
        """All slides, or those of one status, the newest first."""
        return self._slides(
            "SELECT * FROM slides WHERE NOT deleted AND status = coalesce(?, status) ORDER BY created DESC, id", status
        )

    def waiting(self) -> list[str]:
        """Ids in the order in which they will be taken."""
        return [row["id"] for row in self._do("SELECT id FROM slides WHERE status = 'queued' ORDER BY queued, id")]

    def ids(self) -> set[str]:
        """Of all slides, also of those being deleted."""
        return {row["id"] for row in self._do("SELECT id FROM slides")}

    def names(self) -> set[str]:
        """Slide ids, also of those being deleted."""
        return {row["slide_id"] for row in self._do("SELECT slide_id FROM slides")}

    def taken_names(self) -> set[str]:
        """The same in lower case."""
        return {name.lower() for name in self.names()}

    def counts(self) -> dict[str, int]:
        """How many slides are in each state."""
        rows = self._do("SELECT status, count(*) FROM slides WHERE NOT deleted GROUP BY 1")
        return dict.fromkeys(STATUSES, 0) | {row[0]: row[1] for row in rows}

    def running(self) -> list[Slide]:
        """Also those being deleted."""
        return self._slides("SELECT * FROM slides WHERE status = 'running'")

    # Requests

    def add(self, slide: Slide, most_queued: int | None = None) -> Slide:
        """Add a new slide; refuses one too many and a taken name."""
        cells, most = to_row(slide), most_queued if slide.status == QUEUED else None
        try:
            added = self._do(
                f"INSERT INTO slides ({','.join(cells)}) SELECT {','.join('?' * len(cells))} "  # noqa: S608
                "WHERE ? IS NULL OR (SELECT count(*) FROM slides WHERE status = 'queued') < ? RETURNING id",
                *cells.values(), most, most,
            )  # fmt: skip
        except sqlite3.IntegrityError as error:
            raise conflict("the name is taken", got=slide.slide_id, hint="choose another slide_id") from error
        if most is not None and not added:
            raise _queue_full(len(self.waiting()), most)
        return slide

    def check_room(self, most_queued: int) -> None:
        """Refuse where the queue is full."""
        count = len(self.waiting())
        if count >= most_queued:
            raise _queue_full(count, most_queued)

    def cancel(self, key: str) -> Slide:
        """Take a slide out of the queue, or ask its worker to stop."""
        self._end(key, deleted=False)
        slide = self.get(key)
        if slide.status in (DONE, FAILED):
            raise conflict("nothing to cancel", got=slide.status, expected="queued or running")
        return slide

    def _end(self, key: str, *, deleted: bool) -> None:
        # In one statement: on a full disk it is tried again.
        now = time.time()
        self._do(
            "UPDATE slides SET deleted = ?, cancel = iif(status = 'running', coalesce(cancel, ?), cancel), "
            "finished = iif(status = 'queued', ?, finished), stage = iif(status = 'queued', '', stage), "
            "status = iif(status = 'queued', 'cancelled', status) WHERE id = ? AND NOT deleted",
            deleted, now, now, key,
        )  # fmt: skip

    def retry(self, key: str, mpp: tuple[float, float] | None, most_queued: int) -> Slide:
        """Queue a slide again that failed or was cancelled, on request with other µm/px."""
        slide = self.get(key)
        if slide.status not in (FAILED, CANCELLED):
            raise conflict("nothing to try again", got=slide.status, expected="failed or cancelled")
        self.check_room(most_queued)
        x, y = mpp or slide.mpp or (None, None)
        self._do(
            "UPDATE slides SET status = 'queued', queued = ?, finished = NULL, error = NULL, attempts = 0, deaths = 0, "
            "progress = 0, stage = '', cancel = NULL, worker = NULL, mpp_x = ?, mpp_y = ? "
            "WHERE id = ? AND status IN ('failed', 'cancelled') AND NOT deleted",
            time.time(), x, y, key,
        )  # fmt: skip
        return self.get(key)

    def locate(self, key: str, source: Path) -> None:
        """Note where the original of results was found."""
        self._do("UPDATE slides SET source = ? WHERE id = ?", os.fsencode(source.absolute()), key)

    # Deleting: marked first, so that it is completed later if the service is killed in between

    def mark_deleted(self, key: str) -> None:
        """Hide a slide; a running job is asked to stop."""
        self._end(key, deleted=True)
        self.graphs.drop(key)

    def to_purge(self) -> list[Slide]:
        """Deleted slides that nobody works on any more."""
        return self._slides(
            "SELECT * FROM slides WHERE deleted AND status <> 'running' "
            "AND id NOT IN (SELECT slide FROM graphs WHERE status = 'making')"
        )

    def forget(self, key: str) -> None:
        """The last step of deleting."""
        self._do("DELETE FROM slides WHERE id = ? AND deleted", key)

    def renew(self, slide: Slide) -> Slide:
        """A finished slide has other results; those of a job that began meanwhile count more."""
        cells = {key: to_row(slide)[key] for key in ("source", "fingerprint", "mpp_x", "mpp_y", "finished", "facts")}
        self._do(
            f"UPDATE slides SET {','.join(f'{key} = ?' for key in cells)} WHERE id = ? AND status = 'done'",  # noqa: S608
            *cells.values(), slide.id,
        )  # fmt: skip
        return slide

    def vanished(self, key: str, *, keep: bool) -> None:
        """The results of a finished slide are gone; one that can be segmented again is kept."""
        if not keep:
            self._do("DELETE FROM slides WHERE id = ? AND status = 'done'", key)
            return
        error = ProblemError(404, "gone", "the results were removed", hint="retry to segment the slide again")
        self._do(
            "UPDATE slides SET status = 'failed', error = ?, facts = NULL, progress = 0 "
            "WHERE id = ? AND status = 'done'",
            as_json(document_of(error)["error"]), key,
        )  # fmt: skip

    # Workers

    def claim(self, worker: str) -> Slide | None:
        """The next slide for a worker."""
        slides = self._slides(
            "UPDATE slides SET status = 'running', worker = ?, started = ?, progress = 0, "
            "stage = 'reading', attempts = attempts + 1, error = NULL, cancel = NULL "
            "WHERE id = (SELECT id FROM slides WHERE status = 'queued' AND NOT deleted ORDER BY queued, id LIMIT 1) "
            "RETURNING *",
            worker, time.time(),
        )  # fmt: skip
        return slides[0] if slides else None

    def beat(self, key: str, worker: str, progress: float, stage: str) -> bool:
        """Report how far a job is; returns whether to continue."""
        rows = self._do(
            "UPDATE slides SET progress = ?, stage = ? "
            "WHERE id = ? AND worker = ? AND status = 'running' RETURNING cancel",
            progress, stage, key, worker,
        )  # fmt: skip
        return bool(rows) and rows[0]["cancel"] is None

    def finish(
        self,
        key: str,
        worker: str,
        status: str,
        *,
        error: NtrmError | None = None,
        facts: dict[str, Any] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        """The end of a job; ``fingerprint`` is of the file that was segmented."""
        document = None if error is None else document_of(error)["error"]
        self._do(
            "UPDATE slides SET status = ?, finished = ?, error = ?, facts = coalesce(?, facts), stage = '', "
            "fingerprint = coalesce(?, fingerprint), worker = NULL, cancel = NULL, "
            "progress = iif(? = 'done', 1, progress) "
            "WHERE id = ? AND worker = ? AND status = 'running'",
            status, time.time(), as_json(document), as_json(facts), fingerprint, status, key, worker,
        )  # fmt: skip

    def release(self, key: str, worker: str) -> None:
        """Put a job back at its place in the queue, because the worker was asked to stop; or cancel it, if asked to."""
        self._do(
            "UPDATE slides SET status = iif(cancel IS NULL, 'queued', 'cancelled'), "
            "finished = iif(cancel IS NULL, finished, ?), worker = NULL, cancel = NULL, stage = '' "
            "WHERE id = ? AND worker = ? AND status = 'running'",
            time.time(), key, worker,
        )  # fmt: skip

    def reclaim(self, alive: Callable[[str], bool], *, blame: bool) -> None:
        """Take running jobs from workers that are gone.

        ``blame``: the worker died while it worked on the job, not with the whole service.
        """
        for slide in self.running():
            if slide.worker is not None and alive(slide.worker):
                continue
            deaths = slide.deaths + blame
            status, error = QUEUED, None
            if slide.cancel is not None:
                status = CANCELLED
            elif deaths >= MOST_DEATHS or slide.attempts >= MOST_ATTEMPTS:
                reason = given_up("the slide could not be segmented", deaths, slide.attempts)
                status, error = FAILED, document_of(reason, "worker_died")["error"]
            ended = None if status == QUEUED else time.time()
            self._do(
                "UPDATE slides SET status = ?, deaths = ?, error = ?, finished = ?, worker = NULL, cancel = NULL, "
                "stage = '' WHERE id = ? AND status = 'running' AND worker IS ?",
                status, deaths, as_json(error), ended, slide.id, slide.worker,
            )  # fmt: skip

    # Sessions of browsers, by the hash of their cookie

    def add_session(self, digest: str, token: str, expires: float) -> None:
        """Remember a browser; ``token`` is the hash of the token that let it in."""
        self._do("DELETE FROM sessions WHERE expires < ?", time.time())
        self._do("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", digest, token, expires)

    def sessions(self, token: str) -> dict[str, float]:
        """Those that this token let in, and when they end."""
        rows = self._do("SELECT digest, expires FROM sessions WHERE token = ?", token)
        return {row["digest"]: row["expires"] for row in rows}


def _check_database(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse what is damaged or holds anything but our tables: a trigger or a view would act for whoever made it."""
    if path.with_name(f"{path.name}-journal").exists():
        # SQLite would carry out what it says, and delete a file that it names.
        raise sqlite3.DatabaseError(f"{path.name}-journal, which no service leaves behind")
    with closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(SCHEMA + graph_jobs.SCHEMA)
        known = set(ours.execute(_ENTRIES))
    if strange := {tuple(row) for row in connection.execute(_ENTRIES)} - known:
        raise sqlite3.DatabaseError(
            "not the tables of a service: " + ", ".join(sorted(ascii(row[1]) for row in strange))
        )
    if (damage := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
        raise sqlite3.DatabaseError(damage)


def _queue_full(count: int, most: int) -> ProblemError:
    return ProblemError(
        429,
        "queue_full",
        "the queue is full",
        got=f"{count} slides wait",
        expected=f"at most {most}",
        hint="try again when some of them are done",
        headers={"Retry-After": "60"},
    )
