"""Checkpoints: complete files with a checksum, the last two of them, written in the background.

A file is ``MAGIC``, the SHA-256 of the rest, and the rest: a state as ``torch.save`` writes it, only ever read with
``weights_only=True``. The best weights so far are separate safetensors files, each with its own name, so that every
checkpoint on disk finds the weights that were the best when it was written.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import remove_partials, sha256_of, whole_file, write_bytes
from ntrm.models.weights import DAMAGED, read_tensors

MAGIC = b"ntrm-ckpt/1\n"
KEPT = 2
"""Checkpoints on disk: the last one, and one more for the case that the last is damaged."""

_DIGEST = 32
State = dict[str, Any]
"""At least ``step``, the steps done, and ``kept``, the file of the best weights (None before there is one)."""


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
    except OSError as error:
        raise DataError(f"cannot read {path}", got=error) from error
    head, payload = content[: len(MAGIC) + _DIGEST], memoryview(content)[len(MAGIC) + _DIGEST :]
    if head[: len(MAGIC)] != MAGIC:
        raise DataError(f"{path} is not a checkpoint", got=f"{len(content)} bytes that start otherwise")
    if head[len(MAGIC) :] != hashlib.sha256(payload).digest():
        raise DataError(f"{path} is damaged", got="another checksum than when it was written")
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except DAMAGED as error:  # the checksum is right, and yet it is something else
        raise DataError(f"{path} is not a checkpoint", got=f"{type(error).__name__} when read as tensors") from error
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
        self._pending: list[Future[None]] = []
        self._kept_names: list[str] = []

    def names(self) -> list[Path]:
        """Checkpoints on disk, the newest first."""
        paths = [path for path in self.folder.glob("step-*.ckpt") if re.fullmatch(r"step-\d+", path.stem)]
        return sorted(paths, key=_step_of, reverse=True)

    def keep(self, step: int, weights: Mapping[str, Tensor]) -> dict[str, str]:
        """Write the best weights so far; returns what a checkpoint needs to find them again."""
        path = self.folder / f"kept-{step:08d}.safetensors"
        content = save({key: value.contiguous() for key, value in weights.items()})
        self._start(lambda: write_bytes(path, content))
        return {"file": path.name, "sha256": hashlib.sha256(content).hexdigest()}

    def write(self, step: int, state: State) -> None:
        """Write the state after ``step`` steps, after everything before it; then remove old files."""
        state = on_host(state)
        self._start(lambda: self._write(step, state))

    def wait(self) -> None:
        """Wait until all files are on disk; raises what went wrong."""
        pending, self._pending = self._pending, []
        for future in pending:
            future.result()

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown()

    def _start(self, work: Callable[[], None]) -> None:
        for future in [future for future in self._pending if future.done()]:
            self._pending.remove(future)
            future.result()
        self._pending.append(self._thread.submit(work))

    def _write(self, step: int, state: State) -> None:
        write_checkpoint(self.folder / f"step-{step:08d}.ckpt", state)
        # A later one, from before a damaged file made the run go back, is no longer part of this run.
        current = [path for path in self.names() if _step_of(path) <= step][:KEPT]
        old = [path for path in self.names() if path not in current]
        self._kept_names = [*self._kept_names, "" if state["kept"] is None else state["kept"]["file"]][-KEPT:]
        if len(self._kept_names) == KEPT:  # sooner, a checkpoint of an earlier session may still need its own
            old += [path for path in self.folder.glob("kept-*.safetensors") if path.name not in self._kept_names]
        for path in old:
            path.unlink(missing_ok=True)

    def kept_weights(self, kept: Mapping[str, Any] | None) -> dict[str, Tensor] | None:
        """The best weights so far, as ``kept`` of a checkpoint names them; None before there are any."""
        if kept is None:
            return None
        path = self.folder / kept["file"]
        if not path.is_file() or sha256_of(path) != kept["sha256"]:
            raise DataError(f"{path} is missing or damaged", got="not the weights that the checkpoint names")
        return read_tensors(path)

    def latest(self, say: Callable[[str], None]) -> State | None:
        """The newest state that can be read together with its best weights; None before the first checkpoint."""
        remove_partials(self.folder)
        reasons = []
        for path in self.names():
            try:
                state = read_checkpoint(path)
                self.kept_weights(state["kept"])
            except DataError as error:
                reasons.append(f"{path.name}: {error.got}")
                say(f"{path.name} cannot be used ({error.got}); using the one before it")
                continue
            return state
        if reasons:
            raise RefusedError(
                f"no checkpoint in {self.folder} can be used", got="; ".join(reasons), hint="train into a new folder"
            )
        return None


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
