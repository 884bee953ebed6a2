"""Object storage through fsspec: addresses (``s3://bucket/folder``), and the slides there, fetched while they are read.

Credentials and endpoints are the storage library's own business (for S3 ``AWS_…`` variables, ``~/.aws``, the role of a
machine): no address carries them, and nothing here reads, keeps or writes them. Whoever has a slide in the cache holds
a lock that ends with its process, and deletes it in the end; what killed processes left goes when the next is fetched.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError, choices_error
from ntrm.core.io import holding, writing
from ntrm.results.manifest import is_run
from ntrm.results.paths import RUN
from ntrm.slides.slide_folders import LeftOut, belongs_to, has_parts, is_mask, one_of_each

EXAMPLE = "s3://bucket/folder"
WITH_NAME = ("abfs", "abfss", "sftp", "ssh", "webhdfs", "hdfs")
"""Schemes whose address names a container or a user before an ``@``."""
ATTEMPTS, ANSWER_S = 3, 20
"""Attempts of each request of S3, of which the library above makes five, and how long it waits for the next bytes."""
VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")
"""What services call the mark that changes with an object's content."""
WITHOUT_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "TokenRetrievalError")
CHATTY = ("botocore", "aiobotocore", "boto3", "s3fs", "fsspec", "aiohttp", "urllib3", "asyncio")
"""Loggers that would write signed requests, tokens included, at the level that ``-v`` sets."""

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)((?:::.*)?)://(.*)", re.DOTALL)
_FLATTENED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/[^/]")


