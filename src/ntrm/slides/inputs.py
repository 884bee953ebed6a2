"""What to segment, from files, folders, tables and addresses, as one list in a fixed order."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ntrm.core.csv_text import read_table
from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.io import write_bytes
from ntrm.core.mpp import Resolution
from ntrm.data.csv_tables import number
from ntrm.data.layouts import survey_dataset
from ntrm.slides.object_store import Address, RemoteSlide, RemoteSlides, is_address
from ntrm.slides.slide_folders import IMAGES, SLIDE_SUFFIXES, LeftOut, lies_in, real, slides_in

OWN_COLUMNS = ("slide", "slide_id", "mpp", "mpp_y")
"""Columns of an input table that mean something; all others are covariates."""
FINGERPRINT_BYTES = 1 << 20  # Bytes at either end of a file that tell it from others


@dataclass(frozen=True)
class SlideInput:
    """One slide to segment."""

    path: Path
    name: str  # Its name in the input: distinguishes slides of one file name
    slide_id: str | None = None  # As the user wants its outputs named
    mpp: Resolution | None = None  # Stated by the user; the file's own where None
    covariates: Mapping[str, str] = field(default_factory=dict)
    times: int = 1  # How often it occurs in the input; it is segmented once
    alone: bool = False  # Whether no other file may be read with it; see `open_slide`
    remote: RemoteSlide | None = None  # Its objects, if it lies at an address; `path` is then its place in the cache

    @property
    def location(self) -> str:
        """Where the user has it: its address, or the one path to which all others lead."""
        return str(real(self.path) if self.remote is None else self.remote.address)


def find_inputs(
    inputs: Sequence[str | Path],
    mpp: Resolution | None = None,
    *,
    out: Path | None = None,
    remote: RemoteSlides | None = None,
    left_out: LeftOut | None = None,
) -> tuple[SlideInput, ...]:
    """Slides of files, folders and tables (``.csv``: slide, optionally slide_id, mpp, mpp_y, and covariates).

    ``mpp`` holds for every slide whose row does not state its own; without it the images of a dataset have the µm/px
    that the dataset states. Paths in a table are relative to the table. What
    lies in ``out`` is a result: skipped in a folder, refused where it is named. Earlier results and the masks of a
    dataset are skipped in a folder, too; ``left_out`` gets what may be missed. A file that occurs more than once, by
    whatever path, is taken once, and refused where the entries differ. With ``remote`` an input, or a row of a table,
    may be an address.
    """
    if not inputs:
        raise UsageError("nothing to segment", expected="slides, folders of slides, or a CSV with a column slide")
    left_out = LeftOut() if left_out is None else left_out
    slides: dict[str, SlideInput] = {}
    # Each file once, whichever path leads to it.
    for slide in (slide for each in inputs for slide in _expand(each, mpp, out, remote, left_out)):
        before = slides.setdefault(slide.location, slide)
        if (before.slide_id, before.mpp, before.covariates) != (slide.slide_id, slide.mpp, slide.covariates):
            hint = "keep one of its rows; name a table's slides in the table only"
            what = "a slide is given twice, with different values"
            raise UsageError(what, got=slide.name, expected="one slide_id, µm/px and covariates", hint=hint)
        if before is not slide:
            slides[slide.location] = replace(before, times=before.times + 1)
    if not slides:
        raise UsageError(
            "no slide among the inputs",
            got=", ".join(str(path) if is_address(path) else Path(path).name for path in inputs),
            expected=f"files that end in {', '.join(SLIDE_SUFFIXES)}; no results, nothing in --out, no Masks",
            hint="name the files themselves if they end otherwise",
        )
    for slide in slides.values():
        there = slide.remote is not None and remote is not None and slide.remote.address.lies_in(remote.out)
        if there or (slide.remote is None and lies_in(slide.path, out)):
            raise RefusedError(
                "a slide lies in the folder of the results",
                got=slide.path.name,
                expected=f"slides outside {remote.out if there and remote else out}",
                hint="choose another --out",
            )
    from ntrm.results.tables import is_own_column

    # Columns that could be taken for ours later are refused before any work is done.
    names = {name for slide in slides.values() for name in slide.covariates}
    if clash := sorted(name for name in names if not name or is_own_column(name)):
        raise UsageError(
            "covariates have the same names as columns of the results",
            got=", ".join(map(repr, clash)),
            hint="rename these columns of the input table",
        )
    return tuple(slides.values())


def shard_of(slides: Sequence[SlideInput], shard: str | None) -> tuple[SlideInput, ...]:
    """Every N-th slide from the I-th on, for ``I/N`` with I from 1 to N."""
    if shard is None:
        return tuple(slides)
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", shard)
    shard_number, shards = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= shard_number <= shards:
        raise UsageError("impossible shard", got=repr(shard), expected="I/N with I from 1 to N, such as 1/4")
    return tuple(slides[shard_number - 1 :: shards])


def _expand(
    given: str | Path, mpp: Resolution | None, out: Path | None, remote: RemoteSlides | None, left_out: LeftOut
) -> Iterator[SlideInput]:
    if remote is not None and is_address(given):
        address = Address.parse(str(given))
        if address.name.lower().endswith(".csv"):
            with tempfile.TemporaryDirectory(prefix="ntrm-") as folder:
                table = Path(folder) / "table.csv"
                remote.store(address).fetch(address, table)
                yield from _rows(table, mpp, remote, address.parent)
            return
        slide = remote.slide(address)
        there = remote.below(address, left_out) if slide is None else [(address.name, slide)]
        yield from (SlideInput(remote.path(each), name, mpp=mpp, remote=each) for name, each in there)
        return
    path = _spelt_as_on_disk(Path(given))
    if path.is_dir():
        stated: dict[Path | None, Resolution | None] = {}
        with suppress(DataError, OSError):  # it may be a dataset, which states µm/px
            cases = survey_dataset(path.parent if path.name == IMAGES else path).cases
            stated = {case.image: case.resolution for case in cases if case.mask and not mpp}
        for file in slides_in(path, left_out, out=out):
            yield SlideInput(file, file.relative_to(path).as_posix(), mpp=mpp or stated.get(file))
    elif not path.exists():
        raise UsageError("no such slide", got=path, expected="a file or a folder that exists")
    elif path.suffix.lower() == ".csv":
        yield from _rows(path, mpp, remote)
    else:
        yield SlideInput(path, path.name, mpp=mpp)


def _rows(
    table: Path, mpp: Resolution | None, remote: RemoteSlides | None, folder: Address | None = None
) -> Iterator[SlideInput]:
    """The slides of a table; names in a table at an address are relative to its ``folder``."""
    rows = read_table(table, ("slide",))
    if not rows:
        raise DataError(f"{table.name} names no slide", expected="a row for each slide")
    # A column that is nearly one of ours would be taken for a covariate, and what it states ignored.
    for name in rows[0]:
        if name not in OWN_COLUMNS and name.lower() in OWN_COLUMNS:
            raise DataError(
                f"{table.name} has a column whose name differs from one of ours only in upper and lower case",
                got=name,
                expected=name.lower(),
                hint="write it like this, or rename it if it is a covariate",
            )
    for line, cells in enumerate(rows, start=2):
        if not cells["slide"] or "\0" in cells["slide"]:
            raise DataError(f"{table.name} has a row without a slide", got=f"row {line}")
        where = f"{table.name}, row {line}"
        if cells.get("mpp_y") and not cells.get("mpp"):
            raise DataError(f"{where}: mpp_y without mpp", expected="both, or mpp alone for square pixels")
        objects = None
        try:
            stated = cells.get("mpp") and Resolution(number(cells["mpp"]), number(cells.get("mpp_y") or cells["mpp"]))
            if remote is not None and (folder is not None or is_address(cells["slide"])):
                text = cells["slide"] if is_address(cells["slide"]) else f"{folder}/{cells['slide']}"
                objects = remote.named(Address.parse(text))
        except NtrmError as error:
            raise error.prefixed(where) from error
        there = None if remote is None or objects is None else remote.path(objects)
        yield SlideInput(
            path=there or _spelt_as_on_disk(table.parent / cells["slide"]),
            name=cells["slide"],
            remote=objects,
            slide_id=cells.get("slide_id") or None,
            mpp=stated or mpp,
            covariates={key: value for key, value in cells.items() if key not in OWN_COLUMNS},
        )


def _spelt_as_on_disk(path: Path) -> Path:
    """The path as the disk has it: letters with marks may be one character or two (NFC, NFD)."""
    spellings = (path, *(Path(unicodedata.normalize(form, str(path))) for form in ("NFC", "NFD")))
    # A name that no disk can hold must not spoil the other rows.
    with suppress(OSError, ValueError):
        return next((spelling for spelling in spellings if spelling.exists()), path)
    return path


def source_fingerprint(path: Path) -> str | None:
    """Identifies a slide file without its name: SHA-256 of size, first and last bytes; None where there is no file."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            digest = hashlib.sha256(str(size).encode())
            for start in (0, max(size - FINGERPRINT_BYTES, 0)):
                stream.seek(start)
                digest.update(stream.read(FINGERPRINT_BYTES))
    except OSError:
        return None
    return digest.hexdigest()


