"""How outputs of slides are named: safe on every file system, unique, on request without a trace of the file's name."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath

from ntrm.core.csv_text import read_table, rows_text
from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import holding, write_text
from ntrm.core.wording import counted
from ntrm.data.csv_tables import one_spelling
from ntrm.results.folder import LONGEST, ResultsFolder, is_safe_name
from ntrm.results.paths import DONE, FAILED, HIDDEN
from ntrm.results.slide_state import finished, remembered, source_version
from ntrm.slides.inputs import SlideInput, source_fingerprint
from ntrm.slides.slide_folders import lies_in

KEY_COLUMNS = ("slide_id", "slide")
_ORDINARY = re.compile(r"[a-z]+|[0-9]{1,5}")  # Words and numbers as they occur in every text


def safe_name(text: str) -> str:
    """A folder name for ``text``: as it is if that is safe, else cleaned and made unique by a piece of its hash.

    >>> safe_name("BCC_1"), safe_name("../été 7")
    ('BCC_1', 'ete_7-99319878')
    """
    if is_safe_name(text):
        return text
    # One name for both spellings of letters with marks: a disk of another system has the other.
    text = one_spelling(text)
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "_", plain).strip("._-") or "slide"
    return _with_hash(cleaned, text)


def _with_hash(name: str, text: str) -> str:
    short_hash = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{name[: LONGEST - 9]}-{short_hash}"


class KnownResults:
    """Results that are there already, in a folder."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def others(self, slide_ids: Collection[str]) -> list[str]:
        """Ids of slides that have an outcome, besides these."""
        folders = [*ResultsFolder(self.out)] if self.out.is_dir() else []
        done = [each.path.name for each in folders if any(each.has(HIDDEN, name) for name in (DONE, FAILED))]
        return [name for name in done if name not in slide_ids]

    def state_folder(self, slide_id: str) -> AbstractContextManager[Path]:
        """Folder with the state of a slide (``ntrm.results.slide_state``), if it has one."""
        return nullcontext(self.out / slide_id)


def slide_ids(
    slides: Sequence[SlideInput],
    *,
    key_file: Path | None = None,
    out: Path | None = None,
    results: KnownResults | None = None,
) -> list[str]:
    """An id for each slide: the user's, a random one that ``key_file`` explains, or one made of the file's name.

    They depend on nothing but the inputs, the key file and the results, so that the next run finds the same ones: where
    a slide of the same name comes later, the first keeps its id, and so counts once. The results are those in ``out``
    unless ``results`` says where they are.
    """
    results = results or (None if out is None else KnownResults(out))
    bad = [slide.slide_id for slide in slides if slide.slide_id is not None and not is_safe_name(slide.slide_id)]
    if bad:
        raise UsageError(
            "a slide_id that is not a safe name",
            got=repr(bad[0]),
            expected=f"1 to {LONGEST} of A-Z a-z 0-9 . _ -, and not the name of a file of the results",
        )
    if key_file is None:
        return _unique_ids(slides, results)
    if lies_in(key_file, out):
        raise RefusedError(
            "the key to the pseudonyms would be inside the results folder",
            got=key_file,
            expected=f"a file outside {out}",
            hint="choose a place that is not shared with the results",
        )
    with holding(key_file.with_name(f".{key_file.name}.lock"), wait=True):
        return _pseudonyms(slides, key_file, results)


