"""SIGTERM and Ctrl-C: the training stops after the step it is in, where all processes agree, and can go on later."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist

from ntrm.core.errors import NtrmError
from ntrm.training.ddp import world_size

SIGNALS = (signal.SIGINT, signal.SIGTERM)

AGREE_EVERY = 5
"""Steps after which several processes ask each other: seldom enough to cost nothing."""


class InterruptedTrainingError(NtrmError):
    """A training was asked to stop and did; nothing is wrong."""

    exit_code = 130


class Interruption:
    """Remembers that a signal came. A second signal stops at once, and the last checkpoint stands."""

    def __init__(self) -> None:
        self.name = ""
        """Name of the signal that came; empty before."""
        self._before: dict[signal.Signals, Any] = {}
        self._group: dist.ProcessGroup | None = None

    def __enter__(self) -> Self:
        # Signals come to the main thread alone; a training in another one is stopped by whoever runs it.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in self._before:
            signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def connect(self) -> None:
        """Make several processes able to agree: through the host, so that no device is waited for."""
        if world_size() > 1:
            self._group = dist.new_group(backend="gloo")

    def agreed(self, step: int) -> bool:
        """Whether to stop after ``step`` steps: the same answer in every process."""
        if world_size() == 1:
            return bool(self.name)
        if step % AGREE_EVERY:
            return False
        asked = torch.tensor(int(bool(self.name)))
        dist.all_reduce(asked, op=dist.ReduceOp.MAX, group=self._group)
        return bool(asked)

    def error(self, saved: int) -> InterruptedTrainingError:
        """What to raise, where a checkpoint of ``saved`` steps is on disk."""
        what = f"stopped by {self.name or 'another process'}"
        where = f"a checkpoint after step {saved} is written" if saved else "nothing was written yet"
        return InterruptedTrainingError(f"{what}; {where}", hint="the same command with --resume goes on")

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.name:
            raise InterruptedTrainingError(
                f"stopped at once by a second {signal.Signals(number).name}; the last checkpoint stands",
                hint="the same command with --resume goes on",
            )
        self.name = signal.Signals(number).name
