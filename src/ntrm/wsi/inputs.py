"""What to segment, from files, folders and tables, as one list in a fixed order; and how its outputs are named.

Output names are safe on every file system, unique, and on request without any trace of the file's own name.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import tempfile
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.io import holding, rows_text, write_text
from ntrm.core.mpp import Resolution
from ntrm.data.csv_tables import is_good_name, number, read_table
from ntrm.storage.addresses import Address, is_address
from ntrm.storage.slide_cache import RemoteSlide
from ntrm.wsi.remote_slides import RemoteSlides
from ntrm.wsi.slide_names import IMAGES, SLIDE_SUFFIXES, is_mask, is_slide_name, one_of_each

OWN_COLUMNS = ("slide", "slide_id", "mpp", "mpp_y")
"""Columns of an input table that mean something; all others are covariates."""
KEY_COLUMNS = ("slide_id", "slide")
FINGERPRINT_BYTES = 1 << 20
"""Bytes at either end of a file that tell it from others."""
LONGEST = 100
"""Characters of an id: a path with some folders before it must fit everywhere."""

_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Names that some systems take for devices."""
_LETTERS = str.maketrans(
    {"ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
)
"""Letters that are no letter with a mark."""


@dataclass(frozen=True)
class SlideInput:
    """One slide to segment."""

    path: Path
    name: str
    """Its name in the input: distinguishes slides of one file name."""
    slide_id: str | None = None
    """As the user wants its outputs named."""
    mpp: Resolution | None = None
    """Stated by the user; the file's own where None."""
    covariates: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    """How often it occurs in the input; it is segmented once."""
    alone: bool = False
    """Whether no other file may be read with it; see ``open_slide``."""
    remote: RemoteSlide | None = None
    """Its objects, if it lies at an address; ``path`` is then its place in the cache."""

    @property
    def location(self) -> str:
        """Where the user has it: its address, or the one path to which all others lead."""
        return str(self.path.absolute().resolve() if self.remote is None else self.remote.address)


def find_inputs(
    inputs: Sequence[str | Path],
    mpp: Resolution | None = None,
    *,
    out: Path | None = None,
    remote: RemoteSlides | None = None,
) -> tuple[SlideInput, ...]:
    """Slides of files, folders and tables (``.csv``: slide, optionally slide_id, mpp, mpp_y, and covariates).

    ``mpp`` holds for every slide whose row does not state its own. Paths in a table are relative to the table. What
    lies in ``out`` is a result: skipped in a folder, refused where it is named. The masks of a dataset are skipped in a
    folder, too. A file that occurs more than once, by whatever path, is taken once, and refused where the entries
    differ. With ``remote`` an input, or a row of a table, may be an address.
    """
    if not inputs:
        raise UsageError("nothing to segment", expected="slides, folders of slides, or a CSV with a column slide")
    slides = _merged(slide for each in inputs for slide in _expand(each, mpp, out, remote))
    if not slides:
        raise _no_slide(inputs, out)
    in_results = next((slide for slide in slides if _is_result(slide, out, remote)), None)
    if in_results is not None:
        raise RefusedError(
            "a slide lies in the folder of the results",
            got=in_results.path.name,
            expected=f"slides outside {out if in_results.remote is None or remote is None else remote.out}",
            hint="choose another --out",
        )
    _check_covariates(slides)
    return tuple(slides)


def shard_of(slides: Sequence[SlideInput], shard: str | None) -> tuple[SlideInput, ...]:
    """Every N-th slide from the I-th on, for ``I/N`` with I from 1 to N.

    >>> slides = [SlideInput(Path(name), name) for name in "abcde"]
    >>> [slide.name for slide in shard_of(slides, "2/3")]
    ['b', 'e']
    """
    if shard is None:
        return tuple(slides)
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", shard)
    shard_number, shards = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= shard_number <= shards:
        raise UsageError("impossible shard", got=repr(shard), expected="I/N with I from 1 to N, such as 1/4")
    return tuple(slides[shard_number - 1 :: shards])


def _no_slide(inputs: Sequence[str | Path], out: Path | None) -> UsageError:
    hint = "name the files themselves if they end otherwise"
    paths = [Path(path) for path in inputs if not is_address(path)]
    if any(_lies_in(path, out) for path in paths):
        hint = "choose an --out that does not hold the slides: what lies in it is taken for results"
    elif any(_is_annotation(file) for path in paths for file in path.rglob("*")):
        hint = "name the folder Images: what lies in Masks beside it are masks, not sections"
    return UsageError(
        "no slide among the inputs",
        got=", ".join(str(path) if is_address(path) else Path(path).name for path in inputs),
        expected=f"files that end in {', '.join(SLIDE_SUFFIXES)}",
        hint=hint,
    )


def _is_result(slide: SlideInput, out: Path | None, remote: RemoteSlides | None) -> bool:
    if slide.remote is not None and remote is not None:
        return slide.remote.address.lies_in(remote.out)
    return _lies_in(slide.path, out)


def _expand(
    given: str | Path, mpp: Resolution | None, out: Path | None, remote: RemoteSlides | None
) -> Iterator[SlideInput]:
    if remote is not None and is_address(given):
        yield from _expand_address(Address.parse(str(given)), mpp, remote)
        return
    path = _spelt_as_on_disk(Path(given))
    if path.is_dir():
        slides = (file for file in _slides_in(path) if not _lies_in(file, out))
        yield from (SlideInput(file, file.relative_to(path).as_posix(), mpp=mpp) for file in slides)
    elif not path.exists():
        raise UsageError("no such slide", got=path, expected="a file or a folder that exists")
    elif path.suffix.lower() == ".csv":
        yield from _rows(path, mpp, remote)
    else:
        yield SlideInput(path, path.name, mpp=mpp)


def _expand_address(address: Address, mpp: Resolution | None, remote: RemoteSlides) -> Iterator[SlideInput]:
    if address.name.lower().endswith(".csv"):
        with tempfile.TemporaryDirectory(prefix="ntrm-") as folder:
            table = Path(folder) / "table.csv"
            table.write_bytes(remote.read(address))
            yield from _rows(table, mpp, remote, address.parent)
        return
    slide = remote.slide(address)
    slides = remote.below(address) if slide is None else [(address.name, slide)]
    yield from (SlideInput(remote.cache.path(each), name, mpp=mpp, remote=each) for name, each in slides)


def _slides_in(folder: Path) -> Iterator[Path]:
    files = (path.relative_to(folder) for path in folder.rglob("*"))
    names = (PurePosixPath(path) for path in files if is_slide_name(PurePosixPath(path)))
    real = (name for name in names if (folder / name).is_file() and not _is_annotation(folder / name))
    yield from (folder / name for name in one_of_each(real))


def _is_annotation(path: Path) -> bool:
    """Whether a file is a mask of a dataset."""
    images = PurePosixPath(path.parent.parent / IMAGES)
    return is_mask(PurePosixPath(path), [images] if Path(images).is_dir() else [])


def _rows(
    table: Path, mpp: Resolution | None, remote: RemoteSlides | None, folder: Address | None = None
) -> Iterator[SlideInput]:
    """The slides of a table; names in a table at an address are relative to its ``folder``."""
    rows = read_table(table, ("slide",))
    if not rows:
        raise DataError(f"{table.name} names no slide", expected="a row for each slide")
    for line, cells in enumerate(rows, start=2):
        if not cells["slide"] or "\0" in cells["slide"]:
            raise DataError(f"{table.name} has a row without a slide", got=f"row {line}")
        where = f"{table.name}, row {line}"
        _check_encoding(cells["slide"], where)
        try:
            stated = cells.get("mpp") and Resolution(number(cells["mpp"]), number(cells.get("mpp_y") or cells["mpp"]))
        except NtrmError as error:
            raise error.prefixed(where) from error
        there = None if remote is None else _row_address(cells["slide"], where, folder)
        objects = None if remote is None or there is None else remote.named(there)
        cached = None if remote is None or objects is None else remote.cache.path(objects)
        yield SlideInput(
            path=cached or _spelt_as_on_disk(table.parent / cells["slide"]),
            name=cells["slide"],
            remote=objects,
            slide_id=cells.get("slide_id") or None,
            mpp=stated or mpp,
            covariates={key: value for key, value in cells.items() if key not in OWN_COLUMNS},
        )


def _row_address(name: str, where: str, folder: Address | None) -> Address | None:
    """The address of a row's slide; None where it is a path."""
    if not is_address(name) and folder is None:
        return None
    try:
        return Address.parse(name if is_address(name) or folder is None else f"{folder}/{name}")
    except NtrmError as error:
        raise error.prefixed(where) from error


def _check_encoding(name: str, where: str) -> None:
    """A table is always UTF-8, file names are not: some locales cannot even encode the name."""
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
    """The path as the disk has it: letters with marks may be one character or two (NFC, NFD)."""
    spellings = (path, *(Path(unicodedata.normalize(form, str(path))) for form in ("NFC", "NFD")))
    return next((spelling for spelling in spellings if _exists(spelling)), path)


def _exists(path: Path) -> bool:
    """False also for a name that no disk can hold: the other rows are still good."""
    try:
        return path.exists()
    except OSError:
        return False


def _lies_in(path: Path, folder: Path | None) -> bool:
    return folder is not None and path.absolute().resolve().is_relative_to(folder.absolute().resolve())


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


def _merged(slides: Iterable[SlideInput]) -> list[SlideInput]:
    """Each file once, whichever path leads to it."""
    by_path: dict[str, SlideInput] = {}
    for slide in slides:
        path = slide.location
        before = by_path.get(path)
        if before is None:
            by_path[path] = slide
            continue
        fields = {"slide_id": "slide_id", "mpp": "µm/px", "covariates": "covariates"}
        differing = [text for name, text in fields.items() if getattr(before, name) != getattr(slide, name)]
        if differing:
            raise UsageError(
                "a slide is given twice, and not alike",
                got=f"{slide.name} with other {' and '.join(differing)}",
                expected="each slide once",
                hint="keep one of its rows; name a table's slides in the table only",
            )
        by_path[path] = replace(before, times=before.times + 1)
    return [*by_path.values()]


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
    for path in _files(roots) if left else ():
        if stopped():
            return
        # Others need the disk, too.
        time.sleep(0)
        found = source_fingerprint(path)
        if found in left:
            left.discard(found)
            yield found, path
        if not left:
            return


def _files(roots: Sequence[Path]) -> Iterator[Path]:
    for root in roots:
        base = root.resolve()
        try:
            slides = find_inputs([base])
        except (UsageError, DataError):
            continue
        # Links may lead out of the root.
        yield from (slide.path for slide in slides if slide.path.resolve().is_relative_to(base))


def safe_name(text: str) -> str:
    """A folder name for ``text``: as it is if that is safe, else cleaned and made unique by a piece of its hash.

    >>> safe_name("BCC_1"), safe_name("../été 7")
    ('BCC_1', 'ete_7-99319878')
    >>> safe_name("Größe")[:6]
    'Grosse'
    """
    if _is_safe(text):
        return text
    # One name for both spellings of letters with marks: a disk of another system has the other.
    text = unicodedata.normalize("NFC", text)
    plain = unicodedata.normalize("NFKD", text.translate(_LETTERS)).encode("ascii", "ignore").decode()
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "_", plain).strip("._-") or "slide"
    return _with_hash(cleaned, text)