def find_by_content(
    wanted: Collection[str], roots: Sequence[Path], stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[str, Path]]:
    """Files under the roots whose fingerprint is ``wanted``, whatever they are called now; each content once."""
    left = set(wanted)
    for root in (root.resolve() for root in roots):
        for path in slides_in(root, LeftOut(), on_error=lambda _: None) if root.is_dir() else [root]:
            if not left or stopped():
                return
            # Links may lead out of the root.
            found = source_fingerprint(path) if real(path).is_relative_to(root) else None
            if found in left:
                left.discard(found)
                yield found, path


def check_roots(roots: Iterable[Path]) -> None:
    """Refuse folders of slides that do not exist: in those, slides would only seem to be missing."""
    lost = next((root for root in roots if not root.exists()), None)
    if lost is not None:
        raise UsageError("no such folder of slides", got=lost, expected="a folder that exists", hint="correct --slides")


def places_folder() -> Path:
    """In ``NTRM_STATE``, or in the user's folder for the state of programs: where slides lay is in no results."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(os.environ.get("NTRM_STATE") or Path(state, "ntrm")).expanduser() / "slides"


def remember_places(places: Mapping[str, Path]) -> None:
    """Keep the paths of slides by their fingerprints; where that is not possible now, nothing is kept."""
    # A home that is full or read-only must not spoil finished work.
    with suppress(OSError, RuntimeError, NtrmError):
        places_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        for source, path in places.items():
            write_bytes(places_folder() / source, os.fsencode(path.absolute()))


def place_of(source: str) -> Path | None:
    """Where the slide of this fingerprint lies; None where that is not known, or another file lies there now."""
    with suppress(OSError, RuntimeError, ValueError):
        path = Path(os.fsdecode((places_folder() / source).read_bytes()))
        if path.is_file() and source_fingerprint(path) == source:
            return path
    return None
