"""Dataset folders as cases, ready for use: the one way in for everything that reads a dataset."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ntrm.data.cases import SPLITS, Case, Dataset
from ntrm.data.faults import Fault
from ntrm.data.survey import Survey, survey_dataset
from ntrm.data.tables import patient_faults, read_table
from ntrm.errors import DataError, NtrmError, RefusedError, choices_error

_SHOWN = 5

REFUSED = {"no-mpp", "patient-split"}
"""Faults of sound files that still forbid their use."""


def open_dataset(root: Path, *, level: str | None = None, cases_file: Path | None = None) -> Dataset:
    """Cases of a dataset folder, with patient, split and µm/px; no image is decoded.

    ``level`` keeps one resolution of the queensland layout. ``cases_file`` is an existing split file
    (name,group,split) whose splits replace those of the dataset; names it has beyond the dataset's do not matter.
    What cannot be used safely is refused, with the first faults named.
    """
    survey = survey_dataset(Path(root))
    levels = {case.level for case in survey.cases}
    if level is not None and level not in levels:
        raise choices_error(f"no such resolution in {root}", level, sorted(levels - {""}) or ["(the layout has none)"])
    faults = [found for found in survey.faults if _matters(found, levels - {level} if level else set())]
    cases = tuple(case for case in survey.cases if level in (None, case.level))
    if cases_file is not None:
        faults = [found for found in faults if found.code != "patient-split"]
        cases = _with_splits(cases, Path(cases_file))
    if faults or survey.schema is None:
        raise _refusal(survey, faults)
    return Dataset(root=survey.root, layout=survey.layout, schema=survey.schema, cases=cases)


def _matters(found: Fault, other_levels: set[str]) -> bool:
    return found.severity == "fault" and not other_levels.intersection(Path(found.file).parts)


def _refusal(survey: Survey, faults: list[Fault]) -> NtrmError:
    lines = [f"{found.file}: {found.title} ({found.found})" for found in faults[:_SHOWN]]
    lines += [f"… and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
    # Nothing is damaged then, but going on would mean guessing, or testing on patients that were trained on.
    kind = RefusedError if all(found.code in REFUSED for found in faults) else DataError
    return kind(
        f"{survey.root} cannot be used as a dataset",
        got="\n            ".join(lines),
        expected=faults[0].expected,
        mend=f"run `ntrm data check {survey.root}` for all faults and how to mend them",
    )


def _with_splits(cases: tuple[Case, ...], path: Path) -> tuple[Case, ...]:
    rows = {row["name"]: row for row in read_table(path, ("name", "group", "split"))}
    missing = [case.name for case in cases if case.name not in rows]
    if missing:
        raise DataError(
            f"{path} does not cover the dataset",
            got=f"no row for {', '.join(missing[:_SHOWN])}" + (" …" if len(missing) > _SHOWN else ""),
            expected="a row for every section",
            mend="split the dataset again with `ntrm data split`",
        )
    unknown = sorted({row["split"] for row in rows.values()} - {*SPLITS})
    if unknown:
        raise choices_error(f"unknown split in {path}", ", ".join(map(repr, unknown)), SPLITS)
    chosen = tuple(replace(case, split=rows[case.name]["split"]) for case in cases)
    # The file's own idea of a patient counts as well as the dataset's: neither may be torn apart.
    for grouping in ([c.group for c in chosen], [rows[c.name]["group"] for c in chosen]):
        torn = patient_faults(path.name, [(c.name, g, c.split) for c, g in zip(chosen, grouping, strict=True)])
        if torn:
            found = torn[0]
            raise RefusedError(f"{path}: {found.title}", got=found.found, expected=found.expected, mend=found.mend)
    return chosen