def _is_safe(name: str) -> bool:
    return is_good_name(name) and len(name) <= LONGEST and not _RESERVED.fullmatch(name)


def _with_hash(name: str, text: str) -> str:
    short_hash = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{name[: LONGEST - 9]}-{short_hash}"


def slide_ids(slides: Sequence[SlideInput], *, key_file: Path | None = None, out: Path | None = None) -> list[str]:
    """An id for each slide: the user's, a random one that ``key_file`` explains, or one made of the file's name.

    They depend on nothing but the inputs (and the key file), so that the next run finds the same ones.
    """
    bad = [slide.slide_id for slide in slides if slide.slide_id is not None and not _is_safe(slide.slide_id)]
    if bad:
        raise UsageError(
            "a slide_id that is no safe name", got=repr(bad[0]), expected=f"1 to {LONGEST} of A-Z a-z 0-9 . _ -"
        )
    if key_file is None:
        return _unique_ids(slides)
    if _lies_in(key_file, out):
        raise RefusedError(
            "the key to the pseudonyms would lie among the results",
            got=key_file,
            expected=f"a file outside {out}",
            hint="choose a place that is not given away with the results",
        )
    with holding(key_file.with_name(f".{key_file.name}.lock"), wait=True):
        return _pseudonyms(slides, key_file)


