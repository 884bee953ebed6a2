"""Every fault a dataset can have: its code, what it means, what is expected and how to fix it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from ntrm.core.errors import DataError


@dataclass(frozen=True)
class Kind:
    """What all faults of one code have in common."""

    title: str
    expected: str
    hint: str
    severity: str = "fault"


_TABLE = Path(__file__).with_suffix(".csv").read_text(encoding="utf-8").splitlines()
KINDS = {row.pop("code"): Kind(**row) for row in csv.DictReader(_TABLE)}
"""All codes, in the order in which reports list them."""


@dataclass(frozen=True)
class Fault:
    """One fault (or note, which does not make a dataset unclean) of one file; ``file`` is relative to the dataset.

    >>> fault("missing-mask", "Images/a.tif").hint
    'add the mask, or remove the image'
    """

    code: str
    file: str
    found: str
    expected: str
    hint: str
    severity: str = "fault"

    @property
    def title(self) -> str:
        """What the code means."""
        return KINDS[self.code].title


def fault(
    code: str, file: str | Path, found: str = "", *, expected: str = "", hint: str = "", severity: str | None = None
) -> Fault:
    """Fault of a known code; empty fields take the texts of the code."""
    kind = KINDS[code]
    told = {"expected": expected or kind.expected, "hint": hint or kind.hint, "severity": severity or kind.severity}
    return Fault(code, printable(str(file)), printable(found or kind.title), **told)


def printable(text: str) -> str:
    r"""Text in which control characters and broken Unicode are escaped, safe for terminals and JSON.

    >>> printable("a\x1b[31m\udcff.png")
    'a\\x1b[31m\\udcff.png'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class FaultError(DataError):
    """A file that cannot be used, with the code under which ``ntrm data check`` reports it."""

    def __init__(self, code: str, path: Path, found: str = "", expected: str = "", hint: str = "") -> None:
        self.fault = fault(code, path, found, expected=expected, hint=hint)
        what = f"{self.fault.file}: {self.fault.title}"
        super().__init__(what, got=self.fault.found, expected=self.fault.expected, hint=self.fault.hint)
        self._arguments = (code, path, found, expected, hint)

    def __reduce__(self) -> tuple[object, ...]:
        return FaultError, self._arguments
