"""The tables of many slides: ``slides``, ``pieces``, ``regions`` and ``interfaces``, units in the column names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntrm.core.csv_text import read_columns, write_rows
from ntrm.core.errors import RefusedError, choices_error
from ntrm.core.io import whole_file
from ntrm.core.labels import CancerFinding
from ntrm.core.wording import short_repr
from ntrm.results.documents import Cancer, PieceSummary, Summary
from ntrm.results.familiarity import ASPECTS, NONE, NOT_ASSESSED
from ntrm.results.folder import opened_table
from ntrm.results.manifest import read_run
from ntrm.results.paths import table_file

FOOT = ("model_name", "model_version", "model_sha256", "ntrm_version")
FAMILIARITY = ("familiarity", "familiarity_p", *(f"familiarity_{name}_p" for name in ASPECTS), "familiarity_reason")
"""Verdict, p-values and reasons."""

COLUMNS: dict[str, tuple[str, ...]] = {
    "slides": (
        "slide_id", "status", "reason", "warnings", "reader", "width_px", "height_px", "slide_mpp_x_um",
        "slide_mpp_y_um", "mask_mpp_um", "mask_width_px", "mask_height_px", "pieces", "tissue_area_mm2",
        "deep_clearance_mm", "lateral_clearance_mm", "invasion_depth_mm", "cancers_looked_for", *FAMILIARITY,
    ),
    "pieces": (
        "slide_id", "piece", "left_px", "top_px", "width_px", "height_px", "touches_edge", "tissue_area_mm2",
        "orientation_deg", "orientation_reason", "deep_clearance_mm", "deep_clearance_reason", "lateral_clearance_mm",
        "lateral_clearance_reason", "invasion_depth_mm", "invasion_depth_reason", *FAMILIARITY,
    ),
    "regions": (
        "slide_id", "piece", "region", "tissue", "area_mm2", "perimeter_mm", "mean_confidence", "left_px", "top_px",
        "width_px", "height_px",
    ),
    "interfaces": ("slide_id", "piece", "tissue_a", "tissue_b", "boundary_mm", "share_of_a", "share_of_b", "contacts"),
}  # fmt: skip
"""Columns that every table has, first; those of classes, cancers and quality, covariates and ``FOOT`` follow."""

TEXTS = {
    "slide_id", "status", "reason", "warnings", "reader", "orientation_reason", "deep_clearance_reason",
    "lateral_clearance_reason", "invasion_depth_reason", "familiarity", "familiarity_reason", "tissue", "tissue_a",
    "tissue_b", "cancers_looked_for", *FOOT,
}  # fmt: skip
"""Columns of ours that hold text, whatever it looks like: a class may be called 1."""

BY_CLASS = re.compile(r"(?s:area_.*_mm2|fraction_.*|cancer_.*|quality_.*|corrected_.*)")
"""Further columns, one for each class, cancer or kind of fault, and those of corrected slides."""

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]


def is_own_column(name: str) -> bool:
    """Whether a column of this name is, or may become, one of ours.

    >>> is_own_column("area_BCC_mm2"), is_own_column("age")
    (True, False)
    """
    return any(name in columns for columns in (*COLUMNS.values(), FOOT)) or BY_CLASS.fullmatch(name) is not None


@dataclass(frozen=True)
class Table:
    """One table in memory: numbers as numbers; an empty cell, and a cancer that was not assessed, as None."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[dict[str, Cell], ...]

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Cell]]:
        return iter(self.rows)

    def column(self, name: str) -> list[Cell]:
        """The cells of one column, from top to bottom."""
        if name not in self.columns:
            raise choices_error(f"{self.name} has no such column", name, self.columns)
        return [row[name] for row in self.rows]

    def frame(self) -> Any:
        """As a pandas data frame; pandas itself is not part of the package."""
        try:
            import pandas as pd  # type: ignore[import-untyped]
        except ImportError as error:
            raise RefusedError(f"no data frame of {self.name}", got=error, hint="pip install pandas") from error
        return pd.DataFrame([*self.rows], columns=[*self.columns])


@dataclass(frozen=True)
class Results:
    """What a folder of results holds."""

    run: dict[str, Any]  # Model, program and options
    slides: Table
    pieces: Table
    regions: Table
    interfaces: Table

    __repr__ = short_repr


def read_results(out: str | Path) -> Results:
    """The tables that ``ntrm segment --out OUT`` wrote."""
    folder = Path(out)
    run = read_run(folder)
    return Results(run.as_dict(), *(read_table(folder / table_file(name), run.covariates) for name in COLUMNS))


def slide_row(summary: Summary) -> dict[str, Cell]:
    """The row of ``slides``; of the pieces' lengths the least clearance and the greatest depth."""
    grid = summary.grid
    cells: dict[str, Cell] = {
        "slide_id": summary.slide_id,
        "status": "done",
        "warnings": "; ".join(summary.warnings),
        "reader": grid.slide["reader"],
        "width_px": grid.area[2],
        "height_px": grid.area[3],
        "slide_mpp_x_um": grid.slide_mpp[0],
        "slide_mpp_y_um": grid.slide_mpp[1],
        "mask_mpp_um": grid.resolution.mean,
        "mask_width_px": grid.width,
        "mask_height_px": grid.height,
        "pieces": len(summary.pieces),
        "tissue_area_mm2": summary.tissue_area_mm2,
    }
    for name, choose in {"deep_clearance": min, "lateral_clearance": min, "invasion_depth": max}.items():
        values = [piece.measurements[name].value for piece in summary.pieces]
        cells[f"{name}_mm"] = choose((value for value in values if value is not None), default=None)
    cells["cancers_looked_for"] = " ".join(summary.cancers) or NONE
    quality = {f"quality_{name}": value for name, value in summary.quality.items()}
    return {**cells, **_common_cells(summary, summary.cancers), **quality}


