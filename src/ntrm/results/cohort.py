"""The tables of many slides summed up, read row by row: memory does not grow with the number of regions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from ntrm.core.csv_text import by_column, stream_rows
from ntrm.core.errors import DataError
from ntrm.core.wording import OUTSIDE
from ntrm.results.familiarity import NOT_ASSESSED, UNFAMILIAR
from ntrm.results.folder import opened_table
from ntrm.results.paths import table_file
from ntrm.results.run_record import Run, read_run

AGAIN = "run the same ntrm segment again: it keeps what is done and writes the tables anew"
MEASURES = {
    "deep_clearance": "Deep clearance",
    "lateral_clearance": "Lateral clearance",
    "invasion_depth": "Depth of invasion",
}

Cells = Mapping[str, str]


@dataclass(frozen=True)
class CohortSlide:
    """One row of ``slides``, with the mean confidence of its regions and the reasons of its pieces."""

    slide_id: str
    done: bool
    reason: str
    warnings: str
    pieces: int
    tissue_area_mm2: float | None
    fractions: Mapping[str, float]
    cancers: Mapping[str, float]
    """Those that are present, each with the confidence that it is."""
    measures: Mapping[str, float | None]
    """In mm, by the names of ``MEASURES``."""
    reasons: Mapping[str, Sequence[str]]
    """Why pieces lack a measurement, each reason once."""
    confidence: float | None
    """Mean over the regions, weighted by area."""
    assessed: bool = True
    """False where cancers are not assessed, since the slide is unlike what the model knows, has no piece of tissue, or
    has tumour in crumbs alone. No statistic has it."""
    corrected_parts: int = 0
    """Parts of regions that a person corrected; all else here is what the network said."""
    corrected_cancers: tuple[str, ...] = ()
    """Those that are present in the corrected version."""
    corrected_assessed: bool = True
    """Whether all were assessed there."""

    def tumour_fraction(self, cancers: Sequence[str]) -> float:
        """Fraction of the tissue that is any cancer."""
        return math.fsum(self.fractions.get(name, 0.0) for name in cancers)


@dataclass(frozen=True)
class Cohort:
    """All slides of a folder of results."""

    slides: tuple[CohortSlide, ...]
    tissues: tuple[str, ...]
    """Without the background."""
    cancers: tuple[str, ...]
    run: Run
    """Model, program, options and classes."""
    neighbours: Mapping[str, Mapping[str, float]]
    """By cancer: length in mm of the boundary with each other tissue, in all pieces that are assessed."""

    @property
    def done(self) -> tuple[CohortSlide, ...]:
        """Slides with results."""
        return tuple(slide for slide in self.slides if slide.done)

    @property
    def assessed(self) -> tuple[CohortSlide, ...]:
        """Slides with results that statistics of cancers may count."""
        return tuple(slide for slide in self.done if slide.assessed)

    @property
    def failed(self) -> tuple[CohortSlide, ...]:
        """Slides without."""
        return tuple(slide for slide in self.slides if not slide.done)


def read_cohort(out: Path) -> Cohort:
    """Read ``run.json`` and the four tables."""
    run = read_run(out)
    rows = list(_rows(out, "slides", "slide_id", "status", "reason", "tissue_area_mm2", "familiarity"))
    columns = list(rows[0]) if rows else []
    tissues = tuple(name.removeprefix("fraction_") for name in columns if name.startswith("fraction_"))
    cancers = tuple(
        name.removeprefix("cancer_").removesuffix("_confidence")
        for name in columns
        if name.startswith("cancer_") and name.endswith("_confidence")
    )
    reasons, confidence = _read_reasons(out), _mean_confidence(out)
    with _damage(f"the tables of {out} are"):
        slides = tuple(_slide(row, tissues, cancers, reasons, confidence) for row in rows)
    left_out = {slide.slide_id for slide in slides if not slide.assessed}
    return Cohort(slides, tissues, cancers, run, _neighbours(out, tissues, cancers, left_out))


@contextmanager
def _damage(subject: str) -> Iterator[None]:
    """Turn errors of reading cells into a ``DataError``: the tables are damaged."""
    try:
        yield
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"{subject} damaged", got=error, hint=AGAIN) from error


def _slide(
    row: Cells,
    tissues: Sequence[str],
    cancers: Sequence[str],
    reasons: Mapping[str, Mapping[str, Sequence[str]]],
    confidence: Mapping[str, float],
) -> CohortSlide:
    slide_id = row["slide_id"]
    # Every slide is a folder beside the tables, and nothing else.
    if slide_id != Path(slide_id).name or slide_id.startswith(".") or "\0" in slide_id:
        raise ValueError(f"{slide_id!r} is no slide's folder")
    cells = {name: row.get(f"cancer_{name}") for name in cancers}
    present = [name for name, cell in cells.items() if cell == "true"]
    return CohortSlide(
        slide_id=slide_id,
        done=row["status"] == "done",
        reason=row["reason"],
        warnings=row.get("warnings", ""),
        pieces=int(row.get("pieces") or 0),
        tissue_area_mm2=_number(row["tissue_area_mm2"]),
        fractions={name: _number(row[f"fraction_{name}"]) or 0.0 for name in tissues},
        cancers={name: _number(row[f"cancer_{name}_confidence"]) or 0.0 for name in present},
        measures={key: _number(row[f"{key}_mm"]) for key in MEASURES},
        reasons=reasons.get(slide_id, {}),
        confidence=confidence.get(slide_id),
        corrected_parts=int(row.get("corrected_parts") or 0),
        corrected_cancers=tuple(name for name in cancers if row.get(f"corrected_cancer_{name}") == "true"),
        corrected_assessed=all(row.get(f"corrected_cancer_{name}") != NOT_ASSESSED for name in cancers),
        assessed=row["familiarity"] != UNFAMILIAR and NOT_ASSESSED not in cells.values(),
    )


def _number(cell: str) -> float | None:
    if not cell:
        return None
    value = float(cell)
    if not math.isfinite(value):
        raise ValueError(f"{cell} is no number")
    return value


def _read_reasons(out: Path) -> dict[str, dict[str, list[str]]]:
    """By slide and measurement: the different reasons why pieces have none."""
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(out, "pieces", "slide_id", *(f"{key}_reason" for key in MEASURES)):
        for key in MEASURES:
            reason, known = row[f"{key}_reason"], reasons[row["slide_id"]][key]
            if reason and reason not in known:
                known.append(reason)
    return {slide_id: dict(by) for slide_id, by in reasons.items()}


def _mean_confidence(out: Path) -> dict[str, float]:
    """By slide: mean over its regions, weighted by area."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    with _damage(f"{table_file('regions')} is"):
        for slide_id, *cells in _cells(out, "regions", "slide_id", "area_mm2", "mean_confidence"):
            area, value = map(_number, cells)
            if area is not None and value is not None:
                sums[slide_id][0] += area * value
                sums[slide_id][1] += area
    return {slide_id: weighted / area for slide_id, (weighted, area) in sums.items() if area > 0}


