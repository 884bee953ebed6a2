"""The tables of many slides summed up, read row by row: memory does not grow with the number of regions."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from ntrm.core.csv_text import stream_rows
from ntrm.core.errors import DataError
from ntrm.core.wording import OUTSIDE
from ntrm.results.familiarity import NOT_ASSESSED, UNFAMILIAR
from ntrm.results.folder import opened_table
from ntrm.results.manifest import Manifest, read_run
from ntrm.results.paths import table_file

AGAIN = "run the same ntrm segment again: it keeps what is done and writes the tables anew"
CORRECTED_COLUMN = "corrected_"  # What columns begin with that are of the corrected version
MEASURES = {
    "deep_clearance": "Deep clearance",
    "lateral_clearance": "Lateral clearance",
    "invasion_depth": "Depth of invasion",
}

Reasons = Mapping[str, Sequence[str]]  # By the names of `MEASURES`: why pieces lack a measurement, each reason once


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
    cancers: Mapping[str, float]  # Those that are present, each with the confidence that it is
    measures: Mapping[str, float | None]  # In mm, by the names of `MEASURES`
    reasons: Reasons
    confidence: float | None  # Mean over the regions, weighted by area
    assessed: bool = True  # No statistic has a slide whose cancers are not assessed
    corrected_parts: int = 0  # Parts of regions that a person corrected; all else here is what the network said
    corrected_cancers: tuple[str, ...] = ()  # Those that are present in the corrected version
    corrected_assessed: bool = True  # Whether all were assessed there

    def tumour_fraction(self, cancers: Sequence[str]) -> float:
        """Fraction of the tissue that is any cancer."""
        return math.fsum(self.fractions.get(name, 0.0) for name in cancers)


@dataclass(frozen=True)
class Cohort:
    """All slides of a folder of results."""

    slides: tuple[CohortSlide, ...]
    tissues: tuple[str, ...]  # Without the background
    cancers: tuple[str, ...]
    run: Manifest
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
        """Slides without results."""
        return tuple(slide for slide in self.slides if not slide.done)


def read_cohort(out: Path) -> Cohort:
    """Read ``run.json`` and the four tables."""
    run = read_run(out)
    try:
        needed = ("slide_id", "status", "reason", "tissue_area_mm2", "familiarity")
        columns, *cells = stream_rows(out / table_file("slides"), needed, hint=AGAIN, open_file=opened_table)
        # Without a model, what people made of a slide is all there is.
        own = CORRECTED_COLUMN if run.model is None else ""
        told = [name.removeprefix(own) for name in columns]
        tissues = tuple(dict.fromkeys(name.removeprefix("fraction_") for name in told if name.startswith("fraction_")))
        cancers = tuple(found[1] for name in columns if (found := re.fullmatch(r"(?s:cancer_(.*)_confidence)", name)))
        (reasons, unfamiliar), confidence = _read_pieces(out), _mean_confidence(out)
        rows = (dict(zip(columns, row, strict=True)) for row in cells)
        rows = (row | {name.removeprefix(own): cell for name, cell in row.items() if cell} for row in rows)
        slides = tuple(
            _slide(row, tissues, cancers, reasons.get(row["slide_id"], {}), confidence.get(row["slide_id"]))
            for row in rows
        )
        left_out = {slide.slide_id for slide in slides if not slide.assessed}
        lengths: dict[str, dict[str, float]] = {name: defaultdict(float) for name in cancers}
        names = ("slide_id", "piece", "tissue_a", "tissue_b", "boundary_mm")
        for slide_id, piece, *pair, length in _cells(out, "interfaces", *names):
            counts = slide_id not in left_out and (slide_id, piece) not in unfamiliar
            for tissue, other in (pair, pair[::-1]) if counts else ():
                if tissue in lengths and other != OUTSIDE:
                    if other not in tissues:
                        raise ValueError(f"{other!r} is no tissue")
                    lengths[tissue][other] += _number(length) or 0.0
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"the tables of {out} are damaged", got=error, hint=AGAIN) from error
    return Cohort(slides, tissues, cancers, run, {name: dict(others) for name, others in lengths.items()})


def _slide(
    row: Mapping[str, str], tissues: Sequence[str], cancers: Sequence[str], reasons: Reasons, confidence: float | None
) -> CohortSlide:
    slide_id = row["slide_id"]
    # Every slide is a folder beside the tables, and nothing else.
    if slide_id != Path(slide_id).name or slide_id.startswith(".") or "\0" in slide_id:
        raise ValueError(f"{slide_id!r} is no slide's folder")
    cells = {name: row.get(f"cancer_{name}") for name in cancers}
    corrected = {name: row.get(f"corrected_cancer_{name}") for name in cancers}
    return CohortSlide(
        slide_id=slide_id,
        done=row["status"] == "done",
        reason=row["reason"],
        warnings=row.get("warnings", ""),
        pieces=int(row.get("pieces") or 0),
        tissue_area_mm2=_number(row["tissue_area_mm2"]),
        fractions={name: _number(row.get(f"fraction_{name}", "")) or 0.0 for name in tissues},
        cancers={k: _number(row[f"cancer_{k}_confidence"]) or 0.0 for k, cell in cells.items() if cell == "true"},
        measures={key: _number(row[f"{key}_mm"]) for key in MEASURES},
        reasons=reasons,
        confidence=confidence,
        corrected_parts=int(row.get("corrected_parts") or 0),
        corrected_cancers=tuple(name for name, cell in corrected.items() if cell == "true"),
        corrected_assessed=NOT_ASSESSED not in corrected.values(),
        assessed=row["familiarity"] != UNFAMILIAR and NOT_ASSESSED not in cells.values(),
    )


def _number(cell: str) -> float | None:
    value = float(cell) if cell else None
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{cell} is no number")
    return value


def _read_pieces(out: Path) -> tuple[dict[str, Reasons], set[tuple[str, str]]]:
    """By slide the reasons of its pieces; and slide and number of the pieces that are unfamiliar."""
    reasons: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    unfamiliar = set()
    columns = ("slide_id", "piece", "familiarity", *(f"{key}_reason" for key in MEASURES))
    for slide_id, piece, familiarity, *said in _cells(out, "pieces", *columns):
        for key, reason in zip(MEASURES, said, strict=True):
            if reason and reason not in reasons[slide_id][key]:
                reasons[slide_id][key].append(reason)
        if familiarity == UNFAMILIAR:
            unfamiliar.add((slide_id, piece))
    return dict(reasons), unfamiliar


def _mean_confidence(out: Path) -> dict[str, float]:
    """By slide: mean over its regions, weighted by area."""
    weighted: dict[str, float] = defaultdict(float)
    areas: dict[str, float] = defaultdict(float)
    for slide_id, *cells in _cells(out, "regions", "slide_id", "area_mm2", "mean_confidence"):
        area, value = map(_number, cells)
        if area and value is not None:
            weighted[slide_id] += area * value
            areas[slide_id] += area
    return {slide_id: weighted[slide_id] / area for slide_id, area in areas.items()}


def _cells(out: Path, table: str, *needed: str) -> Iterator[Sequence[str]]:
    """The cells of some columns, row by row."""
    rows = stream_rows(out / table_file(table), needed, hint=AGAIN, open_file=opened_table)
    return map(itemgetter(*map(next(rows).index, needed)), rows)