def without_name(text: str, slide: SlideInput, slide_id: str, *, ours: bool = False) -> str:
    """``text`` (an error's, perhaps) with the id wherever the slide's path or name stands.

    A name that is an ordinary word is replaced as a whole word only. If the text is ``ours``, such a word without an
    ending or a path is not the slide's: nothing of ours quotes a name like that.
    """
    path = slide.path
    names = {str(path), str(path.absolute()), os.path.realpath(path), slide.name, path.name}
    names |= set() if slide.remote is None else {str(slide.remote.address)}
    parts = {path.stem, str(path.absolute().parent / path.stem)}
    if len(path.parent.name) > 2:
        parts |= {str(path.parent), str(path.parent.absolute())}
    names |= {part for part in parts if not (ours and _ORDINARY.fullmatch(part))}
    for name in sorted((name for name in names if len(name) > 2), key=len, reverse=True):
        whole_word = rf"(?<![^\W_]){name}(?![^\W_])" if _ORDINARY.fullmatch(name) else re.escape(name)
        text = re.sub(whole_word, lambda _: slide_id, text)
    return text


def _unique_ids(slides: Sequence[SlideInput], results: KnownResults | None) -> list[str]:
    ids = [slide.slide_id or safe_name(slide.path.stem) for slide in slides]
    for group in _same_ids(ids):
        keeper = _keeper(slides, ids, group, results)
        names = {index: slides[index].name for index in group}
        if len(set(names.values())) < len(names):
            names = _path_ends(slides, group)
        for index, name in names.items():
            if slides[index].slide_id is None and index != keeper:
                ids[index] = _with_hash(ids[index], name)
    twice = [name for name, times in Counter(name.lower() for name in ids).items() if times > 1]
    if twice:
        raise UsageError(
            "two slides would have the same id",
            got=twice[0],
            hint="give each its own name in a column slide_id of a CSV",
        )
    return ids


def _keeper(
    slides: Sequence[SlideInput], ids: Sequence[str], group: Sequence[int], results: KnownResults | None
) -> int | None:
    """Which of several slides has the plain id already, if one has: it was alone in an earlier run."""
    if results is None or any(slides[index].slide_id for index in group):
        return None
    for index in sorted(group, key=lambda index: slides[index].location):
        slide = slides[index]
        with results.state_folder(ids[index]) as folder:
            done = finished(folder)
            if done is None or done.plan is None:
                owns = remembered(folder) is not None  # a failure's are whose they may be
            elif slide.remote is None:
                owns = done.plan.source == source_fingerprint(slide.path)
            else:
                owns = source_version(folder) == slide.remote.version
        if owns:
            return index
    return None


def distinguishing_paths(slides: Sequence[SlideInput], ids: Sequence[str]) -> dict[str, str]:
    """Ids of slides of one name, each with as much of its path as distinguishes it from the others."""
    plain = [slide.slide_id or safe_name(slide.path.stem) for slide in slides]
    ends = [_path_ends(slides, group) for group in _same_ids(plain)]
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


def _pseudonyms(slides: Sequence[SlideInput], key_file: Path, results: KnownResults | None) -> list[str]:
    rows = read_table(key_file, KEY_COLUMNS) if key_file.exists() else []
    ids = [row["slide_id"] for row in rows]
    if not all(is_safe_name(name) for name in ids) or len({name.lower() for name in ids}) < len(rows):
        expected = "columns slide_id,slide, every id safe and there once"
        raise DataError(f"{key_file.name} is no key to pseudonyms", expected=expected)
    known = {row["slide"]: row["slide_id"] for row in rows}
    strange = [] if results is None else results.others(known.values())
    if strange:
        # They would stay, each beside itself under a pseudonym, and be counted twice.
        raise RefusedError(
            f"the results hold slides under names that {key_file.name} does not contain",
            got=counted(len(strange), "slide"),
            expected="results that were made with this key from the start",
            hint="choose another --out, or give the earlier key",
        )
    paths = [slide.location for slide in slides]
    for path in paths:
        if path not in known:
            taken = {name.lower() for name in known.values()}
            random_ids = iter(lambda: f"slide-{secrets.token_hex(5)}", "")
            known[path] = next(name for name in random_ids if name not in taken)
    write_text(key_file, rows_text([KEY_COLUMNS, *((known[path], path) for path in sorted(known))]), private=True)
    return [known[path] for path in paths]
