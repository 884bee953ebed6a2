"""Addresses of slides and results in object storage: ``s3://bucket/folder``. They never carry credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ntrm.core.errors import RefusedError, UsageError

EXAMPLE = "s3://bucket/folder"
WITH_NAME = ("abfs", "abfss", "sftp", "ssh", "webhdfs", "hdfs")
"""Schemes whose address names a container or a user before an ``@``."""

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
        if chain or "::" in path:
            raise UsageError("an address of addresses", got=text, expected=EXAMPLE)
        if scheme in ("file", "local"):
            raise UsageError("an address of this machine", got=text, expected="a path", hint=f"give /{path}")
        if not path or re.search(r"[\x00-\x1f\x7f]", path) or any(part in ("", ".", "..") for part in path.split("/")):
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
    """Whether a text is meant as an address, good or bad; a path is not, but an address that became one is refused.

    >>> is_address("s3://bucket/a.svs"), is_address("slides/a.svs")
    (True, False)
    """
    if isinstance(text, Path):
        if _FLATTENED.match(str(text)) and not text.exists():
            raise UsageError("an address cannot be a path", got=text, expected=f'a text such as "{EXAMPLE}"')
        return False
    return _ADDRESS.fullmatch(text) is not None