def _neighbours(
    out: Path, tissues: Sequence[str], cancers: Sequence[str], left_out: Collection[str]
) -> dict[str, dict[str, float]]:
    """``left_out`` are slides that are not assessed; pieces that are not are left out as well."""
    lengths: dict[str, dict[str, float]] = {name: defaultdict(float) for name in cancers}
    strange = {
        (row["slide_id"], row["piece"])
        for row in _rows(out, "pieces", "slide_id", "piece", "familiarity")
        if row["familiarity"] == UNFAMILIAR
    }
    with _damage(f"{table_file('interfaces')} is"):
        for row in _rows(out, "interfaces", "slide_id", "piece", "tissue_a", "tissue_b", "boundary_mm"):
            if row["slide_id"] in left_out or (row["slide_id"], row["piece"]) in strange:
                continue
            pair = row["tissue_a"], row["tissue_b"]
            for tissue, other in (pair, pair[::-1]):
                if tissue in lengths and other != OUTSIDE:
                    if other not in tissues:
                        raise ValueError(f"{other!r} is no tissue")
                    lengths[tissue][other] += _number(row["boundary_mm"]) or 0.0
    return {name: dict(by_tissue) for name, by_tissue in lengths.items()}


def _rows(out: Path, table: str, *needed: str) -> Iterator[Cells]:
    """Rows one after the other; every row has every column."""
    columns, rows = _read(out, table, needed)
    return (by_column(columns, row) for row in rows)


def _cells(out: Path, table: str, *needed: str) -> Iterator[Sequence[str]]:
    """The cells of some columns alone, of a table with many rows."""
    columns, rows = _read(out, table, needed)
    pick = itemgetter(*(columns.index(name) for name in needed))
    # Cells that are missing at the end of a row are empty.
    return (pick([*row, *[""] * (len(columns) - len(row))]) for row in rows)


def _read(out: Path, table: str, needed: Sequence[str]) -> tuple[list[str], Iterator[list[str]]]:
    """The columns of a table, and its rows one after the other."""
    rows = stream_rows(out / table_file(table), needed, hint=AGAIN, open_file=opened_table)
    return next(rows), rows
