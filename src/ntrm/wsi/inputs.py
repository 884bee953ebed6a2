"""What to segment: files, folders and tables, as one list in a fixed order; slides told apart by content."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.mpp import Resolution
from ntrm.data.csv_tables import number, read_table

SUFFIXES = (
    *(".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".vms", ".vmu", ".bif", ".svslide"),
    *(".png", ".jpg", ".jpeg"),
)
"""Of files that are a slide each."""
SLIDE_SUFFIXES = (*SUFFIXES, ".dcm")
"""What is taken from a folder. A file that is named itself may end as it likes: readers choose by content."""

OWN_COLUMNS = ("slide", "slide_id", "mpp", "mpp_y")
"""Columns of an input table that mean something; all others are covariates."""


@dataclass(frozen=True)
class SlideInput:
    """One slide to segment."""

    path: Path
    name: str
    """How it was called in the input: tells apart slides of one file name."""
    slide_id: str | None = None
    """As the user wants its outputs named."""
    mpp: Resolution | None = None
    """Stated by the user; the file's own where None."""
    covariates: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    """How often it was given; it is segmented once."""
    alone: bool = False
    """Whether no other file may be read with it; see ``open_slide``."""


def find_inputs(
    inputs: Sequence[str | Path], mpp: Resolution | None = None, *, out: Path | None = None
) -> tuple[SlideInput, ...]:
    """Slides of files, folders and tables (``.csv``: slide, optionally slide_id, mpp, mpp_y, and covariates).

    ``mpp`` holds for every slide whose row does not state its own. Paths in a table are relative to the table. What
    lies in ``out`` is a result: passed over in a folder, refused where it is named. The masks of a dataset are passed
    over in a folder, too. A file that is given more than once, by whatever path, is taken once, and refused where it is
    not said the same of it each time.
    """
    if not inputs:
        raise UsageError("nothing to segment", expected="slides, folders of slides, or a CSV with a column slide")
    found = _once(slide for each in inputs for slide in _expand(_spelt_as_on_disk(Path(each)), mpp, out))
    if not found:
        raise _nothing_found([Path(each) for each in inputs], out)
    _check_apart(found, out)
    _check_covariates(found)
    return tuple(found)


def shard_of(slides: Sequence[SlideInput], shard: str | None) -> tuple[SlideInput, ...]:
    """Every N-th slide from the I-th on, for ``I/N`` with I from 1 to N.

    >>> slides = [SlideInput(Path(name), name) for name in "abcde"]
    >>> [slide.name for slide in shard_of(slides, "2/3")]
    ['b', 'e']
    """
    if shard is None:
        return tuple(slides)
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", shard)
    part, parts = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= part <= parts:
        raise UsageError("impossible shard", got=repr(shard), expected="I/N with I from 1 to N, such as 1/4")
    return tuple(slides[part - 1 :: parts])


def _nothing_found(inputs: Sequence[Path], out: Path | None) -> UsageError:
    hint = "name the files themselves if they end otherwise"
    if any(_lies_in(path, out) for path in inputs):
        hint = "choose an --out that does not hold the slides: what lies in it is taken for results"
    elif any(_is_annotation(file) for path in inputs for file in path.rglob("*")):
        hint = "name the folder Images: what lies in Masks beside it are masks, not sections"
    return UsageError(
        "no slide among the inputs",
        got=", ".join(path.name for path in inputs),
        expected=f"files that end in {', '.join(SLIDE_SUFFIXES)}",
        hint=hint,
    )


def _expand(path: Path, mpp: Resolution | None, out: Path | None) -> Iterator[SlideInput]:
    if path.is_dir():
        slides = (file for file in _slides_in(path) if not _lies_in(file, out))
        yield from (SlideInput(file, file.relative_to(path).as_posix(), mpp=mpp) for file in slides)
    elif not path.exists():
        raise UsageError("no such slide", got=path, expected="a file or a folder that exists")
    elif path.suffix.lower() == ".csv":
        yield from _rows(path, mpp)
    else:
        yield SlideInput(path, path.name, mpp=mpp)


def _slides_in(folder: Path) -> Iterator[Path]:
    seen_dicom: set[Path] = set()
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if hidden or path.suffix.lower() not in SLIDE_SUFFIXES or not path.is_file() or _is_annotation(path):
            continue
        if path.suffix.lower() == ".dcm":
            # A DICOM slide is a folder of files, one a level; whichever is opened brings the others.
            if path.parent in seen_dicom:
                continue
            seen_dicom.add(path.parent)
        yield path