def without_name(text: str, slide: SlideInput, slide_id: str) -> str:
    """``text`` (an error's, perhaps) with the id wherever the slide's path or name stands."""
    path = slide.path
    names = {str(path), str(path.absolute()), str(path.resolve()), slide.name, path.name, path.stem}
    names |= set() if slide.remote is None else {str(slide.remote.address)}
    if len(path.parent.name) > 2:
        names |= {str(path.parent), str(path.parent.absolute())}
    for name in sorted((name for name in names if len(name) > 2), key=len, reverse=True):
        text = text.replace(name, slide_id)
    return text


def _unique_ids(slides: Sequence[SlideInput]) -> list[str]:
    ids = _plain_ids(slides)
    for group in _same_ids(ids):
        names = {index: slides[index].name for index in group}
        if len(set(names.values())) < len(names):
            names = _path_ends(slides, group)
        for index, name in names.items():
            if slides[index].slide_id is None:
                ids[index] = _with_hash(ids[index], name)
    twice = [name for name, times in Counter(name.lower() for name in ids).items() if times > 1]
    if twice:
        raise UsageError(
            "two slides would have the same id", got=twice[0], hint="tell them apart by a column slide_id in a CSV"
        )
    return ids


def _plain_ids(slides: Sequence[SlideInput]) -> list[str]:
    return [slide.slide_id or safe_name(slide.path.stem) for slide in slides]