def corrected_cells(summary: Summary) -> dict[str, Cell]:
    """What the row of ``slides`` says beside the network's columns, from the summary of the corrected version."""
    if summary.corrected is None:
        return {}
    lengths = ("tissue_area_mm2", "deep_clearance_mm", "lateral_clearance_mm", "invasion_depth_mm")
    kinds = ("area_", "fraction_", "cancer_")
    told = {name: cell for name, cell in slide_row(summary).items() if name in lengths or name.startswith(kinds)}
    changed = {"parts": summary.corrected.regions, "area_mm2": summary.corrected.area_mm2}
    return {f"corrected_{name}": cell for name, cell in {**changed, **told}.items()}


def piece_row(summary: Summary, piece: PieceSummary) -> dict[str, Cell]:
    """A row of ``pieces``; boxes in pixels of the slide's full resolution."""
    (across, down), box = summary.grid.to_level0[:2], piece.mask_box_px
    cells: dict[str, Cell] = {
        "slide_id": summary.slide_id,
        "piece": piece.number,
        "left_px": round(box.left * across, 3),
        "top_px": round(box.top * down, 3),
        "width_px": round(box.width * across, 3),
        "height_px": round(box.height * down, 3),
        "touches_edge": piece.touches_edge,
        "tissue_area_mm2": piece.tissue_area_mm2,
    }
    for name, measure in piece.measurements.items():
        unit = "mm" if measure.unit == "mm" else "deg"
        cells |= {f"{name}_{unit}": measure.value, f"{name}_reason": measure.reason}
    return {**cells, **_common_cells(piece, {each.name: each for each in piece.cancers})}


def _common_cells(of: Summary | PieceSummary, cancers: Mapping[str, Cancer | CancerFinding]) -> dict[str, Cell]:
    """Familiarity, areas and fractions of all classes but the background, and cancers."""
    judged = of.familiarity
    values = (judged.verdict, judged.p_value, *(judged.aspects.get(name) for name in ASPECTS))
    cells: dict[str, Cell] = dict(zip(FAMILIARITY, (*values, "; ".join(judged.reasons)), strict=True))
    cells |= {f"area_{name}_mm2": of.areas_mm2[name] for name in of.tissue_fractions}
    cells |= {f"fraction_{name}": value for name, value in of.tissue_fractions.items()}
    for name, each in cancers.items():
        found = {f"cancer_{name}": each.present, f"cancer_{name}_confidence": each.confidence}
        # In words: an empty cell would look like a cancer that nobody looked for.
        cells |= dict.fromkeys(found, NOT_ASSESSED) if each.present is None else found
    return cells


def write_tables(out: Path, documents: Sequence[Mapping[str, Sequence[Row]]], covariates: Sequence[str]) -> None:
    """Write the four tables from the rows of each slide, in their order."""
    for name, first in COLUMNS.items():
        rows = [row for document in documents for row in document.get(name, ())]
        known: dict[str, Cell] = {}
        for row in rows:
            known |= row
        columns = (*first, *(column for column in known if BY_CLASS.fullmatch(column)), *covariates, *FOOT)
        with whole_file(out / table_file(name)) as partial, partial.open("w", newline="", encoding="utf-8") as stream:
            write_rows(stream, [columns])
            write_rows(stream, ([_text(row.get(column)) for column in columns] for row in rows))


def _text(cell: Cell) -> str:
    if isinstance(cell, float):
        # Nine digits hold every figure that an image can give, and the text is the same on every machine.
        return f"{cell:.9g}"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return "" if cell is None else str(cell)


def read_table(path: Path, covariates: Sequence[str] = (), *, most: int = 2**44) -> Table:
    """One table; ``covariates`` are the user's own columns, in which only plain numbers are numbers."""
    columns, rows = read_columns(path, ("slide_id",), strip=False, open_file=lambda path: opened_table(path, most))
    known = {column: [row[column] for row in rows if _is_known(column, row[column])] for column in columns}
    kinds = {column: _kind(column, cells, covariates) for column, cells in known.items()}
    typed = (
        {column: kinds[column](row[column]) if _is_known(column, row[column]) else None for column in columns}
        for row in rows
    )
    return Table(path.stem, columns, tuple(typed))


def _is_known(column: str, cell: str) -> bool:
    """False for an empty cell, and for a cancer that was not assessed: as a text it would pass for a finding."""
    return bool(cell) and not (cell == NOT_ASSESSED and column.removeprefix("corrected_").startswith("cancer_"))


def _kind(column: str, cells: Sequence[str], covariates: Sequence[str]) -> Callable[[str], Cell]:
    """How the cells of a column are read."""
    if column in TEXTS:
        return str
    if all(cell in ("true", "false") for cell in cells):
        return "true".__eq__
    # Covariates are the user's: codes such as 007 stay texts.
    whole = r"(0|[1-9][0-9]*)" if column in covariates else "[0-9]+"
    is_number = re.compile(rf"-?{whole}(\.[0-9]+)?([eE][+-]?[0-9]{{1,2}})?").fullmatch
    if not all(map(is_number, cells)):
        return str
    return lambda text: int(text) if re.fullmatch(r"-?[0-9]+", text) else float(text)
