"""Settings of a service and of its workers, checked when made, and the names of the files it keeps."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ntrm.core.errors import RefusedError, UsageError

SERVICE_FOLDER = ".service"  # Folder in the results that belongs to the service. In it:
DATABASE, AUDIT, LOG, SERVER_LOCK = "service.sqlite", "audit.jsonl", "worker.log", "server.lock"
UPLOADS, INCOMING, TRASH = "uploads", "incoming", "trash"
LEAST_TOKEN = 16  # Characters of a token that somebody chose; shorter ones can be guessed


@dataclass(frozen=True)
class ServiceLimits:
    """What one user, one slide or one request may cost."""

    upload_bytes: int = 20 * 2**30
    pixels: int = 2**38  # Of a slide's full resolution
    slide_seconds: int = 12 * 3600  # For the segmentation of one slide
    queue: int = 100  # Slides that wait
    uploads: int = 20  # Uploads at a time
    reserve_bytes: int = 2 * 2**30  # Space that uploads leave free on the disk
    idle_seconds: int = 60  # A body of which nothing comes for so long is given up
    open_seconds: int = 60  # For opening a file, and for reading one region of it
    tile_seconds: int = 20
    tile_cache_bytes: int = 256 * 2**20
    waiting_tiles: int = 1000  # Tiles in the making; more are refused
    open_slides: int = 8  # Slides whose reading processes are kept
    read_memory_mb: int = 1024  # Of one reading process


@dataclass(frozen=True)
class ServiceSettings:
    """Where results lie, which network, who may come in, and the limits."""

    out: Path = Path("ntrm-results")
    model: str = "bundled"
    device: str = "auto"
    batch: int = 16
    roots: tuple[Path, ...] = ()  # Folders whose slides may be named by path
    host: str = "127.0.0.1"
    port: int = 8765
    public_url: str | None = None  # How a proxy in front calls the service, such as https://slides.example.org
    token: str | None = field(default=None, repr=False)  # For programs; a random one where None
    workers: int | None = None  # Processes that segment: one per GPU, or one, where None; 0 only shows what is there
    limits: ServiceLimits = field(default_factory=ServiceLimits)

    def __post_init__(self) -> None:
        if self.token is not None and (len(self.token) < LEAST_TOKEN or not self.token.isascii()):
            raise RefusedError(
                "the token is too easy to guess",
                got=f"{len(self.token)} characters",
                expected=f"at least {LEAST_TOKEN} ASCII characters",
                hint="use a random one: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            )
        for root in self.roots:
            if not root.is_dir():
                raise UsageError("an allowed root is no folder", got=root, expected="a folder that exists")
        address = r"https?://([^\s/?#@:\[\]]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?/?"
        if self.public_url is not None and re.fullmatch(address, self.public_url, re.IGNORECASE) is None:
            expected = "https://name or https://name:port"
            raise UsageError("impossible public address", got=self.public_url, expected=expected)

    @property
    def hidden(self) -> Path:
        """The service's own folder."""
        return self.out / SERVICE_FOLDER

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a name or an address stands for this machine only.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = address_in(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def address_in(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, if it is one."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]"))
    return None


def upload_path(hidden: Path, key: str) -> Path:
    """Where the upload of the slide with this id lies; ``hidden`` is the service's own folder."""
    return hidden / UPLOADS / key
