"""What the tables of many slides say, read row by row: memory does not grow with the number of regions."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.core.io import by_column, read_rows
from ntrm.results.documents import OUTSIDE, read_document
from ntrm.results.paths import RUN, table_file

AGAIN = "run the same ntrm segment again: it keeps what is done and writes the tables anew"
MEASURES = {
    "deep_clearance": "Deep clearance",
    "lateral_clearance": "Lateral clearance",
    "invasion_depth": "Depth of invasion",
}

Cells = Mapping[str, str]


@dataclass(frozen=True)
class CohortSlide:
    """One row of ``slides``, with what the other tables add to it."""

    slide_id: str
    done: bool
    reason: str
    warnings: str
    pieces: int
    tissue_area_mm2: float | None
    fractions: Mapping[str, float]
    cancers: Mapping[str, float]
    """Those that are present, with the confidence of that."""
    measures: Mapping[str, float | None]
    """In mm, by the names of ``MEASURES``."""
    reasons: Mapping[str, str]
    """Why a measurement is missing."""
    confidence: float | None
    """Mean over the regions, weighted by area."""

    def tumour_share(self, cancers: Sequence[str]) -> float:
        """Share of the tissue that is any cancer."""
        return math.fsum(self.fractions.get(name, 0.0) for name in cancers)


@dataclass(frozen=True)
class Cohort:
    """All slides of a folder of results."""

    slides: tuple[CohortSlide, ...]
    tissues: tuple[str, ...]
    """Without the background."""
    cancers: tuple[str, ...]
    classes: tuple[str, ...]
    about: Mapping[str, Mapping[str, object]]
    """Model, program and options."""
    neighbours: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By cancer: length in mm of the boundary with each other tissue, all slides together."""

    @property
    def done(self) -> tuple[CohortSlide, ...]:
        """Slides with results."""
        return tuple(slide for slide in self.slides if slide.done)

    @property
    def failed(self) -> tuple[CohortSlide, ...]:
        """Slides without."""
        return tuple(slide for slide in self.slides if not slide.done)


def read_cohort(out: Path) -> Cohort:
    """Read ``run.json`` and the four tables."""
    if not (out / RUN).is_file():
        raise DataError(f"{out} holds no results", got="no run.json", expected="a folder that ntrm segment wrote to")
    run = read_document(out / RUN)
    rows = list(_rows(out / table_file("slides"), "slide_id", "status", "reason", "tissue_area_mm2"))
    columns = list(rows[0]) if rows else []
    tissues = [name.removeprefix("fraction_") for name in columns if name.startswith("fraction_")]
    cancers = [
        name.removeprefix("cancer_").removesuffix("_confidence")
        for name in columns
        if name.startswith("cancer_") and name.endswith("_confidence")
    ]
    reasons, confidence = _reasons(out), _confidence(out)
    try:
        _check_names([row["slide_id"] for row in rows])
        slides = [_slide(row, tissues, cancers, reasons[row["slide_id"]], confidence) for row in rows]
        about = {key: dict(run[key]) for key in ("model", "program", "options")}
        classes = tuple(map(str, run["classes"]))
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"the tables of {out} are damaged", got=error, hint=AGAIN) from error
    return Cohort(tuple(slides), tuple(tissues), tuple(cancers), classes, about, _neighbours(out, cancers))


def _slide(
    row: Cells,
    tissues: Sequence[str],
    cancers: Sequence[str],
    reasons: Mapping[str, str],
    confidence: Mapping[str, float],
) -> CohortSlide:
    present = [name for name in cancers if row.get(f"cancer_{name}") == "true"]
    return CohortSlide(
        slide_id=row["slide_id"],
        done=row["status"] == "done",
        reason=row["reason"],
        warnings=row.get("warnings", ""),
        pieces=int(row.get("pieces") or 0),
        tissue_area_mm2=_number(row["tissue_area_mm2"]),
        fractions={name: _number(row[f"fraction_{name}"]) or 0.0 for name in tissues},
        cancers={name: _number(row[f"cancer_{name}_confidence"]) or 0.0 for name in present},
        measures={key: _number(row[f"{key}_mm"]) for key in MEASURES},
        reasons=reasons,
        confidence=confidence.get(row["slide_id"]),
    )


def _check_names(slide_ids: Sequence[str]) -> None:
    """Every slide is a folder beside the tables, and nothing else."""
    for slide_id in slide_ids:
        if slide_id != Path(slide_id).name or slide_id.startswith(".") or "\0" in slide_id:
            raise ValueError(f"{slide_id!r} is no slide's folder")


def _number(cell: str) -> float | None:
    if not cell:
        return None
    value = float(cell)
    if not math.isfinite(value):
        raise ValueError(f"{cell} is no number")
    return value


def _reasons(out: Path) -> dict[str, dict[str, str]]:
    """By slide: why no piece has a measurement, each reason once."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(out / table_file("pieces"), "slide_id", *(f"{key}_reason" for key in MEASURES)):
        for key in MEASURES:
            reason = row[f"{key}_reason"]
            if reason and reason not in found[row["slide_id"]][key]:
                found[row["slide_id"]][key].append(reason)
    joined = {slide: {key: "; ".join(each) for key, each in by_key.items()} for slide, by_key in found.items()}
    return defaultdict(dict, joined)


def _confidence(out: Path) -> dict[str, float]:
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    path = out / table_file("regions")
    try:
        for row in _rows(path, "slide_id", "area_mm2", "mean_confidence"):
            area, value = _number(row["area_mm2"]), _number(row["mean_confidence"])
            if area is not None and value is not None:
                sums[row["slide_id"]][0] += area * value
                sums[row["slide_id"]][1] += area
    except ValueError as error:
        raise DataError(f"{path.name} is damaged", got=error, hint=AGAIN) from error
    return {slide: weighted / area for slide, (weighted, area) in sums.items() if area > 0}


def _neighbours(out: Path, cancers: Sequence[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {name: defaultdict(float) for name in cancers}
    path = out / table_file("interfaces")
    try:
        for row in _rows(path, "tissue_a", "tissue_b", "boundary_mm"):
            one, other = row["tissue_a"], row["tissue_b"]
            if one in found or other in found:
                length = _number(row["boundary_mm"]) or 0.0
                for this, that in ((one, other), (other, one)):
                    if this in found and that != OUTSIDE:
                        found[this][that] += length
    except ValueError as error:
        raise DataError(f"{path.name} is damaged", got=error, hint=AGAIN) from error
    return {name: dict(by_tissue) for name, by_tissue in found.items()}


def _rows(path: Path, *needed: str) -> Iterator[Cells]:
    """Rows one after the other; every row has every column."""
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            rows = read_rows(stream)
            columns = next(rows, [])
            missing = [column for column in needed if column not in columns]
            if missing:
                raise DataError(f"{path.name} lacks columns", got=f"no {', '.join(missing)}", hint=AGAIN)
            for row in rows:
                if len(row) > len(columns):
                    raise DataError(f"{path.name} has a row with too many cells", hint=AGAIN)
                yield by_column(columns, row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path.name}", got=error, hint=AGAIN) from error
