"""Slides and their jobs in SQLite: whatever is killed, the next start finds every one where it was."""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, NtrmError
from ntrm.service.core.problems import ProblemError, conflict, document_of, missing
from ntrm.service.core.shared_paths import UPLOADS, upload_path

QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
STATUSES = (QUEUED, RUNNING, DONE, FAILED, CANCELLED)
UPLOAD, PATH, FOUND = "upload", "path", "found"
"""Where a slide comes from: sent, named by a path, or results that were there."""
MPP_MISSING = "mpp_missing"

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
  worker TEXT, heartbeat REAL,
  cancel REAL,
  deleted INTEGER NOT NULL DEFAULT 0,
  info TEXT, facts TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS by_status ON slides (status, queued);
CREATE TABLE IF NOT EXISTS sessions (digest TEXT PRIMARY KEY, token TEXT NOT NULL, expires REAL NOT NULL) STRICT;
"""


@dataclass(frozen=True)
class Slide:
    """A slide and the state of its job."""

    id: str
    """Random: whoever does not know it cannot ask for it."""
    slide_id: str
    """Name of its folder of results."""
    name: str
    origin: str
    source: Path | None
    mpp: tuple[float, float] | None
    """Stated by the user."""
    status: str
    created: float
    fingerprint: str | None = None
    progress: float = 0.0
    stage: str = ""
    error: dict[str, Any] | None = None
    attempts: int = 0
    deaths: int = 0
    queued: float | None = None
    started: float | None = None
    finished: float | None = None
    worker: str | None = None
    cancel: float | None = None
    """When somebody asked for the end of a running job."""
    info: dict[str, Any] | None = field(default=None, repr=False)
    """What the file says of itself: numbers and fixed words."""
    facts: dict[str, Any] = field(default_factory=dict, repr=False)
    """The short version of the results."""

    @property
    def alone(self) -> bool:
        """Whether no other file may be read with it: whoever sent it could name any file of the server in it."""
        return self.origin == UPLOAD


def new_id() -> str:
    """96 random bits."""
    return secrets.token_hex(12)


def as_json(document: Any) -> str | None:
    """Text for a cell."""
    return None if document is None else json.dumps(document, ensure_ascii=False, allow_nan=False)


def from_row(row: sqlite3.Row, folder: Path) -> Slide:
    """A slide as it was stored; ``folder`` is the service's own, wherever that lies now."""
    x, y = row["mpp_x"], row["mpp_y"]
    plain: Sequence[str] = (
        "id", "slide_id", "name", "origin", "fingerprint", "status", "progress", "stage", "attempts", "deaths",
        "created", "queued", "started", "finished", "worker", "cancel",
    )  # fmt: skip
    return Slide(
        **{key: row[key] for key in plain},
        source=_source(row, folder),
        # What an UPDATE returns of a real column may be a whole number.
        mpp=None if x is None else (float(x), float(y)),
        error=None if row["error"] is None else json.loads(row["error"]),
        info=None if row["info"] is None else json.loads(row["info"]),
        facts={} if row["facts"] is None else json.loads(row["facts"]),
    )


def _source(row: sqlite3.Row, folder: Path) -> Path | None:
    if row["source"] is None:
        return None
    path = Path(os.fsdecode(row["source"]))
    # Uploads are known by their id, wherever they lay when they came: absolute paths were stored once.
    return upload_path(folder, row["id"]) if _is_upload(row["origin"], row["id"], path) else path


def _is_upload(origin: str, id: str, source: Path) -> bool:  # noqa: A002
    # The upload of a finished slide may be lost, and an original like it found below a root.
    return origin == UPLOAD and source.name == id


def _source_cell(slide: Slide) -> bytes | None:
    if slide.source is None:
        return None
    return os.fsencode(
        Path(UPLOADS, slide.id) if _is_upload(slide.origin, slide.id, slide.source) else slide.source.absolute()
    )