def _is_annotation(path: Path) -> bool:
    """Whether a file is a mask of a dataset, whose images lie beside: the network would find tissue in it, too."""
    return path.parent.name == "Masks" and (path.parent.parent / "Images").is_dir()


def _rows(table: Path, mpp: Resolution | None) -> Iterator[SlideInput]:
    rows = read_table(table, ("slide",))
    if not rows:
        raise DataError(f"{table.name} names no slide", expected="a row for each slide")
    for line, cells in enumerate(rows, start=2):
        if not cells["slide"] or "\0" in cells["slide"]:
            raise DataError(f"{table.name} has a row without a slide", got=f"row {line}")
        _check_spelling(cells["slide"], f"{table.name}, row {line}")
        try:
            stated = cells.get("mpp") and Resolution(number(cells["mpp"]), number(cells.get("mpp_y") or cells["mpp"]))
        except NtrmError as error:
            raise type(error)(
                f"{table.name}, row {line}: {error.what}", got=error.got, expected=error.expected, hint=error.hint
            ) from error
        yield SlideInput(
            path=_spelt_as_on_disk(table.parent / cells["slide"]),
            name=cells["slide"],
            slide_id=cells.get("slide_id") or None,
            mpp=stated or mpp,
            covariates={key: value for key, value in cells.items() if key not in OWN_COLUMNS},
        )


def _check_spelling(name: str, where: str) -> None:
    """A table is UTF-8 everywhere, the names of files are not: under some locales a name cannot even be asked for."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: no file can be called so here",
            got=ascii(name),
            expected=f"characters of {error.encoding}, the encoding of this system's file names",
            hint="set LC_ALL=C.UTF-8",
        ) from error


def _spelt_as_on_disk(path: Path) -> Path:
    """A path whose letters with marks are typed as one character and lie on the disk as two, or the other way round."""
    if not _is_there(path):
        for form in ("NFC", "NFD"):
            other = Path(unicodedata.normalize(form, str(path)))
            if _is_there(other):
                return other
    return path


def _is_there(path: Path) -> bool:
    """Whether a file exists. One whose name no disk can hold does not; it is no reason to give up the other rows."""
    try:
        return path.exists()
    except OSError:
        return False


def _lies_in(path: Path, folder: Path | None) -> bool:
    return folder is not None and path.absolute().resolve().is_relative_to(folder.absolute().resolve())


def _check_apart(slides: Sequence[SlideInput], out: Path | None) -> None:
    """Results never overwrite what was given."""
    inside = [slide for slide in slides if _lies_in(slide.path, out)]
    if inside:
        raise RefusedError(
            "a slide lies in the folder of the results",
            got=inside[0].path.name,
            expected=f"slides outside {out}",
            hint="choose another --out",
        )


def _check_covariates(slides: Sequence[SlideInput]) -> None:
    """Columns that could be taken for ours later are refused before any work is done."""
    from ntrm.results.tables import is_own_column

    clash = sorted({name for slide in slides for name in slide.covariates if not name or is_own_column(name)})
    if clash:
        raise UsageError(
            "covariates that are called like columns of the results",
            got=", ".join(repr(name) for name in clash),
            hint="rename these columns of the input table",
        )


def _once(slides: Iterable[SlideInput]) -> list[SlideInput]:
    """Each file once, whichever way leads to it."""
    found: dict[Path, SlideInput] = {}
    for slide in slides:
        path = slide.path.absolute().resolve()
        before = found.get(path)
        if before is None:
            found[path] = slide
            continue
        differing = [
            what
            for what, one, other in (
                ("slide_id", before.slide_id, slide.slide_id),
                ("µm/px", before.mpp, slide.mpp),
                ("covariates", before.covariates, slide.covariates),
            )
            if one != other
        ]
        if differing:
            raise UsageError(
                "a slide is given twice, and not alike",
                got=f"{slide.name} with other {' and '.join(differing)}",
                expected="each slide once",
                hint="keep one of its rows; name a table's slides in the table only",
            )
        found[path] = replace(before, times=before.times + 1)
    return [*found.values()]


# Slide files told apart by their content; needs nothing that segments, so that a web server can use it, too.


ENDS = 1 << 20
"""Bytes at either end of a file that tell it from others."""


def source_fingerprint(path: Path) -> str | None:
    """Tells one slide file from another without its name: size, first and last bytes; None where there is no file."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            digest = hashlib.sha256(str(size).encode())
            for start in (0, max(size - ENDS, 0)):
                stream.seek(start)
                digest.update(stream.read(ENDS))
    except OSError:
        return None
    return digest.hexdigest()
