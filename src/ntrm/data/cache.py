"""Sections decoded once: memory-mapped arrays, found by path, size and times of the files they were read from.

Every array is a plain ``.npy`` file that is written under a temporary name and renamed, so that a reader sees a
whole file or none. Two processes that build the same section at once write the same bytes; the later rename wins.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.io import remove_partials, whole_file
from ntrm.core.labels import LabelSchema
from ntrm.data.dataset import Case
from ntrm.data.image_files import Pixels, read_image, read_mask

FORMAT = 2  # Rises whenever the same source file would be decoded or stored differently

SETTLED_NS = 2_000_000_000
"""A source decoded sooner after it was changed may have changed again within one tick of its file system's clock."""


@dataclass(frozen=True)
class CachedSection:
    """Image and mask of one section as read-only memory maps, opened when first touched in each process.

    Holds paths only, so it costs nothing to send to another process.
    """

    image_path: Path
    mask_path: Path

    @property
    def image(self) -> Pixels:
        """RGB, (H, W, 3)."""
        return _mapped(self.image_path)

    @property
    def mask(self) -> Pixels:
        """Class indices, (H, W); 255 is ignore."""
        return _mapped(self.mask_path)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        height, width = self.mask.shape
        return height, width


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
        """The decoded section of ``case``; decodes it only if its files have changed since, or the schema's colours."""
        if case.image is None or case.mask is None:
            what, hint = "image" if case.image is None else "mask", "run `ntrm data check` on the dataset"
            raise DataError(f"{case.name} has no {what}", expected="both an image and a mask", hint=hint)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            hint = "choose another one with NTRM_CACHE"
            raise DataError(f"cannot make the cache folder {self.folder}", got=error, hint=hint) from error
        # Names alone do not tell how an RGB mask is decoded: the colours belong to the key as well.
        colours = schema.fingerprint.encode() + schema.palette.tobytes()
        section = CachedSection(
            self._decoded("image", case.image, read_image),
            self._decoded("mask", case.mask, lambda path: read_mask(path, schema).mask, colours),
        )
        if section.image.shape[:2] != section.mask.shape:
            got = f"image {section.image.shape[:2]}, mask {section.mask.shape} (height, width)"
            raise DataError(f"image and mask of {case.name} differ in size", got=got)
        return section

    def _decoded(self, kind: str, source: Path, decode: Callable[[Path], Pixels], how: bytes = b"") -> Path:
        before = _stamp(source)
        key = hashlib.sha256(f"{source.absolute()}|{before}".encode() + how).hexdigest()
        path = self.folder / f"{kind}-{key[:32]}.npy"
        if _load(path) is None or path.stat().st_mtime_ns - before[-1] < SETTLED_NS:
            pixels = decode(source)
            if _stamp(source) != before:
                hint = "wait until it is written, then start again"
                raise DataError(f"{source} changed while it was read", hint=hint)
            remove_partials(self.folder)  # of killed writers
            with whole_file(path) as partial:
                np.save(partial, np.ascontiguousarray(pixels), allow_pickle=False)
            _mapped.cache_clear()  # an open map of an older file must not outlive its replacement
        return path


def _stamp(source: Path) -> tuple[int, int, int]:
    try:
        stat = source.stat()
    except OSError as error:
        raise DataError(f"cannot read {source}", got=error, hint="check that it is there and may be read") from error
    # The change time also catches a copy that kept the size and the modification time.
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def _load(path: Path) -> NDArray[np.uint8] | None:
    """Memory map of a cache file, or None where it is missing or incomplete."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        complete = array.dtype == np.uint8 and path.stat().st_size == array.offset + array.nbytes
    except (OSError, ValueError, EOFError):
        return None
    return array if complete else None


@lru_cache(maxsize=512)  # each holds a file descriptor open, and 1024 is a common limit
def _mapped(path: Path) -> NDArray[np.uint8]:
    array = _load(path)
    if array is None:
        raise DataError(f"the cache file {path} is gone or damaged", hint="start again: it is then decoded once more")
    return array