def to_row(slide: Slide) -> dict[str, Any]:
    """Cells of a new slide."""
    x, y = slide.mpp or (None, None)
    return {
        "id": slide.id, "slide_id": slide.slide_id, "name": slide.name, "origin": slide.origin,
        "source": _source_cell(slide), "fingerprint": slide.fingerprint,
        "mpp_x": x, "mpp_y": y, "status": slide.status, "progress": slide.progress, "error": as_json(slide.error),
        "created": slide.created, "queued": slide.queued, "finished": slide.finished, "info": as_json(slide.info),
        "facts": as_json(slide.facts or None),
    }  # fmt: skip


# Slides and their jobs in SQLite: whatever is killed, the next start finds every one where it was.
#
# queued → running → done or failed; queued or running → cancelled; failed or cancelled → queued again.


MOST_DEATHS = 3
"""A job that takes its worker down so often is given up."""
MOST_ATTEMPTS = 10
"""Starts of a job, whoever was to blame for its ends."""


class JobStore:
    """The database; safe to use from several threads and processes."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = path.parent
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.executescript(SCHEMA)
        except sqlite3.DatabaseError as error:
            raise DataError(f"cannot use {path}", got=error, hint="move it away; results are found again") from error
        path.chmod(0o600)

    def close(self) -> None:
        """Give the files back."""
        with self._lock:
            self._connection.close()

    def _do(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    @contextmanager
    def _alone(self) -> Iterator[sqlite3.Connection]:
        """One writer among all processes."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # On a full disk the database may have done so itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _slides(self, sql: str, *values: Any) -> list[Slide]:
        return [from_row(row, self._folder) for row in self._do(sql, *values)]

    # What is there

    def get(self, id: str) -> Slide:  # noqa: A002 - it is what it is
        """The slide of this id, or 404."""
        found = self._slides("SELECT * FROM slides WHERE id = ? AND NOT deleted", id)
        if not found:
            raise missing("no such slide", "ask /v1/slides for those that are there")
        return found[0]

    def every(self, status: str | None = None) -> list[Slide]:
        """All slides, the newest first."""
        only = "" if status is None else " AND status = ?"
        values = () if status is None else (status,)
        return self._slides(f"SELECT * FROM slides WHERE NOT deleted{only} ORDER BY created DESC, id", *values)  # noqa: S608

    def waiting(self) -> list[str]:
        """Ids in the order in which they will be taken."""
        return [row["id"] for row in self._do("SELECT id FROM slides WHERE status = 'queued' ORDER BY queued, id")]

    def ids(self) -> set[str]:
        """Of all slides, also of those being deleted."""
        return {row["id"] for row in self._do("SELECT id FROM slides")}

    def taken_names(self) -> set[str]:
        """Slide ids in small letters, also of those being deleted."""
        return {row["slide_id"].lower() for row in self._do("SELECT slide_id FROM slides")}

    def counts(self) -> dict[str, int]:
        """How many slides are in each state."""
        found = {row[0]: row[1] for row in self._do("SELECT status, count(*) FROM slides WHERE NOT deleted GROUP BY 1")}
        return {status: found.get(status, 0) for status in STATUSES}

    # From outside

    def add(self, slide: Slide, most_queued: int | None = None) -> Slide:
        """Put a new slide in; refuses one too many, and a name that is taken."""
        cells = to_row(slide)
        with self._alone() as connection:
            if slide.status == QUEUED and most_queued is not None:
                (count,) = connection.execute("SELECT count(*) FROM slides WHERE status = 'queued'").fetchone()
                if count >= most_queued:
                    raise _full(count, most_queued)
            try:
                connection.execute(
                    f"INSERT INTO slides ({','.join(cells)}) VALUES ({','.join('?' * len(cells))})",  # noqa: S608
                    (*cells.values(),),
                )
            except sqlite3.IntegrityError as error:
                raise conflict("the name is taken", got=slide.slide_id, hint="choose another slide_id") from error
        return slide

    def check_room(self, most_queued: int) -> None:
        """Refuse where the queue is full."""
        count = len(self.waiting())
        if count >= most_queued:
            raise _full(count, most_queued)

    def cancel(self, id: str) -> Slide:  # noqa: A002
        """Take a slide out of the queue, or ask its worker to stop."""
        with self._alone() as connection:
            now = time.time()
            connection.execute(
                "UPDATE slides SET status = 'cancelled', finished = ?, stage = '' "
                "WHERE id = ? AND status = 'queued' AND NOT deleted",
                (now, id),
            )
            connection.execute(
                "UPDATE slides SET cancel = coalesce(cancel, ?) WHERE id = ? AND status = 'running'", (now, id)
            )
        slide = self.get(id)
        if slide.status in (DONE, FAILED):
            raise conflict("nothing to cancel", got=slide.status, expected="queued or running")
        return slide

    def retry(self, id: str, mpp: tuple[float, float] | None, most_queued: int) -> Slide:  # noqa: A002
        """Queue a slide again that failed or was cancelled, on request with other µm/px."""
        slide = self.get(id)
        if slide.status not in (FAILED, CANCELLED):
            raise conflict("nothing to try again", got=slide.status, expected="failed or cancelled")
        self.check_room(most_queued)
        x, y = mpp or slide.mpp or (None, None)
        self._do(
            "UPDATE slides SET status = 'queued', queued = ?, finished = NULL, error = NULL, attempts = 0, deaths = 0, "
            "progress = 0, stage = '', cancel = NULL, worker = NULL, mpp_x = ?, mpp_y = ? "
            "WHERE id = ? AND status IN ('failed', 'cancelled') AND NOT deleted",
            time.time(), x, y, id,
        )  # fmt: skip
        return self.get(id)

    def locate(self, id: str, source: Path) -> None:  # noqa: A002
        """The original of results was found."""
        self._do("UPDATE slides SET source = ? WHERE id = ?", os.fsencode(source.absolute()), id)

    # Deleting: marked first, so that a kill in between is caught up on later

    def mark_deleted(self, id: str) -> Slide:  # noqa: A002
        """Nobody sees it any more; a running job is asked to stop."""
        slide = self.get(id)
        now = time.time()
        # All at once: on a full disk it is tried again.
        self._do(
            "UPDATE slides SET deleted = 1, cancel = coalesce(cancel, ?), "
            "finished = CASE status WHEN 'queued' THEN ? ELSE finished END, "
            "status = CASE status WHEN 'queued' THEN 'cancelled' ELSE status END WHERE id = ?",
            now, now, id,
        )  # fmt: skip
        return slide

    def to_purge(self) -> list[Slide]:
        """Deleted slides that nobody works on any more."""
        return self._slides("SELECT * FROM slides WHERE deleted AND status <> 'running'")

    def forget(self, id: str) -> None:  # noqa: A002
        """The last step of deleting."""
        self._do("DELETE FROM slides WHERE id = ? AND deleted", id)

    def vanished(self, id: str, *, keep: bool) -> None:  # noqa: A002
        """The results of a finished slide are gone; one that can be segmented again is kept."""
        if not keep:
            self._do("DELETE FROM slides WHERE id = ? AND status = 'done'", id)
            return
        error = ProblemError(404, "gone", "the results were removed", hint="try again to segment the slide anew")
        self._do(
            "UPDATE slides SET status = 'failed', error = ?, facts = NULL, progress = 0 "
            "WHERE id = ? AND status = 'done'",
            as_json(document_of(error)["error"]), id,
        )  # fmt: skip

    # Workers

    def claim(self, worker: str) -> Slide | None:
        """The next slide for a worker."""
        now = time.time()
        found = self._slides(
            "UPDATE slides SET status = 'running', worker = ?, started = ?, heartbeat = ?, progress = 0, "
            "stage = 'reading', attempts = attempts + 1, error = NULL, cancel = NULL "
            "WHERE id = (SELECT id FROM slides WHERE status = 'queued' AND NOT deleted ORDER BY queued, id LIMIT 1) "
            "RETURNING *",
            worker, now, now,
        )  # fmt: skip
        return found[0] if found else None

    def beat(self, id: str, worker: str, progress: float, stage: str) -> bool:  # noqa: A002
        """Tell how far a job is; returns whether to go on."""
        rows = self._do(
            "UPDATE slides SET progress = ?, stage = ?, heartbeat = ? "
            "WHERE id = ? AND worker = ? AND status = 'running' RETURNING cancel",
            progress, stage, time.time(), id, worker,
        )  # fmt: skip
        return bool(rows) and rows[0]["cancel"] is None

    def finish(
        self,
        id: str,  # noqa: A002
        worker: str,
        status: str,
        *,
        error: NtrmError | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        """The end of a job."""
        told = None if error is None else document_of(error)["error"]
        self._do(
            "UPDATE slides SET status = ?, finished = ?, error = ?, facts = coalesce(?, facts), stage = '', "
            "worker = NULL, cancel = NULL, progress = CASE ? WHEN 'done' THEN 1 ELSE progress END "
            "WHERE id = ? AND worker = ? AND status = 'running'",
            status, time.time(), as_json(told), as_json(facts), status, id, worker,
        )  # fmt: skip

    def release(self, id: str, worker: str) -> None:  # noqa: A002
        """Back into the queue, at its old place: the worker was asked to stop."""
        self._do(
            "UPDATE slides SET status = 'queued', worker = NULL, stage = '' "
            "WHERE id = ? AND worker = ? AND status = 'running' AND cancel IS NULL",
            id, worker,
        )  # fmt: skip
        self.reclaim(lambda other: other != worker, blame=False)

    def running(self) -> list[Slide]:
        """Also those being deleted."""
        return self._slides("SELECT * FROM slides WHERE status = 'running'")

    def reclaim(self, alive: Callable[[str], bool], *, blame: bool) -> list[Slide]:
        """Take running jobs from workers that are gone; returns them as they were.

        ``blame``: the worker died at the job, not with the whole service.
        """
        lost = [slide for slide in self.running() if slide.worker is None or not alive(slide.worker)]
        for slide in lost:
            deaths = slide.deaths + blame
            status, error = QUEUED, None
            if slide.cancel is not None:
                status = CANCELLED
            elif deaths >= MOST_DEATHS or slide.attempts >= MOST_ATTEMPTS:
                status, error = FAILED, document_of(_hopeless(deaths, slide.attempts), "worker_died")["error"]
            ended = None if status == QUEUED else time.time()
            self._do(
                "UPDATE slides SET status = ?, deaths = ?, error = ?, finished = ?, worker = NULL, cancel = NULL, "
                "stage = '' WHERE id = ? AND status = 'running' AND worker IS ?",
                status, deaths, as_json(error), ended, slide.id, slide.worker,
            )  # fmt: skip
        return lost

    # Sessions of browsers, by the hash of their cookie

    def add_session(self, digest: str, token: str, expires: float) -> None:
        """Remember a browser; ``token`` is the hash of the token that let it in."""
        self._do("DELETE FROM sessions WHERE expires < ?", time.time())
        self._do("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", digest, token, expires)

    def sessions(self, token: str) -> dict[str, float]:
        """Those that this token let in and when they end."""
        rows = self._do("SELECT digest, expires FROM sessions WHERE token = ?", token)
        return {row["digest"]: row["expires"] for row in rows}


def _full(count: int, most: int) -> ProblemError:
    return ProblemError(
        429,
        "queue_full",
        "the queue is full",
        got=f"{count} slides wait",
        expected=f"at most {most}",
        hint="come back when some of them are done",
        headers={"Retry-After": "60"},
    )


def _hopeless(deaths: int, attempts: int) -> DataError:
    return DataError(
        "the slide could not be segmented",
        got=f"{attempts} attempts, of which {deaths} ended the process that worked on it",
        hint="look into worker.log for the reason; less memory is used with a smaller --batch",
    )
