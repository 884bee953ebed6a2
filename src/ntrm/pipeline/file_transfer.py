"""Slides and results at an address: fetched before the network works on a slide, sent when its files are finished."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from ntrm.core.errors import NtrmError
from ntrm.core.io import write_text
from ntrm.data.cache import default_folder
from ntrm.pipeline.remote_results import RemoteResults
from ntrm.results.paths import DONE, HIDDEN, SOURCE
from ntrm.results.slide_state import made_otherwise, source_version
from ntrm.slides.addresses import Address
from ntrm.slides.inputs import SlideInput
from ntrm.slides.remote_slides import RemoteSlides
from ntrm.slides.slide_cache import RemoteSlide, SlideCache


@dataclass(frozen=True)
class Storage:
    """Where things lie: plain data, also for workers on other machines."""

    cache: Path | None = None
    """Folder on this machine; by default one in that of ``NTRM_CACHE``."""
    out: Address | None = None
    """Of the results; None where they are in a folder."""

    @property
    def folder(self) -> Path:
        """The cache; only an address needs one."""
        return (default_folder() / "remote" if self.cache is None else self.cache).absolute()

    def shared(self) -> Storage:
        """The same for workers on other machines: slides have one path everywhere."""
        with suppress(RuntimeError):  # a user without a home, who then has no slides from addresses either
            return replace(self, cache=self.folder)
        return self

    def slides(self) -> SlideCache:
        """The slides that were fetched."""
        return SlideCache(self.folder / "slides", 50 * 10**9)

    def inputs(self) -> RemoteSlides:
        """Finds slides."""
        return RemoteSlides(self.slides, self.out)

    def work_folder(self) -> Path:
        """Folder of the results that are not at their address yet."""
        return self.folder / "results" / hashlib.sha256(str(self.out).encode()).hexdigest()[:32]

    def results(self) -> RemoteResults | None:
        """The results at their address."""
        return None if self.out is None else RemoteResults(self.out, self.work_folder())


class FileTransfer:
    """Fetches slides and sends results; does nothing for what is in a folder of this machine."""

    def __init__(self, storage: Storage | None = None) -> None:
        self._storage = storage or Storage()
        self.results = self._storage.results()
        self._next: dict[Path, SlideInput] = {}
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="ntrm-fetch")
        self._stopped = threading.Event()

    @cached_property
    def _cache(self) -> SlideCache:
        return self._storage.slides()

    def expect(self, slides: Sequence[SlideInput], slide_ids: Sequence[str]) -> None:
        """Say which slides will be asked for, in which order: each is fetched while the one before is worked on."""
        known = {} if self.results is None else self.results.outcomes()
        left = [slide for slide, name in zip(slides, slide_ids, strict=True) if DONE not in known.get(name, ())]
        self._next = {slide.path: after for slide, after in pairwise(left)}

    def bring(self, slide_id: str) -> None:
        """Have in the slide's folder what the address knows of a finished slide. The caller holds the slide's lock."""
        if self.results is not None:
            self.results.bring(slide_id)

    @contextmanager
    def at_hand(self, slide: SlideInput) -> Iterator[None]:
        """Have the slide's file where ``slide.path`` says, and begin to fetch the next one."""
        with nullcontext() if slide.remote is None else self._cache.holding(slide.remote):
            following = self._next.get(slide.path)
            if following is not None and following.remote is not None:
                self._ahead.submit(self._fetch, following.remote)
            yield

    def _fetch(self, slide: RemoteSlide) -> None:
        # Whatever is wrong, or no room yet: it will be told when the slide is needed.
        with suppress(NtrmError, OSError), self._cache.holding(slide, self._stopped.is_set):
            pass

    def deliver(self, slide_id: str) -> None:
        """Send the files of a finished slide. The caller holds the slide's lock."""
        if self.results is not None:
            self.results.deliver(slide_id)

    def deliver_failure(self, slide_id: str) -> None:
        """Send why a slide failed; where even that fails, the command still tells it."""
        if self.results is not None:
            with suppress(NtrmError, OSError):
                self.results.deliver_failure(slide_id)

    def close(self) -> None:
        """Stop fetching ahead."""
        self._stopped.set()
        self._ahead.shutdown(wait=True, cancel_futures=True)


def remember_objects(folder: Path, slide: SlideInput) -> None:
    """Keep which version of its objects a finished slide was."""
    if slide.remote is not None:
        write_text(folder / HIDDEN / SOURCE, f"{slide.remote.version}\n")


def check_objects(folder: Path, slide: SlideInput) -> None:
    """A finished slide never stands for objects that were replaced since."""
    if slide.remote is not None and slide.remote.files and source_version(folder) not in (None, slide.remote.version):
        raise made_otherwise("another file", folder)
