"""Places that the web process and the workers share, and how one sees whether the other lives."""

from __future__ import annotations

from pathlib import Path

from ntrm.errors import RefusedError
from ntrm.reproduction.locks import holding
from ntrm.service.settings import ServiceSettings

DATABASE, AUDIT, LOG, SERVER_LOCK = "jobs.sqlite", "audit.jsonl", "worker.log", "server.lock"
UPLOADS, INCOMING, TRASH, WORKERS, THUMBNAILS = "uploads", "incoming", "trash", "workers", "thumbnails"


def lock_of(settings: ServiceSettings, worker: str) -> Path:
    """What a worker holds as long as it lives; process numbers are given again, locks are not."""
    return settings.hidden / WORKERS / f"{worker}.lock"


def is_alive(settings: ServiceSettings, worker: str) -> bool:
    """Whether a worker of that name still runs."""
    path = lock_of(settings, worker)
    if not path.exists():
        return False
    try:
        with holding(path):
            return False
    except RefusedError:
        return True


def forget_dead(settings: ServiceSettings) -> None:
    """Remove the locks of workers that are gone."""
    folder = settings.hidden / WORKERS
    for path in folder.glob("*.lock") if folder.is_dir() else ():
        if not is_alive(settings, path.stem):
            path.unlink(missing_ok=True)