@dataclass(frozen=True)
class Address:
    """A scheme, and the path below it, which starts with the bucket.

    >>> slides = Address.parse("s3://bucket/slides/")
    >>> str(slides / "a.svs"), slides.name, str(slides.parent)
    ('s3://bucket/slides/a.svs', 'slides', 's3://bucket')
    """

    scheme: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Check an address; one with credentials or a query is refused, and not repeated in the message."""
        match = _ADDRESS.fullmatch(text)
        if match is None:
            raise UsageError("no address", got=text, expected=f"something like {EXAMPLE}")
        scheme, chain, path = match[1].lower(), match[2], match[3].strip("/")
        before, at, _ = path.partition("/")[0].rpartition("@")
        if "?" in path or ":" in before or (at and scheme not in WITH_NAME):
            raise RefusedError(
                "an address with credentials or a query",
                expected=EXAMPLE,
                hint="leave them out: the storage library takes credentials from the environment or its own settings",
            )
        if scheme in ("file", "local"):
            raise UsageError("an address of this machine", got=text, expected="a path", hint=f"give /{path}")
        if chain or "::" in path or not _is_plain(path) or re.search(r"[\x01-\x1f\x7f]", path):
            raise UsageError("an address that names no folder or file", got=ascii(text), expected=EXAMPLE)
        return cls(scheme, path)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}"

    def __truediv__(self, name: str) -> Address:
        return Address(self.scheme, f"{self.path}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Address:
        """The folder; a bucket is its own."""
        return Address(self.scheme, self.path.rpartition("/")[0] or self.path)

    def lies_in(self, folder: Address | None) -> bool:
        """Whether this is the folder, or something below it."""
        return folder is not None and f"{self}/".startswith(f"{folder}/")


def is_address(text: str | Path) -> bool:
    """Whether a text is meant as an address, good or bad; a path is not, but an address that became one is refused."""
    if isinstance(text, Path):
        if _FLATTENED.match(str(text)) and not text.exists():
            raise UsageError("an address cannot be a path", got=text, expected=f'a text such as "{EXAMPLE}"')
        return False
    return _ADDRESS.fullmatch(text) is not None


class NoSuchObjectError(UsageError):
    """There is nothing at the address."""


class StoppedError(NtrmError):
    """A transfer was given up because nobody needs it any more."""


@dataclass(frozen=True, order=True)
class RemoteFile:
    """An object, by its name below a folder."""

    name: str
    size: int
    version: str  # Its ETag, or what the service has in its place

    @classmethod
    def of(cls, name: str, info: Mapping[str, Any]) -> RemoteFile:
        """From what a storage library knows of it."""
        mark = next((info[key] for key in VERSIONS if info.get(key)), "")
        # A listing may give a time as a number where a look at the single object gives a date.
        version = str(mark.timestamp() if isinstance(mark, datetime) else mark)
        return cls(name, int(info.get("size") or 0), version.strip('"'))


class ObjectStore:
    """The objects of one scheme."""

    def __init__(self, scheme: str) -> None:
        is_s3 = scheme in ("s3", "s3a")
        try:
            import fsspec

            known = sorted({*fsspec.available_protocols()} - {"file", "local"})
            if scheme not in known:
                raise choices_error("unknown kind of address", scheme, known)
            for name in CHATTY:
                logging.getLogger(name).setLevel(logging.WARNING)
            options: dict[str, Any] = {"skip_instance_cache": True}
            if is_s3:
                retries = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
                settings = {"connect_timeout": 10, "read_timeout": ANSWER_S, "retries": retries}
                options |= {"use_listings_cache": False, "config_kwargs": settings}
            self._fs: Any = fsspec.filesystem(scheme, **options)
        except (ImportError, ValueError) as error:
            hint = 'pip install "ntrm[cloud]"' if is_s3 else f"install the fsspec package for {scheme}://"
            raise UsageError(f"{scheme}:// needs an extra", got=error, hint=hint) from error

    def stat(self, address: Address) -> RemoteFile | None:
        """The object at an address; None where it is a folder of objects."""
        self._fs.invalidate_cache()
        with _explaining(address):
            info = self._fs.info(address.path)
            return None if info["type"] == "directory" else RemoteFile.of(address.name, info)

    def files_under(self, address: Address) -> list[RemoteFile]:
        """Every object below a folder, sorted; without names that could lead out of it, such as ``../x``."""
        self._fs.invalidate_cache()
        with _explaining(address):
            found = self._fs.find(address.path, detail=True)
        names = {path.lstrip("/").removeprefix(f"{address.path}/"): info for path, info in found.items()}
        return sorted(RemoteFile.of(name, info) for name, info in names.items() if _is_plain(name))

    def read(self, address: Address) -> bytes | None:
        """The bytes of a small object; None where there is none."""
        with suppress(NoSuchObjectError), _explaining(address):
            return bytes(self._fs.cat_file(address.path))
        return None

    def fetch(self, address: Address, to: Path, stopped: Callable[[], bool] = lambda: False) -> None:
        """Write an object to a file."""
        from fsspec.callbacks import Callback

        def check(*_: object, **__: object) -> None:
            if stopped():
                raise StoppedError("the transfer was stopped")

        with _explaining(address):
            self._fs.get_file(address.path, str(to), callback=Callback(hooks={"stopped": check}))

    def send(self, file: Path, address: Address) -> None:
        """Write a file to an object."""
        with _explaining(address):
            self._fs.put_file(str(file), address.path)

    def create(self, content: bytes, address: Address) -> bool:
        """Write bytes to an object that is not there yet; False where it is."""
        try:
            with _explaining(address):
                self._fs.pipe_file(address.path, content, mode="create")
        except FileExistsError:
            return False
        return True

    def remove(self, address: Address) -> None:
        """Delete an object; one that is gone is no error."""
        with suppress(NoSuchObjectError), _explaining(address):
            self._fs.rm_file(address.path)


def _is_plain(name: str) -> bool:
    return "\0" not in name and "\\" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


@contextmanager
def _explaining(address: Address) -> Iterator[None]:
    """Turn what a storage library raises into our own error."""
    try:
        yield
    except (FileExistsError, NtrmError):
        raise
    except Exception as error:  # every service has kinds of its own
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        kind = type(error).__name__
        # One short line; of the addresses in it only the host, since the rest may name a patient.
        words = re.sub(r"(https?://[^/\s\"']+)[^\s\"']*", r"\1", " ".join(str(error).split()))[:200] or kind
        if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
            expected = "a bucket, a folder or an object that exists"
            hint = "check the address, and the endpoint and region that the environment names"
            raise NoSuchObjectError(f"nothing found at {address}", got=words, expected=expected, hint=hint) from error
        if isinstance(error, PermissionError) or kind in WITHOUT_CREDENTIALS:
            what = f"access to {address} is denied, or there are no credentials for it"
            expected = "credentials that may list and read the slides, and list, read, write and delete the results"
            hint = "set them for the storage library, for S3 in the environment (AWS_…) or with `aws configure`"
            raise DataError(what, got=words, expected=expected, hint=hint) from error
        what = f"the storage of {address} does not answer, or not as such a service does"
        hint = "check the address, the network and the endpoint; the same command then continues"
        expected = "a connection that lasts for an object"
        raise DataError(what, got=f"{kind}: {words}", expected=expected, hint=hint) from error


@dataclass(frozen=True)
class RemoteSlide:
    """The objects of one slide; most slides are a single one."""

    address: Address  # Of the file that is opened
    files: tuple[RemoteFile, ...]
    """All of them, named below the folder of ``address``; none where there is no such object."""

    @property
    def version(self) -> str:
        """Differs where any object changed, and says nothing about names."""
        return _hash([(file.size, file.version) for file in self.files])

    @property
    def key(self) -> str:
        """Name of its folder in the cache."""
        return _hash([str(self.address), [(file.name, file.size, file.version) for file in self.files]])[:32]


def _hash(document: object) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


class RemoteSlides:
    """Finds slides in object storage, where what lies in ``out`` is a result, and fetches them into a folder.

    ``make_folder`` says into which; it is called for the first address.
    """

    def __init__(self, make_folder: Callable[[], Path], out: Address | None = None) -> None:
        self._make_folder = make_folder
        self.out = out
        self._stores: dict[str, ObjectStore] = {}
        self._listed: dict[Address, list[RemoteFile]] = {}

    @cached_property
    def folder(self) -> Path:
        """Where slides are fetched to."""
        return self._make_folder()

    def path(self, slide: RemoteSlide) -> Path:
        """Where the slide is while it is held."""
        return self.folder / slide.key / slide.address.name

    def store(self, address: Address) -> ObjectStore:
        """The storage of an address."""
        if address.scheme not in self._stores:
            self._stores[address.scheme] = ObjectStore(address.scheme)
        return self._stores[address.scheme]

    def files_under(self, folder: Address) -> list[RemoteFile]:
        """Every object below a folder; listed once."""
        if folder not in self._listed:
            self._listed[folder] = self.store(folder).files_under(folder)
        return self._listed[folder]

    def slide(self, address: Address) -> RemoteSlide | None:
        """The slide that an address names itself; None where it is a folder."""
        file = self.store(address).stat(address)
        if file is None:
            return None
        return self.named(address) if has_parts(PurePosixPath(address.name)) else RemoteSlide(address, (file,))

    def named(self, address: Address) -> RemoteSlide:
        """The slide of a table's row, from a listing of its folder; without files where it is not there."""
        try:
            files = self.files_under(address.parent)
        except NoSuchObjectError:
            files = []
        if not any(file.name == address.name for file in files):
            return RemoteSlide(address, ())
        return _with_parts(address.parent, PurePosixPath(address.name), files)

    def below(self, folder: Address, left_out: LeftOut) -> Iterator[tuple[str, RemoteSlide]]:
        """The slides of a folder, each with its name below it, in the order of a folder on a disk."""
        files = [file for file in self.files_under(folder) if not (folder / file.name).lies_in(self.out)]
        records = [folder / file.name for file in files if PurePosixPath(file.name).name == RUN]
        results = [record.parent for record in records if is_run(self.store(record).read(record) or b"")]
        left_out.results.extend(str(each) for each in results)
        files = [file for file in files if not any((folder / file.name).lies_in(each) for each in results)]
        names = [PurePosixPath(file.name) for file in files]
        folders = {parent for name in names for parent in name.parents}
        taken = (name for name in left_out.slides_among(names) if not is_mask(name, folders))
        by_name = dict(zip(names, files, strict=True))
        for name in one_of_each(taken):
            yield str(name), _with_parts(folder, name, files if has_parts(name) else [by_name[name]])

    @contextmanager
    def holding(self, slide: RemoteSlide, stopped: Callable[[], bool] | None = None) -> Iterator[Path]:
        """Have the slide on disk within the block; it is deleted at the end. Waits for another process that has it.

        Where it can be ``stopped``, because nobody may need it, it is refused instead.
        """
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # What killed processes left.
        for path in self.folder.iterdir():
            if path.is_dir():
                with suppress(RefusedError), holding(self._lock(path.name)):
                    shutil.rmtree(path, ignore_errors=True)
        folder = self.folder / slide.key
        with holding(self._lock(slide.key), wait=stopped is None):
            try:
                with writing(folder):
                    self._fetch(slide, folder, stopped or (lambda: False))
                yield self.path(slide)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _lock(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def _fetch(self, slide: RemoteSlide, folder: Path, stopped: Callable[[], bool]) -> None:
        """Fetch all objects, and make sure that they are whole and still those that were listed."""
        if not slide.files:
            raise NoSuchObjectError(f"nothing found at {slide.address}", expected="an object that exists")
        store = self.store(slide.address)
        for file in slide.files:
            address, to = slide.address.parent / file.name, folder / file.name
            to.parent.mkdir(parents=True, exist_ok=True)
            store.fetch(address, to, stopped)
            now, size = store.stat(address), to.stat().st_size
            if now is None or (size, now.size, now.version) != (file.size, file.size, file.version):
                raise DataError(
                    f"{address} changed while it was read, or was not downloaded completely",
                    got=f"{size} bytes",
                    expected=f"{file.size} bytes, the same as when the slides were listed",
                    hint="run the same command again when the files no longer change",
                )


def _with_parts(folder: Address, name: PurePosixPath, files: Sequence[RemoteFile]) -> RemoteSlide:
    """A slide with all its objects, named below the slide's own folder."""
    parts = [file for file in files if belongs_to(name, PurePosixPath(file.name))]
    named = (PurePosixPath(file.name).relative_to(name.parent).as_posix() for file in parts)
    renamed = (RemoteFile(short, file.size, file.version) for short, file in zip(named, parts, strict=True))
    return RemoteSlide(folder / str(name), tuple(sorted(renamed)))
