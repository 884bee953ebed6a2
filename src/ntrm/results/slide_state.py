"""What a slide's folder keeps of its segmentation: what it was made of, its rows of the tables, or why it failed.

All of it lies in a hidden folder, ``.ntrm``: the lock, the unfinished rows, and one document at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import holding, remove_partials, write_json
from ntrm.results.documents import AGAIN
from ntrm.results.paths import DONE, FAILED, HIDDEN, LOCK


class BusyError(RefusedError):
    """Another process works on the slide."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the slide against other processes; the lock goes with its holder, however that ends."""
    with ExitStack() as stack:
        try:
            stack.enter_context(holding(folder / HIDDEN / LOCK))
        except RefusedError as error:
            hint = "wait until it ends; the same command then finds it done"
            raise BusyError("another process works on this slide", hint=hint) from error
        # Only now is it sure that nobody is writing these.
        remove_partials(folder)
        remove_partials(folder / HIDDEN)
        yield


def remember(folder: Path, plan: Mapping[str, Any], tables: Mapping[str, Any], covariates: Mapping[str, str]) -> None:
    """The slide is finished: this comes last of all its files."""
    write_json(folder / HIDDEN / DONE, {"plan": dict(plan), "covariates": dict(covariates), "tables": dict(tables)})
    forget_failure(folder)


def forget_failure(folder: Path) -> None:
    """An earlier failure no longer counts."""
    (folder / HIDDEN / FAILED).unlink(missing_ok=True)


def remember_failure(folder: Path, slide_id: str, reason: str, covariates: Mapping[str, str]) -> None:
    """Why there are no results, for the tables; results that are there stay."""
    row = {"slide_id": slide_id, "status": "failed", "reason": reason}
    # On a full disk this fails, too; the command still reports the failure. Where another process works on the slide by
    # now, it will record the outcome.
    with suppress(DataError, OSError, BusyError), alone(folder):
        write_json(folder / HIDDEN / FAILED, {"covariates": dict(covariates), "tables": {"slides": [row]}})


def remembered(folder: Path) -> dict[str, Any] | None:
    """The failure, if the last attempt failed, else the results; None where there is neither."""
    return _document(folder / HIDDEN / FAILED, ("covariates", "tables")) or finished(folder)


def finished(folder: Path) -> dict[str, Any] | None:
    """The document of a slide that was finished."""
    return _document(folder / HIDDEN / DONE, ("plan", "covariates", "tables"))


def _document(path: Path, keys: tuple[str, ...]) -> dict[str, Any] | None:
    """The document at ``path``, if there is one; it must have these keys, all of them objects."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}", got=error, hint=AGAIN) from error
    sound = isinstance(document, dict) and all(isinstance(document.get(key), dict) for key in keys)
    tables = document["tables"] if sound else {}
    rows = [isinstance(table, list) and all(isinstance(row, dict) for row in table) for table in tables.values()]
    if not all(rows) or not tables.get("slides"):
        raise DataError(f"{path} is no record of a slide", hint=AGAIN)
    return dict(document)
