"""The tables and the overview of a folder of results, from what each slide's folder keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.core.io import holding
from ntrm.results.documents import read_summary
from ntrm.results.folder import ResultsFolder, SlideFolder
from ntrm.results.manifest import Manifest, check_results_folder, read_run
from ntrm.results.paths import CORRECTED, INDEX, RUN_LOCK, SUMMARY
from ntrm.results.slide_state import Row, SlideState, Tables, remembered
from ntrm.results.tables import corrected_cells, write_tables


def tabulate(out: Path, run: Manifest, covariates: Sequence[str], *, report: bool = True) -> list[str]:
    """The tables and the overview of every slide in the folder, also of those that other processes segmented.

    One process writes at a time: whoever comes last has all. Returns what was left out, and why.
    """
    from ntrm.report.slide_overview import write_overview

    notes, rows = [], []
    with holding(out / RUN_LOCK, wait=True):
        every = check_results_folder(out, run, covariates)
        for folder in (each.path for each in ResultsFolder(out)):
            try:
                state = remembered(folder)
            except DataError as error:
                # A damaged record is this slide's failure, and no other's.
                failure = {"slide_id": folder.name, "status": "failed", "reason": f"{error.what}; {error.hint}"}
                state = SlideState(None, {}, {"slides": (failure,)})
            if state is not None and state.row["slide_id"] != folder.name:
                # Counted twice, it would be in every statistic twice.
                notes.append(f"left out of the tables: {folder.name}, a copy of the results of {state.row['slide_id']}")
            elif state is not None:
                rows.append(_rows(folder, state, run.cells(), notes))
        write_tables(out, rows, every)
        if report:
            write_overview(out)
    return notes


def _rows(folder: Path, state: SlideState, foot: Row, notes: list[str]) -> Tables:
    """The rows of a slide, with what its corrected version says, if there is one."""
    if SlideFolder(folder).has(CORRECTED, SUMMARY):
        try:
            row = {**state.row, **corrected_cells(read_summary(folder / CORRECTED))}
            return state.with_foot(foot, {**state.tables, "slides": (row,)})
        except DataError as error:
            notes.append(f"left out of the tables: the corrected version of {folder.name}; {error.what}; {error.hint}")
    return state.with_foot(foot)


def tabulate_again(out: Path) -> None:
    """The same for a folder in which slides were corrected; the overview only where there is one."""
    run = read_run(out)
    tabulate(out, run, run.covariates, report=(out / INDEX).is_file())
