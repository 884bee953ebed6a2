"""What a slide's hidden folder, ``.ntrm``, keeps: what results were made of, rows of the tables, or why it failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import STRICT, holding, parsed, remove_partials, write_json
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import CORRECTIONS, DONE, FAILED, HIDDEN, LOCK, SOURCE

Row = dict[str, Any]
Tables = Mapping[str, tuple[Row, ...]]  # Rows by the name of their table


class BusyError(RefusedError):
    """Another process works on the slide."""


class MadeOtherwiseError(RefusedError):
    """The slide is finished, of another file, say: its results stay, and still count."""


def made_otherwise(got: str, folder: Path, hint: str = "") -> MadeOtherwiseError:
    """The error for a finished slide that is asked for anew and not alike."""
    also = f": with it goes what a person corrected ({CORRECTIONS})" if SlideFolder(folder).has(CORRECTIONS) else ""
    return MadeOtherwiseError(
        "results that were made differently already exist",
        got=got,
        expected="the same slide, model and options",
        hint=f"{hint}choose another --out, or delete {folder.name}{also}",
    )


@dataclass(frozen=True)
class Plan:
    """All that decides a slide's results."""

    slide_id: str
    run: str  # Fingerprint of model, program and options
    mpp: tuple[float, float] | None  # Of the slide, where it was stated
    source: str | None  # Fingerprint of the slide's file; None where it is gone


@dataclass(frozen=True)
class SlideState:
    """What is kept of a slide. The fields are the keys of the file."""

    __pydantic_config__ = STRICT
    plan: Plan | None  # None where the slide failed
    covariates: Mapping[str, str]
    tables: Tables

    @property
    def row(self) -> Row:
        """Of the table ``slides``."""
        return self.tables["slides"][0]

    def with_foot(self, foot: Row, tables: Tables | None = None) -> Tables:
        """Its rows, or those of ``tables``, with the slide's covariates, and with the model."""
        every = self.tables if tables is None else tables
        return {name: tuple({**row, **self.covariates, **foot} for row in rows) for name, rows in every.items()}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the slide against other processes; the lock goes with its holder, however that ends."""
    with ExitStack() as stack:
        SlideFolder(folder).check()
        try:
            stack.enter_context(holding(folder / HIDDEN / LOCK))
        except RefusedError as error:
            hint = "wait until it ends; the same command then finds it done"
            raise BusyError("another process works on this slide", hint=hint) from error
        # Only now is it sure that nobody is writing these.
        remove_partials(folder)
        remove_partials(folder / HIDDEN)
        yield


def remember(folder: Path, state: SlideState) -> None:
    """Record that the slide is finished, after all its other files; an earlier failure no longer counts."""
    write_json(folder / HIDDEN / DONE, state)
    (folder / HIDDEN / FAILED).unlink(missing_ok=True)


def remember_failure(folder: Path, slide_id: str, reason: str, covariates: Mapping[str, str]) -> None:
    """Why there are no results, for the tables; results that are there stay."""
    row = {"slide_id": slide_id, "status": "failed", "reason": reason}
    # On a full disk this fails, too; the command still reports the failure. Where another process works on the slide by
    # now, it will record the outcome.
    with suppress(DataError, OSError, BusyError), alone(folder):
        write_json(folder / HIDDEN / FAILED, SlideState(None, covariates, {"slides": (row,)}))


def source_version(folder: Path) -> str | None:
    """Which version of its objects a slide from object storage was; None where that is not known."""
    try:
        return SlideFolder(folder).read(HIDDEN, SOURCE, most=1000).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None


def remembered(folder: Path) -> SlideState | None:
    """The failure, if the last attempt failed, else the results; None where there is neither."""
    return _read(folder, FAILED) or finished(folder)


def finished(folder: Path) -> SlideState | None:
    """The results of a slide that was finished."""
    return _read(folder, DONE)


def _read(folder: Path, name: str) -> SlideState | None:
    try:
        state = parsed(SlideState, SlideFolder(folder).read(HIDDEN, name))
        if not state.tables.get("slides"):
            raise ValueError("no row of the table slides")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        # Not the slide's folder: what a person corrected lies there, too.
        hint = f"delete {folder.name}/{HIDDEN}/{name}, and run the same ntrm segment again"
        raise DataError(f"{folder.name}: cannot read {HIDDEN}/{name}", got=error, hint=hint) from error
    return state
