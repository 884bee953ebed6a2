"""The record of an import: what lies in the dataset's folder, of which slides and annotations, with which options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ntrm.annotations.pairing import Pair, SlideFacts
from ntrm.annotations.rasterise import AnnotationGrid
from ntrm.core.csv_text import rows_text
from ntrm.core.errors import DataError, RefusedError, check_number, first_names
from ntrm.core.io import (
    PARTIAL,
    check_folder,
    foreign_files,
    holding,
    remove_partials,
    sha256_of,
    whole_file,
    write_json,
    write_text,
)
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.version import __version__

RECORD, LOCK = "provenance.json", ".lock"


@dataclass(frozen=True)
class ImportOptions:
    """What shapes every case of a dataset."""

    schema: LabelSchema
    names: dict[str, str]
    mpp: float | None
    target_mpp: float | None
    margin_um: float

    def __post_init__(self) -> None:
        for value in (self.mpp, self.target_mpp):
            if value is not None:
                Resolution.square(value)
        check_number("margin in µm", self.margin_um, 0, 1e5)


@dataclass(frozen=True)
class ImportedSlide(AnnotationGrid):
    """One case as it was written, and how its pixels lie on the slide: in QuPath's pixels of the full resolution."""

    name: str
    slide: str
    annotations: str
    slide_sha256: str
    annotations_sha256: str
    given_mpp: float | None  # µm/px that the user gave for this slide, if any
    group: str
    split: str
    mpp: float
    slide_mpp: tuple[float, float]
    slide_area: tuple[int, int, int, int]  # Left, top, width and height of what was scanned, in the file's own pixels
    counts: dict[str, int]  # Annotations: used, repaired, clipped at the slide's edge, and left out by reason
    pixels: dict[str, int]  # Pixels by class; ``ignore`` is what nobody annotated
    overlaps: dict[str, int]  # Pixels by "BCC over RET" where annotations of different classes lay on each other


@dataclass(frozen=True)
class _Record:
    options: ImportOptions
    slides: tuple[ImportedSlide, ...]


class ImportedDataset:
    """The folder an import writes to, held for it alone: its cases so far, and the files that list them."""

    def __init__(self, out: Path, options: ImportOptions) -> None:
        self.out, self.options = out, options
        self.cases: dict[str, ImportedSlide] = {}

    @classmethod
    @contextmanager
    def opened(cls, out: Path, options: ImportOptions, names: Sequence[str]) -> Iterator[ImportedDataset]:
        """Hold the folder while cases of these names are written; those of an earlier import must be among them.

        With the same options its cases are kept until they are written anew, with others none is.
        """
        _read_record(out)  # refuses a folder of something else before anything is written there
        with holding(out / LOCK):
            before, dataset = _read_record(out), cls(out, options)
            earlier = () if before is None else before.slides
            if lost := sorted({case.name for case in earlier} - {*names}):
                raise RefusedError(
                    f"{out} has cases of an earlier import that this one would lose",
                    got=first_names(lost),
                    expected="a slide and annotations for each of them",
                    hint="import all slides together, or write to another folder",
                )
            dataset.cases = {case.name: case for case in earlier}
            for name in [] if before is None or before.options == options else [*dataset.cases]:
                dataset.remove(name)
            dataset._write()
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

    def complete(self, pair: Pair, facts: SlideFacts) -> ImportedSlide | None:
        """The case that an earlier run made of the same inputs, with today's facts."""
        case = self.cases.get(pair.name)
        if case is None or not (self.image(pair.name).is_file() and self.mask(pair.name).is_file()):
            return None
        now = (input_sha256(pair.slide), input_sha256(pair.annotations), facts.mpp)
        if now != (case.slide_sha256, case.annotations_sha256, case.given_mpp):
            return None
        return replace(case, group=facts.patient or case.name, split=facts.split)

    def add(self, case: ImportedSlide) -> None:
        """List a case whose image and mask are in place."""
        self.cases[case.name] = case
        self._write()

    def remove(self, name: str) -> None:
        """Take a case out: what there is of it came from other inputs."""
        if self.cases.pop(name, None) is not None:
            self._write()
        for path in (self.image(name), self.mask(name)):
            path.unlink(missing_ok=True)

    def _write(self) -> None:
        ordered = [self.cases[name] for name in sorted(self.cases)]
        document = {"program": "ntrm", "version": __version__, "command": "data import"}
        write_json(self.out / RECORD, {**document, **asdict(_Record(self.options, tuple(ordered)))})
        rows = [[case.name, case.group, case.split, f"{case.mpp:.6g}", case.slide_sha256] for case in ordered]
        write_text(self.out / "cases.csv", rows_text([["name", "group", "split", "mpp", "slide_sha256"], *rows]))


def input_sha256(path: Path) -> str:
    """SHA-256 of an input."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise DataError(f"cannot read {path}", got=error, hint="check the file and its permissions") from error


def _read_record(out: Path) -> _Record | None:
    """The record of an earlier import into ``out``; refuses a folder that holds anything else."""
    from pydantic import TypeAdapter

    path = out / RECORD
    if not path.exists():
        check_folder(out)
        if strange := [each.name for each in out.glob("*") if each.name != LOCK and not each.name.startswith(PARTIAL)]:
            raise foreign_files(out, "import", strange)
        return None
    try:
        return TypeAdapter(_Record).validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RefusedError(
            f"{path} is not the record of an import",
            got=" ".join(str(error).split())[:200],
            expected="an empty folder, or one that the same import began",
            hint="write to another folder, or delete this one and import everything again",
        ) from error
