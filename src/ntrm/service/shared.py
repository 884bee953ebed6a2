"""Places that the web process and the workers share, and how one sees whether the other lives."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ntrm.errors import RefusedError
from ntrm.files import remove_partials
from ntrm.reproduction.locks import holding
from ntrm.segmentation.memory import HIDDEN, BusyError, alone
from ntrm.service.settings import ServiceSettings

DATABASE, AUDIT, LOG, SERVER_LOCK, RESERVE = "jobs.sqlite", "audit.jsonl", "worker.log", "server.lock", "reserve"
UPLOADS, INCOMING, TRASH, WORKERS, THUMBNAILS = "uploads", "incoming", "trash", "workers", "thumbnails"
LOST = "lost"
"""Files among the uploads that no slide belongs to."""


def upload_path(hidden: Path, id: str) -> Path:  # noqa: A002 - the slide's
    """Where a slide's upload lies, below the service's own folder."""
    return hidden / UPLOADS / id


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


def forget_partials(folder: Path) -> None:
    """Remove the temporary files of a worker that was killed at a slide; what it can go on from stays."""
    if not folder.is_dir():
        return
    with suppress(BusyError), alone(folder):
        for place in (folder, *(each for each in (folder / HIDDEN).rglob("*") if each.is_dir())):
            remove_partials(place)
