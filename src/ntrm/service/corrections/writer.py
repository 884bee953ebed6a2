"""Makes the files of corrected masks, soon after the last step, each slide's in a process of its own.

The log is on disk before anybody is told that a step was taken; these files follow from it. So the process may be
killed at any moment: what it leaves undone is made at the next start, or when somebody asks for the slide. Run as a
module, this is that process: the first line of its input names the folder, and the end of the input ends it. Tables of
all slides follow once nobody has corrected or deleted anything for a while.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ntrm.core.errors import NtrmError
from ntrm.core.processes import HOME, close_pipes, end_with_parent, exit_code_of, start_module, tell
from ntrm.correction.log import read_log
from ntrm.correction.results import is_current
from ntrm.results.paths import RUN
from ntrm.service.core.problems import without_paths
from ntrm.service.core.watch import Watch

_log = logging.getLogger(__name__)
REST_SECONDS = 2.0
"""Without a further step, before the files are made."""
TABLE_SECONDS = 10.0
"""After the last slide's files, before the tables of all slides are written."""
RETRY_SECONDS = 60.0
"""After a failure."""
MOST_SECONDS = 1800.0
POLL_SECONDS = 0.05
NICE = 5
CORRECTED_FILES = "the files of corrected masks"
LONGEST = 300
"""Characters of what is said about a failure."""


class CorrectedWriter:
    """Makes the files of one slide after the other; a thread of the web process."""

    def __init__(self, out: Path, log: Path, watch: Watch) -> None:
        self._out, self._log, self._watch = out, log, watch
        self._due: dict[Path, float] = {}
        """When each folder is to be looked after."""
        self._failed: dict[Path, tuple[float, str]] = {}
        """Until when those that failed are left alone, and why they did."""
        self._now: Path | None = None
        self._dropped = False
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="corrected", daemon=True)
        self._behind: Callable[[], list[Path]] = list

    def start(self, behind: Callable[[], list[Path]]) -> None:
        """Begin with the folders that are behind; they are looked for in the thread."""
        self._behind = behind
        self._thread.start()

    def stop(self) -> None:
        """End at once; what is undone is made at the next start."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def ask(self, folder: Path, *, again: bool = False) -> None:
        """Make the files of a slide anew, a moment after the last time that this was asked.

        ``again``: nothing changed, but they were not there; then the wait is not prolonged.
        """
        with self._changed:
            if again and folder in self._due:
                return
            due = time.monotonic() + REST_SECONDS
            self._due[folder] = max(due, self._failed.get(folder, (0.0, ""))[0]) if again else due
            self._changed.notify_all()

    def ask_tables(self) -> None:
        """Write the tables of all slides anew, a moment after the last time that this was asked."""
        with self._changed:
            if (self._out / RUN).is_file():
                self._due[self._out] = time.monotonic() + TABLE_SECONDS
                self._changed.notify_all()

    def failure(self, folder: Path) -> str | None:
        """Why the files of a slide could not be made the last time."""
        with self._changed:
            return self._failed[folder][1] if folder in self._failed else None

    def drop(self, folder: Path) -> None:
        """Leave a slide alone that is about to be deleted; returns when nobody writes to it any more."""
        with self._changed:
            self._due.pop(folder, None)
            if self._now == folder:
                self._dropped = True
                self._changed.wait_for(lambda: self._now != folder or not self._thread.is_alive())

    def _run(self) -> None:
        self._watch.run(CORRECTED_FILES, self._ask_behind)
        while (folder := self._next()) is not None:
            self._watch.run(CORRECTED_FILES, partial(self._look_after, folder))

    def _ask_behind(self) -> None:
        for behind in self._behind():
            self.ask(behind, again=True)

    def _look_after(self, folder: Path) -> None:
        reason: str | None = "something went wrong: see the log of the service"
        try:
            reason = None if folder != self._out and _is_made(folder) else self._make(folder)
        except OSError as error:
            # A full disk or memory, perhaps: others have to be looked after all the same.
            reason = error.strerror or type(error).__name__
        finally:
            with self._changed:
                self._failed.pop(folder, None)
                if reason:
                    _log.warning("the files of a corrected mask could not be made: see %s", self._log.name)
                    self._failed[folder] = time.monotonic() + RETRY_SECONDS, reason
                elif reason is not None and folder != self._out:
                    self._due[self._out] = time.monotonic() + TABLE_SECONDS
                self._now, self._dropped = None, False
                self._changed.notify_all()

    def _next(self) -> Path | None:
        """Wait for a folder that is due; None at the end."""
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                due = [folder for folder, when in self._due.items() if when <= now]
                if due:
                    self._now = due[0]
                    del self._due[due[0]]
                    return due[0]
                self._changed.wait(min(self._due.values()) - now if self._due else None)
        return None

    def _make(self, folder: Path) -> str:
        """Why the files could not be made; empty where they were, or where nobody wants them any more."""
        process = start(folder, self._log)
        until = time.monotonic() + MOST_SECONDS
        try:
            while process.poll() is None:
                if self._stopped or self._dropped:
                    return ""
                if time.monotonic() > until:
                    return "it took too long"
                time.sleep(POLL_SECONDS)
            # A sentence at most, which never fills the pipe.
            said = process.stdout.read().decode() if process.stdout is not None else ""
            return "" if process.returncode == 0 else said or "the process that makes them ended"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            close_pipes(process)


def _is_made(folder: Path) -> bool:
    """Whether the files are there already; what is damaged is reported by who makes them."""
    try:
        return is_current(folder, read_log(folder))
    except NtrmError:
        return False


def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """A process that makes the files of a slide; it ends with this one."""
    process = start_module("ntrm.service.corrections.writer", log, *HOME)
    # Not as an argument, which other users of the machine could read.
    tell(process, os.fsencode(folder).hex().encode())
    return process


def main() -> int:
    """Make the files of the slide's folder that the first line names, or the tables of a folder of results."""
    folder = Path(os.fsdecode(bytes.fromhex(os.read(0, 1 << 16).decode().strip())))
    end_with_parent()
    os.nice(NICE)
    return exit_code_of(lambda: _told(folder))


def _told(folder: Path) -> None:
    """Say in one line, without paths, what went wrong."""
    try:
        _write(folder)
    except NtrmError as error:
        said = [error.what, error.got, error.hint]
        sys.stdout.write("; ".join(" ".join(without_paths(each).split())[:LONGEST] for each in said if each))
        sys.stdout.flush()
        raise


def _write(folder: Path) -> None:
    from ntrm.correction.mask import open_mask
    from ntrm.correction.results import write_corrected
    from ntrm.pipeline.tabulating import tabulate_again

    if (folder / RUN).is_file():
        tabulate_again(folder)
    else:
        write_corrected(open_mask(folder))


if __name__ == "__main__":
    sys.exit(main())
