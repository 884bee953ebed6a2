"""Tables of results: cells that know their spread, shown on a page as text and in a CSV file as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from ntrm.core.io import rows_text, write_text
from ntrm.metrics.significance import Comparison
from ntrm.metrics.wording import MINUS, signed, with_minus
from ntrm.report.html import Column, columns

FAILED = "failed"
NONE = "–"


@dataclass(frozen=True)
class Score:
    """A number for each training seed: mean ± standard deviation of a sample.

    >>> str(Score((0.5, 0.7))), str(Score((0.5,))), str(Score((0.5,), failed=1)), str(Score((), failed=2))
    ('0.6000 ± 0.1414', '0.5000', '0.5000 (1 seed failed)', 'failed')
    """

    values: tuple[float, ...]
    failed: int = 0
    """Seeds whose run failed."""
    digits: int = 4

    @property
    def mean(self) -> float | None:
        """Mean over the seeds; None where there is no number."""
        return fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None for fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        if self.mean is None:
            return FAILED if self.failed else NONE
        text = with_minus(f"{self.mean:.{self.digits}f}")
        if self.spread is not None:
            text += f" ± {self.spread:.{self.digits}f}"
        return text + (f" ({self.failed} seed{'s' * (self.failed > 1)} failed)" if self.failed else "")

    def __bool__(self) -> bool:
        return bool(self.values)


@dataclass(frozen=True)
class Difference:
    """A difference with its interval, in the unit of the table; a star says that it is established.

    >>> print(Difference(1.25, -0.5, 3.0, established=False), Difference(2, 1, 3, established=True))
    +1.25 (−0.50 to +3.00) +2.00 (+1.00 to +3.00) *
    """

    value: float
    low: float
    high: float
    established: bool

    @classmethod
    def of(cls, comparison: Comparison, scale: float = 100.0) -> Difference:
        """A comparison's difference; by default in points of a score that runs to 1."""
        ends = comparison.difference * scale, comparison.low * scale, comparison.high * scale
        return cls(*ends, established=comparison.established)

    def __str__(self) -> str:
        value, low, high = (signed(each, 2) for each in (self.value, self.low, self.high))
        return f"{value} ({low} to {high}){' *' * self.established}"


Cell = str | int | float | Score | Difference | None


@dataclass(frozen=True)
class Table:
    """A table with a name for its file, a title, and a note on how to read it."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    @property
    def texts(self) -> list[list[str]]:
        """The rows as a page shows them."""
        return [[_text(cell) for cell in row] for row in self.rows]

    @property
    def columns(self) -> list[Column]:
        """The header with its classes for a page."""
        return columns(self.header, self.texts)

    def write_csv(self, folder: Path) -> Path:
        """Write ``NAME.csv``; spreads and ends of intervals have columns of their own."""
        kinds = [_kind([row[k] for row in self.rows]) for k in range(len(self.header))]
        header = [name for title, kind in zip(self.header, kinds, strict=True) for name in _names(title, kind)]
        rows = [[v for cell, kind in zip(row, kinds, strict=True) for v in _values(cell, kind)] for row in self.rows]
        path = folder / f"{self.name}.csv"
        write_text(path, rows_text([header, *rows]))
        return path


def _text(cell: Cell) -> str:
    if cell is None:
        return NONE
    return with_minus(f"{cell:.4f}") if isinstance(cell, float) else str(cell)


def _kind(cells: Sequence[Cell]) -> type | None:
    return next((kind for kind in (Score, Difference) if any(isinstance(cell, kind) for cell in cells)), None)


def _names(title: str, kind: type | None) -> list[str]:
    further = {Score: ("sd", "seeds", "failed"), Difference: ("low", "high", "established")}
    return [title, *(f"{title} {end}" for end in further.get(kind, ()))] if kind else [title]


def _values(cell: Cell, kind: type | None) -> list[object]:
    if isinstance(cell, Score):
        return [cell.mean, cell.spread, len(cell.values), cell.failed]
    if isinstance(cell, Difference):
        return [cell.value, cell.low, cell.high, cell.established]
    # Programs read a hyphen only.
    plain = cell.replace(MINUS, "-") if isinstance(cell, str) else cell
    return [plain, *[None] * (len(_names("", kind)) - 1)]
