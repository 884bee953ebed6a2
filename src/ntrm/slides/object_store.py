"""Object storage through fsspec: addresses (``s3://bucket/folder``), and the objects there to list, fetch and send.

Credentials and endpoints are the storage library's own business (for S3 ``AWS_…`` variables, ``~/.aws``, the role of a
machine): no address carries them, and nothing here reads, keeps or writes them.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError, choices_error

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
        try:
            import fsspec

            known = sorted({*fsspec.available_protocols()} - {"file", "local"})
            if scheme not in known:
                raise choices_error("unknown kind of address", scheme, known)
            for name in CHATTY:
                logging.getLogger(name).setLevel(logging.WARNING)
            options: dict[str, Any] = {"skip_instance_cache": True}
            if scheme in ("s3", "s3a"):
                retries = {"total_max_attempts": ATTEMPTS, "mode": "standard"}
                settings = {"connect_timeout": 10, "read_timeout": ANSWER_S, "retries": retries}
                options |= {"use_listings_cache": False, "config_kwargs": settings}
            self._fs: Any = fsspec.filesystem(scheme, **options)
        except (ImportError, ValueError) as error:
            hint = (
                'pip install "ntrm[cloud]"'
                if scheme in ("s3", "s3a")
                else f"install the fsspec package for {scheme}://"
            )
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
