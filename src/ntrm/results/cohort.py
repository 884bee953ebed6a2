"""The tables of many slides summed up, read row by row: memory does not grow with the number of regions."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

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
    try:
        needed = ("slide_id", "status", "reason", "tissue_area_mm2", "familiarity")
        columns, *cells = stream_rows(out / table_file("slides"), needed, hint=AGAIN, open_file=opened_table)
        tissues = tuple(name.removeprefix("fraction_") for name in columns if name.startswith("fraction_"))
        cancers = tuple(found[1] for name in columns if (found := re.fullmatch(r"(?s:cancer_(.*)_confidence)", name)))
        pieces, confidence = _read_pieces(out), _mean_confidence(out)
        rows = [by_column(columns, row) for row in cells]
        slides = tuple(_slide(row, tissues, cancers, pieces.reasons, confidence) for row in rows)
        left_out = {slide.slide_id for slide in slides if not slide.assessed}
        lengths = _neighbours(out, tissues, cancers, left_out, pieces.unfamiliar)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"the tables of {out} are damaged", got=error, hint=AGAIN) from error
    return Cohort(slides, tissues, cancers, run, lengths)


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


class _Pieces(NamedTuple):
    """What the table of pieces says."""

    reasons: dict[str, dict[str, list[str]]]
    """By slide and measurement: the different reasons why pieces have none."""
    unfamiliar: set[tuple[str, str]]
    """Slide and number of pieces that are unlike what the model knows."""


def _read_pieces(out: Path) -> _Pieces:
    found = _Pieces(defaultdict(lambda: defaultdict(list)), set())
    columns = ("slide_id", "piece", "familiarity", *(f"{key}_reason" for key in MEASURES))
    for slide_id, piece, familiarity, *reasons in _cells(out, "pieces", *columns):
        for key, reason in zip(MEASURES, reasons, strict=True):
            if reason and reason not in found.reasons[slide_id][key]:
                found.reasons[slide_id][key].append(reason)
        if familiarity == UNFAMILIAR:
            found.unfamiliar.add((slide_id, piece))
    return found


def _mean_confidence(out: Path) -> dict[str, float]:
    """By slide: mean over its regions, weighted by area."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for slide_id, *cells in _cells(out, "regions", "slide_id", "area_mm2", "mean_confidence"):
        area, value = map(_number, cells)
        if area is not None and value is not None:
            sums[slide_id][0] += area * value
            sums[slide_id][1] += area
    return {slide_id: weighted / area for slide_id, (weighted, area) in sums.items() if area > 0}


def _neighbours(
    out: Path, tissues: Sequence[str], cancers: Sequence[str], left_out: set[str], unfamiliar: set[tuple[str, str]]
) -> dict[str, dict[str, float]]:
    """``left_out`` are slides that are not assessed; pieces that are ``unfamiliar`` are left out as well."""
    lengths: dict[str, dict[str, float]] = {name: defaultdict(float) for name in cancers}
    columns = ("slide_id", "piece", "tissue_a", "tissue_b", "boundary_mm")
    for slide_id, piece, *pair, length in _cells(out, "interfaces", *columns):
        for tissue, other in (pair, pair[::-1]) if slide_id not in left_out else ():
            if tissue in lengths and other != OUTSIDE and (slide_id, piece) not in unfamiliar:
                if other not in tissues:
                    raise ValueError(f"{other!r} is no tissue")
                lengths[tissue][other] += _number(length) or 0.0
    return {name: dict(by_tissue) for name, by_tissue in lengths.items()}


def _cells(out: Path, table: str, *needed: str) -> Iterator[Sequence[str]]:
    """The cells of some columns, row by row."""
    rows = stream_rows(out / table_file(table), needed, hint=AGAIN, open_file=opened_table)
    columns = next(rows)
    pick = itemgetter(*map(columns.index, needed))
    # Cells that are missing at the end of a row are empty.
    return (pick([*row, *[""] * (len(columns) - len(row))]) for row in rows)
