"""Blend weighted windows into finished blocks of a section, holding no more than can still change.

Windows come row by row and from left to right. Columns that no later window of the row can touch are finished: their
upper rows, down to where the next row of windows begins, are returned as blocks, and the others are carried over. So
what is held is a strip around the current window and, over the width, the rows that two rows of windows share.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ntrm.core.errors import UsageError
from ntrm.data.tiles import Window

BLOCK = 4096
"""Columns of a block: enough to keep a device busy, few enough to hold many classes of them."""


class Block(NamedTuple):
    """A finished rectangle of a section."""

    top: int
    left: int
    height: int
    width: int
    values: Tensor | None
    """(C, height, width) on the windows' device, 0 where no window was; None if there was none at all."""


class Blender:
    """Sums weighted windows and returns blocks once no later window can touch them.

    The windows have C ``channels`` and ``weights`` (S, S), and lie on ``device``. ``height`` and ``width`` are the
    section's. Windows begin at the rows ``tops``, and each of these must get a window.
    """

    def __init__(
        self,
        channels: int,
        height: int,
        width: int,
        weights: Tensor,
        tops: Sequence[int],
        device: torch.device,
        *,
        block: int = BLOCK,
    ) -> None:
        self.height, self.width = height, width
        self.top = 0
        """First row that is not finished."""
        self._weights = weights.to(device)
        side = len(weights)
        self._tall = min(side, height)
        self._block = max(block, side)
        self._following = dict(pairwise([*sorted(set(tops)), height]))
        self.row: int | None = None
        """Top of the current row of windows; None between two rows."""
        self._at = 0
        # The current block and as much of the next as its windows can reach into; the last channel is the divisor.
        self._strip = torch.zeros(channels + 1, self._tall, min(self._block + side, width), device=device)
        self._weighted = torch.empty(channels, side, side, device=device)
        self._clean = True
        self.together = False
        """Whether windows are added together on a processor, too, where one by one is quicker."""
        self._carried: dict[int, Tensor] = {}
        self._reach: dict[int, int] = {}
        """The row to which the windows of a block reach."""

    def add(self, window: Window, values: Tensor) -> Iterator[Block]:
        """Blend in ``values`` (C, S, S) of a window; yields the blocks that are finished by this."""
        yield from self._go_to(window)
        inside = (..., slice(window.height), slice(window.width))
        left = window.left - self._at * self._block
        target = self._strip[:, : window.height, left : left + window.width]
        # Not in one step with the sum: a fused one may round differently elsewhere in the strip.
        target[:-1] += torch.mul(values[inside], self._weights[inside], out=self._weighted[inside])
        target[-1] += self._weights[inside]
        self._reached(window)

    def add_all(self, windows: Sequence[Window], values: Tensor) -> Iterator[Block]:
        """As ``add`` for windows of one row in their order, ``values`` (B, C, S, S), with the same sums.

        A device that waits for orders gets few of them: windows at equal distances are added together.
        """
        alone = values.device.type == "cpu" and not self.together
        steps = [range(k, k + 1) for k in range(len(windows))] if alone else self._at_equal_distances(windows)
        for step in steps:
            if len(step) == 1:
                yield from self.add(windows[step.start], values[step.start])
            else:
                yield from self._go_to(windows[step.start])
                self._add_together(windows[step.start : step.stop], values[step.start : step.stop])

    def _at_equal_distances(self, windows: Sequence[Window]) -> Iterator[range]:
        """Windows that begin in one block, each as far from the one before, and none over more than one other."""
        side, start = len(self._weights), 0
        while start < len(windows):
            first, stop = windows[start], start + 1
            away = windows[stop].left - first.left if stop < len(windows) else 0
            while (
                side <= 2 * away <= 2 * side
                and stop < len(windows)
                and windows[stop].left - windows[stop - 1].left == away
                and windows[stop].left // self._block == first.left // self._block
                and (windows[stop].height, windows[stop].width) == (first.height, side)
            ):
                stop += 1
            yield range(start, stop)
            start = stop

    def _add_together(self, windows: Sequence[Window], values: Tensor) -> None:
        first, last, count = windows[0], windows[-1], len(windows)
        away, high, side = windows[1].left - first.left, first.height, len(self._weights)
        shared, left = side - away, first.left - self._at * self._block
        weights = self._weights[:high]
        weighted = (values[:, :, :high] * weights).permute(1, 2, 0, 3)  # (C, high, B, S)
        weights = weights[:, None].expand(-1, count, -1)  # (high, B, S)
        # What a window shares with the one before comes after all of that: each sum has the order of the windows.
        for begin, columns in ((left + shared, slice(shared, side)), (left, slice(0, shared))):
            target = self._strip[:, :high, begin : begin + count * away].view(-1, high, count, away)
            target = target[..., : columns.stop - columns.start]  # (C + 1, high, B, columns)
            target[:-1] += weighted[..., columns]
            target[-1] += weights[..., columns]
        for window in (first, last):
            self._reached(window)

    def _go_to(self, window: Window) -> Iterator[Block]:
        """Move the strip to where the window lies."""
        if window.top != self.row:
            self._check_follows(window)
            yield from self.finish_row()
            yield from self._empty_rows(window.top)
            self.row, self._at = window.top, 0
            self._load(0)
        if window.left < self._at * self._block:
            raise UsageError("windows must come from left to right", got=window, expected="a window further right")
        while window.left >= (self._at + 1) * self._block:
            yield self._finish_block(window.top)

    def _reached(self, window: Window) -> None:
        self._clean = False
        for block in range(window.left // self._block, (window.left + window.width - 1) // self._block + 1):
            self._reach[block] = window.top + window.height

    def finish_row(self) -> Iterator[Block]:
        """The remaining blocks of the current row of windows; none between two rows."""
        if self.row is None:
            return
        row, stop = self.row, self._following[self.row]
        while self._at * self._block < self.width:
            yield self._finish_block(row)
        self.top, self.row = min(stop, row + self._tall), None
        yield from self._empty_rows(stop)

    def finish(self) -> Iterator[Block]:
        """The remaining blocks of the section."""
        yield from self.finish_row()
        yield from self._empty_rows(self.height)

    def _check_follows(self, window: Window) -> None:
        first = self.top if self.row is None else self._following[self.row]
        # What was carried over belongs to the next row of windows and to no later one.
        late = window.top > first and bool(self._carried)
        if window.top < first or window.top not in self._following or late:
            raise UsageError("windows must come row by row", got=window, expected=f"a window from row {first} on")

    def _finish_block(self, row: int) -> Block:
        """Return the current block, carry over its unfinished rows, and go on to the next."""
        left = self._at * self._block
        width = min(self._block, self.width - left)
        rows = min(self._following[row] - row, self._tall)
        reach = self._reach.pop(self._at, 0)
        self._carried.pop(self._at, None)
        values = None
        if reach > row:
            divisor = self._strip[-1, :rows, :width]
            # Without any window both are 0, and 0 is what stays.
            values = self._strip[:-1, :rows, :width] / torch.where(divisor > 0, divisor, 1)
        if reach > row + rows:
            self._carried[self._at] = self._strip[:, rows : reach - row, :width].clone()
            self._reach[self._at] = reach
        self._at += 1
        self._shift()
        return Block(row, left, rows, width, values)

    def _shift(self) -> None:
        """Move the strip on by a block."""
        kept = max(self._strip.shape[2] - self._block, 0)
        if not self._clean:
            # A copy, since source and target may overlap.
            last = self._strip[:, :, self._block :].clone()
            self._strip.zero_()
            self._strip[:, :, :kept] = last
            self._clean = self._at not in self._reach
        self._load(kept)

    def _load(self, start: int) -> None:
        """Put what was carried over into the strip, from column ``start`` of it on."""
        if start == 0:
            if not self._clean:
                self._strip.zero_()
            self._clean = True
        for number, left in ((self._at, 0), (self._at + 1, self._block)):
            carried = self._carried.get(number)
            skip = max(start - left, 0)
            if carried is None or skip >= carried.shape[2]:
                continue
            values = carried[:, :, skip : self._strip.shape[2] - left]
            begin = left + skip
            self._strip[:, : values.shape[1], begin : begin + values.shape[2]] = values
            self._clean = False

    def _empty_rows(self, stop: int) -> Iterator[Block]:
        """Rows up to ``stop`` that no window has touched, a window's height at a time."""
        while self.top < stop:
            rows = min(stop - self.top, len(self._weights))
            yield Block(self.top, 0, rows, self.width, None)
            self.top += rows
