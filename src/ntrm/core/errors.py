"""Every error a user can meet: what was got, what was expected, how to fix it."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any


class NtrmError(Exception):
    """Base of all errors that NTRM raises on purpose.

    The command line prints the message and exits with ``exit_code``; it shows a traceback with ``-v`` only.

    >>> print(NtrmError("mask has the wrong size", got="10 x 10", expected="20 x 20", hint="export it again"))
    mask has the wrong size
      got:      10 x 10
      expected: 20 x 20
      hint:     export it again
    """

    exit_code = 1

    def __init__(self, what: str, *, got: object = None, expected: object = None, hint: str = "") -> None:
        self.what, self.got, self.expected, self.hint = what, got, expected, hint
        super().__init__(what)

    def __str__(self) -> str:
        lines = {"got:      ": self.got, "expected: ": self.expected, "hint:     ": self.hint or None}
        return "\n".join([self.what, *(f"  {name}{value}" for name, value in lines.items() if value is not None)])

    def texts(self) -> dict[str, str | None]:
        """The fields as a JSON document."""
        fields = {"what": self.what, "got": self.got, "expected": self.expected, "hint": self.hint}
        return {name: None if value is None else str(value) for name, value in fields.items()}

    def prefixed(self, where: str) -> NtrmError:
        """The same error, and where it was met."""
        return type(self)(f"{where}: {self.what}", got=self.got, expected=self.expected, hint=self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling, and errors do cross process borders.
        return (partial(type(self), self.what, got=self.got, expected=self.expected, hint=self.hint), ())


class DataError(NtrmError):
    """A file or a dataset is not what it should be."""


class UsageError(NtrmError):
    """The command or the call itself is wrong."""

    exit_code = 2


class RefusedError(NtrmError):
    """Going on would be unsafe, or would mix what does not belong together (or guess a missing µm/px)."""

    exit_code = 3


def path_error(
    what: str, path: str | Path, *, got: object = None, expected: object = None, hint: str = ""
) -> DataError | UsageError:
    """Error about what a user named by its path: wrong usage where nothing is there, since it is mistyped then.

    >>> path_error("no such model", "nowhere").exit_code, path_error("holds no model", ".").exit_code
    (2, 1)
    """
    kind = DataError if os.path.lexists(path) else UsageError
    return kind(what, got=got, expected=expected, hint=hint)


def choices_error(what: str, got: str, choices: Iterable[object]) -> UsageError:
    """Error for an unknown name: lists the known names, and the one that was probably meant.

    >>> raise choices_error("unknown tissue", "EPL", ["EPI", "GLD"])
    Traceback (most recent call last):
    ...
    ntrm.core.errors.UsageError: unknown tissue
      got:      EPL
      expected: one of EPI, GLD
      hint:     did you mean EPI?
    """
    names = [str(choice) for choice in choices]
    return UsageError(what, got=got, expected=f"one of {', '.join(names)}", hint=did_you_mean(got, names))


def did_you_mean(got: str, names: Sequence[str]) -> str:
    """A hint with the most similar name; empty where none is similar.

    >>> did_you_mean("learning-rate", ["batch", "learning_rate"])
    'did you mean learning_rate?'
    """
    close = get_close_matches(got.lower(), [name.lower() for name in names], n=1)
    return next((f"did you mean {name}?" for name in names if close and name.lower() == close[0]), "")


def first_names(names: Sequence[str], limit: int = 5) -> str:
    """The first names of a list that may be long.

    >>> first_names(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def listed(lines: Sequence[str], limit: int = 5) -> str:
    """The same as lines, one below the other as an error shows what was got."""
    more = [f"… and {len(lines) - limit} more"] * (len(lines) > limit)
    return "\n            ".join([*lines[:limit], *more])


def check_number(what: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    """Refuse what is no number (``whole``: no whole number) between ``low`` and ``high``.

    >>> check_number("width", "wide", 0, 4)
    Traceback (most recent call last):
    ...
    ntrm.core.errors.UsageError: impossible width
      got:      'wide'
      expected: a number from 0 to 4
    """
    number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # type: ignore[operator]
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"impossible {what}", got=repr(value), expected=f"{kind} from {low:g} to {high:g}")


def plain_number(value: Any) -> Any:
    """Numbers of numpy as Python's own, which JSON and YAML can hold; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def plain_fields(config: Any) -> None:
    """``plain_number`` for the fields of a frozen dataclass."""
    for field in fields(config):
        object.__setattr__(config, field.name, plain_number(getattr(config, field.name)))


MOST_SEED = 2**63 - 1  # Generators of numpy and torch take more, but none takes every number


def check_seed(seed: object) -> None:
    """Refuse a seed that some generator would not take."""
    check_number("seed", seed, 0, MOST_SEED, whole=True)


PATIENT = ("patient", "patient_id", "patientid", "case_id", "subject")
"""Other common names of the column ``group`` of cases.csv."""

WHICH = ("slide", "name", "file", "filename", "file_name", "image", "path")
"""Common names of the column that says which image, or which slide, a row is about."""


def columns_hint(columns: Sequence[str], needed: Sequence[str]) -> str:
    """Hint for a CSV table whose first line was read as these columns.

    >>> columns_hint(["name;group"], ["name", "group"])
    'save it with commas between the cells, not semicolons, and with points in numbers (0.5)'
    >>> columns_hint(["Slide"], ["slide"]), columns_hint(["file"], ["slide"])
    ('rename the column Slide to slide', 'rename the column file to slide')
    >>> columns_hint(["name", "patient_id", "split"], ["name", "group", "split"])
    'rename the column patient_id to group'
    """
    for between, name in ((";", "semicolons"), ("\t", "tabs")):
        if any(between in column for column in columns):
            return f"save it with commas between the cells, not {name}, and with points in numbers (0.5)"
    missing = [name for name in needed if name not in columns]
    which = next((name for name in missing if name in WHICH[:2]), "")
    meant = dict.fromkeys(WHICH, which) | dict.fromkeys(PATIENT, "group") | {name: name for name in missing}
    for column in columns:
        if (name := meant.get(column.lower(), "")) in missing:
            return f"rename the column {column} to {name}"
    return "correct the first line"


BROKEN = (
    *(OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, AttributeError, SyntaxError),
    *(EOFError, MemoryError, struct.error, zlib.error),
)
"""What the decoders are known to raise on damaged files; none of it may reach a user as a traceback."""
