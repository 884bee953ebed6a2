"""The record of an import, kept in the dataset's folder so that a later run continues it and never mixes options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ntrm.annotations.pairing import Pair, SlideFacts, class_index
from ntrm.core.csv_text import rows_text
from ntrm.core.errors import DataError, RefusedError, check_number, first_names
from ntrm.core.io import (
    PARTIAL,
    check_folder,
    foreign_files,
    remove_partials,
    sha256_of,
    whole_file,
    write_json,
    write_text,
)
from ntrm.core.labels import LabelSchema
from ntrm.core.locks import holding
from ntrm.core.mpp import Resolution
from ntrm.data.split import SplitRow, split_by_patient
from ntrm.version import __version__

RECORD, LOCK = "provenance.json", ".lock"
ANOTHER_FOLDER = "write to another folder, or delete this one and import everything again"


@dataclass(frozen=True)
class ImportOptions:
    """What shapes every case of a dataset; one dataset is written with one set of options."""

    schema: LabelSchema
    names: Mapping[str, str]
    mpp: float | None
    target_mpp: float | None
    margin_um: float

    def __post_init__(self) -> None:
        for value in (self.mpp, self.target_mpp):
            if value is not None:
                Resolution.square(value)
        check_number("margin in µm", self.margin_um, 0, 1e5)

    def as_dict(self) -> dict[str, Any]:
        """For the record."""
        schema = self.schema
        return {
            "classes": list(schema.names),
            "titles": [tissue.title for tissue in schema.tissues],
            "colours": schema.palette.tolist(),
            "names": dict(sorted(self.names.items())),
            "mpp": self.mpp,
            "target_mpp": self.target_mpp,
            "margin_um": self.margin_um,
        }


@dataclass(frozen=True)
class ImportedSlide:
    """One case as it was written, and how its pixels lie on the slide.

    Pixel (column, row) begins at ``left + column * step_x``, ``top + row * step_y`` in QuPath's full-resolution
    pixels; ``origin_x``, ``origin_y`` is where those begin in the file's own (not 0 for partly scanned slides).
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"strict": True, "allow_inf_nan": False, "extra": "forbid"}
    """How strictly a record is read."""

    name: str
    slide: str
    annotations: str
    slide_sha256: str
    annotations_sha256: str
    given_mpp: float | None  # µm/px that the user gave for this slide, if any
    group: str
    split: str
    mpp: float
    slide_mpp_x: float
    slide_mpp_y: float
    slide_width: int
    slide_height: int
    origin_x: int
    origin_y: int
    left: float
    top: float
    step_x: float
    step_y: float
    width: int
    height: int
    counts: dict[str, int]  # Annotations: used, repaired, clipped at the slide's edge, and left out by reason
    pixels: dict[str, int]  # Pixels by class; ``ignore`` is what nobody annotated
    overlaps: dict[str, int]  # Pixels by "BCC over RET" where annotations of different classes lay on each other


@dataclass(frozen=True)
class _Record:
    options: dict[str, Any]
    slides: list[ImportedSlide]


