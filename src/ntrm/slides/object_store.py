"""Objects of one storage service, through fsspec: list, fetch, send. The storage library tries again what may pass.

Credentials and endpoints are the storage library's own business (for S3 ``AWS_…`` variables, ``~/.aws``, the role of a
machine): nothing here reads, keeps or writes them.
"""

from __future__ import annotations

import errno
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, NtrmError, UsageError, choices_error
from ntrm.slides.addresses import Address

_URL = re.compile(r"(https?://[^/\s\"']+)[^\s\"']*")

ATTEMPTS = 3
"""Of each request of S3, with growing pauses; the library above makes five of each."""
ANSWER_S = 20
"""How long a server may take to send the next bytes."""
VERSIONS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "created")
"""What services call the mark that changes with an object's content."""
WITHOUT_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "ProfileNotFound", "TokenRetrievalError")
CHATTY = ("botocore", "aiobotocore", "boto3", "s3fs", "fsspec", "aiohttp", "urllib3", "asyncio")
"""Loggers that would write signed requests, tokens included, at the level that ``-v`` sets."""


class NoSuchObjectError(UsageError):
    """There is nothing at the address."""


class StoppedError(NtrmError):
    """A transfer was given up because nobody needs it any more."""


@dataclass(frozen=True, order=True)
class RemoteFile:
    """An object, by its name below a folder."""

    name: str
    size: int
    version: str
    """Its ETag, or what the service has in its place."""


class ObjectStore:
    """The objects of one scheme."""

    def __init__(self, scheme: str) -> None:
        self._fs = _file_system(scheme)

    def stat(self, address: Address) -> RemoteFile | None:
        """The object at an address; None where it is a folder of objects."""
        self._fs.invalidate_cache()
        with _explaining(address):
            info = self._fs.info(address.path)
            return None if info["type"] == "directory" else _remote_file(address.name, info)

    def files_under(self, address: Address) -> list[RemoteFile]:
        """Every object below a folder, sorted. Names that could lead out of a folder are left out."""
        self._fs.invalidate_cache()
        with _explaining(address):
            found = self._fs.find(address.path, detail=True)
        start = f"{address.path}/"
        names = {path.lstrip("/").removeprefix(start): info for path, info in found.items()}
        return sorted(_remote_file(name, info) for name, info in names.items() if _is_plain(name))

    def names_in(self, address: Address, *, folders: bool) -> list[str]:
        """Names of the files, or of the folders, directly below a folder."""
        self._fs.invalidate_cache()
        kind, found = "directory" if folders else "file", []
        with suppress(NoSuchObjectError), _explaining(address):
            found = self._fs.ls(address.path, detail=True)
        names = (info["name"].rstrip("/").rpartition("/")[2] for info in found if info["type"] == kind)
        return sorted(name for name in names if name)

    def read(self, address: Address) -> bytes | None:
        """The bytes of a small object; None where there is none."""
        with suppress(NoSuchObjectError), _explaining(address):
            return bytes(self._fs.cat_file(address.path))
        return None

    def fetch(self, address: Address, to: Path, stopped: Callable[[], bool] = lambda: False) -> None:
        """Write an object to a file."""
        with _explaining(address):
            self._fs.get_file(address.path, str(to), callback=_stopping(stopped))

    def send(self, file: Path, address: Address) -> None:
        """Write a file to an object."""
        with _explaining(address):
            self._fs.put_file(str(file), address.path)

    def write(self, content: bytes, address: Address) -> None:
        """Write bytes to an object."""
        with _explaining(address):
            self._fs.pipe_file(address.path, content)

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


def _file_system(scheme: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        raise _missing(scheme, error) from error
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
    try:
        return fsspec.filesystem(scheme, **options)
    except (ImportError, ValueError) as error:
        raise _missing(scheme, error) from error


def _missing(scheme: str, error: Exception) -> UsageError:
    hint = 'pip install "ntrm[cloud]"' if scheme in ("s3", "s3a") else f"install the fsspec package for {scheme}://"
    return UsageError(f"{scheme}:// needs an extra", got=error, hint=hint)


def _failures() -> tuple[type[Exception], ...]:
    """What storage libraries raise; theirs are known only where they were imported."""
    # A look-up fails in them where an answer lacks what every service sends.
    kinds: list[type[Exception]] = [OSError, EOFError, ValueError, LookupError]
    for module, names in {"botocore.exceptions": ("BotoCoreError", "ClientError"), "aiohttp": ("ClientError",)}.items():
        loaded = sys.modules.get(module)
        kinds += [getattr(loaded, name) for name in names if loaded is not None]
    return tuple(kinds)


@contextmanager
def _explaining(address: Address) -> Iterator[None]:
    """Turn what a storage library raises into our own error."""
    try:
        yield
    except FileExistsError:
        raise
    except _failures() as error:
        raise _explained(error, address) from error


def _explained(error: Exception, address: Address) -> NtrmError:
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return NoSuchObjectError(
            f"nothing found at {address}",
            got=_words(error),
            expected="a bucket, and a folder or an object in it, that exist",
            hint="check the address, and the endpoint and region that the environment names",
        )
    if isinstance(error, PermissionError):
        return DataError(
            f"access to {address} is denied",
            got=_words(error),
            expected="credentials that may list and read the slides, and list, read, write and delete the results",
            hint="check which credentials the environment gives (for S3: aws sts get-caller-identity)",
        )
    if type(error).__name__ in WITHOUT_CREDENTIALS:
        hint = "set them for the storage library, for S3 in the environment (AWS_…) or with `aws configure`"
        return UsageError(f"no credentials for {address}", got=type(error).__name__, hint=hint)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        hint = "free some space, or choose another --cache"
        return DataError("the disk of the cache is full", got=error.strerror, hint=hint)
    if isinstance(error, ValueError):
        return UsageError(f"the storage library refuses {address}", got=_words(error), hint="check the address")
    return DataError(
        f"the storage of {address} does not answer, or not as such a service does",
        got=f"{type(error).__name__}: {_words(error)}",
        expected="a connection that lasts for an object",
        hint="check the network and the endpoint; the same command then continues",
    )


def _words(error: Exception) -> str:
    """One short line of an error; of the addresses in it only the host, since the rest may name a patient."""
    line = " ".join(str(error).split()) or type(error).__name__
    return _URL.sub(r"\1", line)[:200]


def _is_plain(name: str) -> bool:
    """Whether a name stays below its folder: a key may be any text, such as ``../x``."""
    return "\0" not in name and "\\" not in name and all(part not in ("", ".", "..") for part in name.split("/"))


def _remote_file(name: str, info: Mapping[str, Any]) -> RemoteFile:
    mark = next((info[key] for key in VERSIONS if info.get(key)), "")
    # A listing may give a time as a number where a look at the single object gives a date.
    version = str(mark.timestamp() if isinstance(mark, datetime) else mark)
    return RemoteFile(name, int(info.get("size") or 0), version.strip('"'))


def _stopping(stopped: Callable[[], bool]) -> Any:
    """A callback that ends a transfer."""
    from fsspec.callbacks import Callback

    class Stopping(Callback):  # type: ignore[misc]
        def call(self, hook_name: str | None = None, **kwargs: Any) -> None:
            if stopped():
                raise StoppedError("the transfer was stopped")

    return Stopping()
