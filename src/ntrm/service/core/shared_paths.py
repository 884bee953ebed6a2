"""Folders that the web process and the workers share, and server paths that a request may name."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ntrm.core.errors import RefusedError
from ntrm.core.io import holding, remove_partials
from ntrm.results.paths import HIDDEN
from ntrm.results.slide_state import BusyError, alone
from ntrm.service.core.problems import ProblemError
from ntrm.service.core.settings import SERVICE_FOLDER, ServiceSettings

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


# Server paths that a request may name: files under an allowed root, whatever way they are spelt.


LONGEST_PATH = 4096
LONGEST_NAME = 200


def file_under(roots: Sequence[Path], text: str) -> Path:
    """The file that ``text`` names, absolute or below a root; refuses whatever lies outside, also through links.

    Nothing tells a file outside from one that is not there.
    """
    refusal = ProblemError(
        403,
        "outside",
        "no such slide under an allowed root",
        expected="a file below a folder that was given with --root",
        hint="start the service with --root FOLDER, or upload the slide",
    )
    if not text or len(text) > LONGEST_PATH or "\x00" in text or not roots:
        raise refusal
    given = Path(text)
    for root in roots:
        base = root.resolve()
        try:
            found = (base / given).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            continue
        # After every link is followed: what counts is where the file lies. The service's own files are no slides.
        below = found.is_relative_to(base) and found != base and SERVICE_FOLDER not in found.parts
        if below and (found.is_file() or found.is_dir()):
            if found.is_dir():
                raise ProblemError(
                    422, "unreadable", "the path names a folder", expected="the slide's main file", hint="name a file"
                )
            return found
    raise refusal


def display_name(text: str) -> str:
    r"""A name as it may be shown: one line, no control characters, nothing that turns the direction of writing.

    >>> display_name("a\x1b[31m\u202eb.svs")
    'a[31mb.svs'
    """
    last = text.replace("\\", "/").rsplit("/", 1)[-1]
    shown = "".join(each for each in last if unicodedata.category(each)[0] != "C")
    return " ".join(shown.split())[:LONGEST_NAME]