class ImportedDataset:
    """The folder an import writes to, held for it alone: its cases so far, and the files that list them."""

    def __init__(self, out: Path, options: ImportOptions) -> None:
        self.out = out
        self.options = options
        self.cases = _read_record(out, options)

    @classmethod
    @contextmanager
    def opened(cls, out: Path, options: ImportOptions) -> Iterator[ImportedDataset]:
        """Hold the folder: of two imports at a time, one would lose the other's cases."""
        if not (out / LOCK).exists():
            cls(out, options)  # refuses a folder of something else before anything is written there
        with holding(out / LOCK):
            dataset = cls(out, options)
            for folder in (out, dataset.image("").parent, dataset.mask("").parent):
                folder.mkdir(parents=True, exist_ok=True)
                remove_partials(folder)
            with whole_file(out / "classes.csv") as partial:
                options.schema.write_csv(partial)
            yield dataset

    def image(self, name: str) -> Path:
        """The image of a case."""
        return self.out / "Images" / f"{name}.png"

    def mask(self, name: str) -> Path:
        """The mask of a case."""
        return self.out / "Masks" / f"{name}.png"

    def settle(self, facts: Mapping[str, SlideFacts], names: Sequence[str]) -> dict[str, SlideFacts]:
        """What is stated of these cases, else what an earlier import was told.

        All cases get it at once: a run that stops later must not leave a patient in two splits.
        """
        known = {
            name: SlideFacts("" if case.group == name else case.group, case.split, case.given_mpp)
            for name, case in self.cases.items()
        }
        told = any(fact.patient for fact in facts.values())
        unknown = sorted(name for name in names if name not in known and not (told and name.lower() in facts))
        if unknown and (told or any(fact.patient for fact in known.values())):
            raise DataError(
                f"{self.out}: the patients of some slides are known, those of others are not",
                got=f"no patient told of {first_names(unknown)}",
                expected="a row for every slide, or a patient could be in two splits",
                hint="give --cases with a column patient, empty for a patient of its own",
            )
        for name in names:
            old, new = known.get(name, SlideFacts()), facts.get(name.lower(), SlideFacts())
            mpp = old.mpp if new.mpp is None else new.mpp
            known[name] = SlideFacts(new.patient or old.patient, new.split or old.split, mpp)
        split_by_patient(SplitRow(name, fact.patient or name, fact.split) for name, fact in known.items() if fact.split)
        for name, case in self.cases.items():
            self.cases[name] = replace(case, group=known[name].patient or name, split=known[name].split)
        return {name: known[name] for name in names}

    def complete(self, pair: Pair, facts: SlideFacts) -> ImportedSlide | None:
        """The case that an earlier run made of the same inputs."""
        case = self.cases.get(pair.name)
        if case is None or not (self.image(pair.name).is_file() and self.mask(pair.name).is_file()):
            return None
        now = (input_sha256(pair.slide), input_sha256(pair.annotations), facts.mpp)
        return case if now == (case.slide_sha256, case.annotations_sha256, case.given_mpp) else None

    def add(self, case: ImportedSlide) -> None:
        """List a case whose image and mask are in place."""
        self.cases[case.name] = case
        self._write()

    def remove(self, name: str) -> None:
        """Take a case out that could not be made anew: what there is of it came from other inputs."""
        if self.cases.pop(name, None) is not None:
            self._write()
        for path in (self.image(name), self.mask(name)):
            path.unlink(missing_ok=True)

    def _write(self) -> None:
        ordered = [self.cases[name] for name in sorted(self.cases)]
        document = {"program": "ntrm", "version": __version__, "command": "data import"}
        slides = [asdict(case) for case in ordered]
        write_json(self.out / RECORD, {**document, "options": self.options.as_dict(), "slides": slides})
        rows = [[case.name, case.group, case.split, f"{case.mpp:.6g}", case.slide_sha256] for case in ordered]
        write_text(self.out / "cases.csv", rows_text([["name", "group", "split", "mpp", "slide_sha256"], *rows]))


def input_sha256(path: Path) -> str:
    """SHA-256 of an input."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise DataError(f"cannot read {path}", got=error, hint="check the file and its permissions") from error


def _read_record(out: Path, options: ImportOptions) -> dict[str, ImportedSlide]:
    """Cases of an earlier import into ``out``; refuses a folder that holds anything else."""
    from pydantic import TypeAdapter

    path = out / RECORD
    if not path.exists():
        check_folder(out)
        # What a run that was stopped before its first slide leaves.
        names = {each.name for each in (*out.glob("*"), *out.glob("Masks/[!.]*"))}
        names -= {"Images", "Masks", "classes.csv", LOCK}
        if strange := [name for name in names if not name.startswith(PARTIAL)]:
            raise foreign_files(out, "import", strange)
        return {}
    try:
        record = TypeAdapter(_Record).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RefusedError(
            f"{path} is not the record of an import",
            got=" ".join(str(error).split())[:200],
            expected="an empty folder, or one that the same import began",
            hint=ANOTHER_FOLDER,
        ) from error
    before, now = record.options, options.as_dict()
    added = [name for name in now["names"] if name not in before.get("names", {})]
    if all(class_index(name, options.schema, {}) is None for name in added):
        # They were unknown, and a slide with an unknown class is not imported: those that are there have none of them.
        before["names"] = before.get("names", {}) | {name: now["names"][name] for name in added}
    if before != now:
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        raise RefusedError(
            f"{out} was imported with other options",
            got=", ".join(f"{key} = {now.get(key)}" for key in changed),
            expected=", ".join(f"{key} = {before.get(key)}" for key in changed),
            hint=f"repeat the earlier options, or {ANOTHER_FOLDER}",
        )
    return {slide.name: slide for slide in record.slides}
