"""``run.json``: a folder of results holds those of one model, one program and one set of options only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import STRICT, Document, check_folder, parsed, remove_partials, write_json
from ntrm.core.wording import NO_MODEL, PURPOSE
from ntrm.results.folder import MB, ResultsFolder
from ntrm.results.paths import RUN
from ntrm.version import __version__

FORMAT = "ntrm-results/1"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Model, program and options of results: all that decides their bytes. The fields are the keys of the file."""

    __pydantic_config__ = STRICT
    format: str = FORMAT
    program: Document = field(default_factory=lambda: {"name": "ntrm", "version": __version__})
    model: Document | None  # None where a person names tissues from nothing
    options: Document
    classes: tuple[str, ...]
    purpose: str = PURPOSE
    covariates: tuple[str, ...] = ()  # Columns of the inputs' tables, of all runs so far

    @property
    def mpp(self) -> float:
        """µm/px that masks are to have."""
        return float((self.model or self.options)["mpp"])

    def as_dict(self) -> Document:
        """As ``run.json`` has it."""
        from pydantic_core import to_jsonable_python

        document: Document = to_jsonable_python(asdict(self))
        return document

    def identity(self) -> Document:
        """What every output carries."""
        return {key: value for key, value in self.as_dict().items() if key not in ("format", "covariates")}

    def cells(self) -> Document:
        """For the rows of tables."""
        program = {"ntrm_version": self.program["version"]}
        if self.model is None:
            return {"model_name": NO_MODEL, "model_version": "", "model_sha256": "", **program}
        return {
            "model_name": self.model["name"] or self.model["arch"],
            "model_version": self.model["version"],
            "model_sha256": self.model["sha256"],
            **program,
        }


def read_run(out: Path) -> Manifest:
    """What the results in ``out`` were made with."""
    try:
        return _read(out)
    except (OSError, ValueError) as error:
        kind = UsageError if isinstance(error, FileNotFoundError) else DataError
        expected = "a folder that ntrm segment wrote to"
        raise kind(f"{out} holds no results", got=error, expected=expected) from error


def check_out(out: Path) -> Manifest | None:
    """What ``out`` was made with; None where it is new or empty. Refuses a folder of something else."""
    check_folder(out)
    try:
        # Looked at before the record: a run that another process begins meanwhile is then nothing strange.
        strange = [path.name for path in out.glob("[!.]*")]
        return _read(out)
    except FileNotFoundError as error:
        if not strange:
            return None
        hint = "choose a new or an empty folder, or one that ntrm segment wrote to"
        raise RefusedError(f"{out} is not empty and holds no results", got=strange[0], hint=hint) from error
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {out / RUN}", got=error, hint="choose another --out") from error


def _read(out: Path) -> Manifest:
    with ResultsFolder(out).open(RUN, most=64 * MB) as stream:
        run = parsed(Manifest, stream.read())
    # These go into tables and pages.
    if not all(str(text).isprintable() for text in (*(run.model or {}).values(), *run.classes)):
        raise ValueError("control characters in the name of a model or a class")
    return run


def is_run(content: bytes) -> bool:
    """Whether a file called ``run.json`` is ours, of whatever version: what lies beside it are results."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return False
    kind = document.get("format") if isinstance(document, dict) else None
    return str(kind).rpartition("/")[0] == FORMAT.rpartition("/")[0]


def check_results_folder(out: Path, run: Manifest, covariates: Sequence[str]) -> tuple[str, ...]:
    """Make ``out`` a folder of this run's results, or check that it is one; returns all covariates seen there.

    To be called by one process at a time.
    """
    before = check_out(out)
    remove_partials(out)
    together = tuple(dict.fromkeys([*(before.covariates if before else ()), *covariates]))
    run = replace(run, covariates=together)
    old = run if before is None else replace(before, covariates=together)
    if differing := "; ".join(_differences(old.as_dict(), run.as_dict())):
        raise RefusedError(
            f"{out} holds results of another run",
            got=differing,
            expected="the same model, program and options",
            hint="choose another --out, or use the earlier options",
        )
    if run != before:
        write_json(out / RUN, run.as_dict())
    return together


def _differences(before: Document, now: Document, of: str = "") -> Iterator[str]:
    """In words, down to the single option; what has further parts, such as stains, is only named."""
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if old != new and not of and isinstance(old, dict):
            yield from _differences(old, new or {}, f"{key} ")
        elif old != new:
            yield f"other {of}{key}" if isinstance(old or new, dict) else f"{of}{key} {old!r}, not {new!r}"