def distinguishing_paths(slides: Sequence[SlideInput], ids: Sequence[str]) -> dict[str, str]:
    """Ids of slides of one name, each with as much of its path as distinguishes it from the others."""
    ends = [_path_ends(slides, group) for group in _same_ids(_plain_ids(slides))]
    return {ids[index]: end for group in ends for index, end in group.items() if not slides[index].slide_id}


def _same_ids(ids: Sequence[str]) -> list[list[int]]:
    """Groups of slides of one id; some file systems ignore case."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(ids):
        groups[name.lower()].append(index)
    return [group for group in groups.values() if len(group) > 1]


def _path_ends(slides: Sequence[SlideInput], group: Sequence[int]) -> dict[int, str]:
    """The shortest ends of paths that differ: a drive may be mounted elsewhere next time."""
    paths = {index: PurePosixPath(slides[index].location) for index in group}
    for length in range(2, max(len(path.parts) for path in paths.values()) + 1):
        ends = {index: "/".join(path.parts[-length:]) for index, path in paths.items()}
        if len(set(ends.values())) == len(ends):
            return ends
    return {index: str(path) for index, path in paths.items()}


def _pseudonyms(slides: Sequence[SlideInput], key_file: Path) -> list[str]:
    known = _read_key(key_file)
    paths = [slide.location for slide in slides]
    for path in paths:
        if path not in known:
            taken = {name.lower() for name in known.values()}
            random_ids = iter(lambda: f"slide-{secrets.token_hex(5)}", "")
            known[path] = next(name for name in random_ids if name not in taken)
    write_text(key_file, rows_text([KEY_COLUMNS, *((known[path], path) for path in sorted(known))]), private=True)
    return [known[path] for path in paths]


def _read_key(key_file: Path) -> dict[str, str]:
    if not key_file.exists():
        return {}
    rows = read_table(key_file, KEY_COLUMNS)
    ids = [row["slide_id"] for row in rows]
    if not all(_is_safe(name) for name in ids) or len({name.lower() for name in ids}) < len(rows):
        raise DataError(
            f"{key_file.name} is no key to pseudonyms", expected="columns slide_id,slide, every id safe and there once"
        )
    return {row["slide"]: row["slide_id"] for row in rows}
