"""Sections decoded once: memory-mapped arrays, keyed by the content of the files they were read from.

Every array is a plain ``.npy`` file that is written under a temporary name and renamed, so that a reader sees a
whole file or none. Two processes that build the same section at once write the same bytes; the later rename wins.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.io import PARTIAL, read_object, sha256_of, whole_file, write_json
from ntrm.core.labels import LabelSchema
from ntrm.data.dataset import Case
from ntrm.data.image_files import read_image, read_mask

FORMAT = 1
"""Rises whenever the same source file would be decoded or stored differently."""

OPEN_MAPS = 512
"""Memory maps kept open per process: each holds a file descriptor, and 1024 is a common limit."""

SETTLED_NS = 2_000_000_000
"""A source changed less than this ago may change again within one tick of its file system's clock."""

STALE_S = 6 * 3600.0
"""A temporary file of this age belongs to no living process."""


@dataclass(frozen=True)
class CachedSection:
    """Image and mask of one section as read-only memory maps, opened when first touched in each process.

    Holds paths only, so it costs nothing to send to another process.
    """

    image_path: Path
    mask_path: Path
    strays: int
    """Mask pixels of no palette colour (see ``DecodedMask``)."""
    ignored: int
    """Those of the strays that became ignore."""

    @property
    def image(self) -> NDArray[np.uint8]:
        """RGB, (H, W, 3)."""
        return _mapped(self.image_path)

    @property
    def mask(self) -> NDArray[np.uint8]:
        """Class indices, (H, W); 255 is ignore."""
        return _mapped(self.mask_path)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        height, width = self.mask.shape
        return height, width


@dataclass(frozen=True)
class CacheSize:
    """How much a cache holds."""

    files: int
    bytes: int


def default_folder() -> Path:
    """``NTRM_CACHE``, or ``ntrm`` in the user's cache folder."""
    if chosen := os.environ.get("NTRM_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ntrm"


class SectionCache:
    """Decoded sections in a folder of their own, readable by its owner only."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or default_folder()) / f"sections-v{FORMAT}"

    def open(self, case: Case, schema: LabelSchema) -> CachedSection:
        """The decoded section of ``case``; decodes it only if its content was never seen under this ``schema``."""
        if case.image is None or case.mask is None:
            raise DataError(
                f"{case.name} has no {'image' if case.image is None else 'mask'}",
                expected="both an image and a mask",
                hint="run `ntrm data check` on the dataset, or leave the case out",
            )
        self._make_folder()
        image_path = self._image(case.image)
        mask_path, counts = self._mask(case.mask, schema)
        section = CachedSection(image_path, mask_path, **counts)
        if section.image.shape[:2] != section.mask.shape:
            raise DataError(
                f"image and mask of {case.name} differ in size",
                got=f"image {section.image.shape[:2]}, mask {section.mask.shape} (height, width)",
                hint="export the mask again at the size of the image",
            )
        return section

    def size(self) -> CacheSize:
        """Files and bytes held."""
        sizes = self._own_files().values()
        return CacheSize(len(sizes), sum(sizes))

    def clear(self) -> CacheSize:
        """Delete everything held, and nothing else; returns what was deleted. Arrays in use stay readable."""
        files = self._own_files()
        for path in files:
            path.unlink(missing_ok=True)
        _mapped.cache_clear()
        return CacheSize(len(files), sum(files.values()))

    def _own_files(self) -> dict[Path, int]:
        """Everything this class writes, with sizes."""
        sizes = {}
        for pattern in ("image-*.npy", "mask-*.npy", "mask-*.json", "source-*.json", f"{PARTIAL}*"):
            for path in self.folder.glob(pattern):
                with suppress(FileNotFoundError):  # another process may have renamed or deleted it
                    sizes[path] = path.stat().st_size
        return sizes

    def _make_folder(self) -> None:
        if self.folder.is_dir():
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"cannot make the cache folder {self.folder}", got=error, hint="choose another one with NTRM_CACHE"
            ) from error

    def _image(self, source: Path) -> Path:
        before = _stamp(source)
        path = self.folder / f"image-{self._content_key(source, before)}.npy"
        if _load(path) is None:
            image = read_image(source)
            _check_unchanged(source, before)
            self._write(path, image)
        return path

    def _mask(self, source: Path, schema: LabelSchema) -> tuple[Path, dict[str, int]]:
        before = _stamp(source)
        path = self.folder / f"mask-{self._content_key(source, before)}-{_schema_key(schema)}.npy"
        counts_path = path.with_suffix(".json")
        counts = read_object(counts_path)
        if counts.keys() != {"strays", "ignored"} or _load(path) is None:
            decoded = read_mask(source, schema)
            _check_unchanged(source, before)
            counts = {"strays": decoded.strays, "ignored": decoded.ignored}
            write_json(counts_path, counts)
            self._write(path, decoded.mask)
        return path, counts

    def _write(self, path: Path, array: NDArray[np.uint8]) -> None:
        # Killed writers leave temporary files; young ones may belong to a writer at work.
        for partial in self.folder.glob(f"{PARTIAL}*"):
            with suppress(FileNotFoundError):
                if time.time() - partial.stat().st_mtime > STALE_S:
                    partial.unlink()
        with whole_file(path) as partial:
            np.save(partial, np.ascontiguousarray(array), allow_pickle=False)
        _mapped.cache_clear()  # an open map of a damaged file must not outlive its replacement

    def _content_key(self, source: Path, stamp: dict[str, int]) -> str:
        """SHA-256 of a source file, remembered until its size or times change."""
        name = hashlib.sha256(str(source.absolute()).encode()).hexdigest()[:32]
        note = self.folder / f"source-{name}.json"
        known = read_object(note)
        if known.get("stamp") == stamp and "sha256" in known:
            return str(known["sha256"])
        with _reading(source):
            digest = sha256_of(source)
        _check_unchanged(source, stamp)
        if time.time_ns() - stamp["ctime_ns"] > SETTLED_NS:
            write_json(note, {"stamp": stamp, "sha256": digest})
        return digest


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {source}", got=error, hint="check that it is there and may be read") from error


def _stamp(source: Path) -> dict[str, int]:
    with _reading(source):
        stat = source.stat()
    # The change time also catches a copy that kept the size and the modification time.
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns}


def _check_unchanged(source: Path, before: dict[str, int]) -> None:
    if _stamp(source) != before:
        raise DataError(f"{source} changed while it was read", hint="wait until it is written, then start again")


def _schema_key(schema: LabelSchema) -> str:
    # Names alone do not tell how an RGB mask is decoded: the colours belong to the key as well.
    return hashlib.sha256(schema.fingerprint.encode() + schema.palette.tobytes()).hexdigest()[:12]


def _load(path: Path) -> NDArray[np.uint8] | None:
    """Memory map of a cache file, or None where it is missing or incomplete."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        complete = array.dtype == np.uint8 and path.stat().st_size == array.offset + array.nbytes
    except (OSError, ValueError, EOFError):
        return None
    return array if complete else None


@lru_cache(maxsize=OPEN_MAPS)
def _mapped(path: Path) -> NDArray[np.uint8]:
    array = _load(path)
    if array is None:
        raise DataError(f"the cache file {path} is gone or damaged", hint="start again: it is then decoded once more")
    return array
