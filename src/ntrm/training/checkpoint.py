"""Checkpoints: complete files with a checksum, the last two of them, written in the background.

A file is ``MAGIC``, the SHA-256 of the rest, and the rest: a state as ``torch.save`` writes it, only ever read with
``weights_only=True``. The best weights so far are part of it.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import remove_partials, whole_file
from ntrm.models.weights import DAMAGED

MAGIC = b"ntrm-ckpt/2\n"
KEPT = 2  # Checkpoints on disk: the last one, and one more for the case that the last is damaged

_DIGEST = 32
State = dict[str, Any]
"""At least ``step``, the steps done, and ``kept``, the best weights with their scores (None before there are any)."""


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state (tensors and plain values) as a complete file or not at all."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    payload = buffer.getbuffer()
    with whole_file(path) as partial, partial.open("wb") as stream:
        stream.write(MAGIC + hashlib.sha256(payload).digest())
        stream.write(payload)


def read_checkpoint(path: Path) -> State:
    """Read a state on the CPU; a damaged file is refused before anything in it is parsed."""
    try:
        content = path.read_bytes()
        payload = memoryview(content)[len(MAGIC) + _DIGEST :]
        if content[: len(MAGIC) + _DIGEST] != MAGIC + hashlib.sha256(payload).digest():
            raise DataError(f"{path} is damaged", got=f"{len(content):,} bytes with another checksum than when written")
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except DAMAGED as error:  # the checksum may be right, and yet it is something else
        raise DataError(f"cannot read the checkpoint {path}", got=f"{type(error).__name__}: {error}") from error
    if not isinstance(state, dict) or not {"step", "kept"} <= state.keys():
        raise DataError(f"{path} is not a checkpoint of a training", got="other fields than step and kept")
    return state


def on_host(value: Any) -> Any:
    """A copy of a nested state with every tensor on the CPU, which later steps do not change."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: on_host(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(on_host, value))
    return value


class CheckpointFolder:
    """The checkpoints of one run. Writing happens in a thread, so that the device does not wait for the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    def names(self) -> list[Path]:
        """Checkpoints on disk, the newest first."""
        return sorted(self.folder.glob("step-[0-9]*.ckpt"), key=_step_of, reverse=True)

    def write(self, step: int, state: State) -> None:
        """Write the state after ``step`` steps, after the one before it; then remove old files."""

        def write(kept_state: State) -> None:
            write_checkpoint(self.folder / f"step-{step:08d}.ckpt", kept_state)
            # A later one, from before a damaged file made the run go back, is no longer part of this run.
            kept = [path for path in self.names() if _step_of(path) <= step][:KEPT]
            for path in set(self.names()).difference(kept):
                path.unlink(missing_ok=True)

        self.wait()  # a slow disk holds the training up rather than fill the memory
        self._writing = self._thread.submit(write, on_host(state))

    def wait(self) -> None:
        """Wait until the last state is on disk; raises what went wrong."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def close(self) -> None:
        """Wait, and end the thread."""
        with self._thread:
            self.wait()

    def latest(self, say: Callable[[str], None]) -> State | None:
        """The newest state that can be read; None before the first checkpoint."""
        remove_partials(self.folder)
        reasons = []
        for path in self.names():
            try:
                return read_checkpoint(path)
            except DataError as error:
                reasons.append(f"{path.name}: {error.got}")
                say(f"{path.name} cannot be used ({error.got}); using the one before it")
        if reasons:
            raise RefusedError(
                f"no checkpoint in {self.folder} can be used", got="; ".join(reasons), hint="train into a new folder"
            )
        return None


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
