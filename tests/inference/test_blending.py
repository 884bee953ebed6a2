import numpy as np
import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.inference.blending import Blender
from ntrm.inference.sliding_window import Stitching

CPU = torch.device("cpu")


def literal(windows, values, weights, channels, height, width):
    """All sums over the whole section, window after window."""
    total, divisor = torch.zeros(channels, height, width), torch.zeros(height, width)
    for window, value in zip(windows, values, strict=True):
        part = weights[: window.height, : window.width]
        total[:, *window.slices] += value[:, : window.height, : window.width] * part
        divisor[window.slices] += part
    return total / torch.where(divisor > 0, divisor, 1)


def some_of(random, windows, share):
    return [window for window in windows if random.random() < share] or list(windows[:1])


def blender_for(windows, weights, channels, height, width, block=64):
    tops = [window.top for window in windows]
    return Blender(channels, height, width, weights, tops, CPU, block=block)


def put_together(blocks, channels, height, width):
    """The blocks on a canvas; every pixel once, in rows from the top, in a row from the left."""
    canvas, seen = torch.zeros(channels, height, width), np.zeros((height, width), int)
    last = (-1, -1)
    for block in blocks:
        assert (block.top, block.left) > last
        last = (block.top, block.left)
        place = slice(block.top, block.top + block.height), slice(block.left, block.left + block.width)
        seen[place] += 1
        if block.values is not None:
            assert block.values.shape == (channels, block.height, block.width)
            canvas[:, *place] = block.values
    assert (seen == 1).all()
    return canvas


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
def test_blocks_are_the_sums_over_the_whole_section_to_the_last_bit(random, share):
    for _ in range(15):
        height, width = (int(n) for n in random.integers(1, 400, 2))
        stitching = Stitching(64, int(random.integers(0, 64)) if height * width < 40_000 else 16)
        windows, weights = some_of(random, stitching.windows(height, width), share), stitching.weights()
        values = torch.from_numpy(random.random((len(windows), 2, 64, 64), dtype=np.float32))
        blender = blender_for(windows, weights, 2, height, width, block=int(random.integers(64, 200)))
        blocks = [block for pair in zip(windows, values, strict=True) for block in blender.add(*pair)]
        blocks += blender.finish()
        found = put_together(blocks, 2, height, width)
        assert torch.equal(found, literal(windows, values, weights, 2, height, width))


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_windows_added_together_have_the_sums_of_one_after_the_other_to_the_last_bit(random, share):
    for _ in range(15):
        height, width = (int(n) for n in random.integers(1, 700, 2))
        stitching = Stitching(64, int(random.integers(0, 40)))
        windows, weights = some_of(random, stitching.windows(height, width), share), stitching.weights()
        values = torch.from_numpy(random.random((len(windows), 2, 64, 64), dtype=np.float32))
        blender = blender_for(windows, weights, 2, height, width, block=int(random.integers(64, 300)))
        blender.together = True
        tops, blocks = np.array([window.top for window in windows]), []
        for top in np.unique(tops):
            index = np.flatnonzero(tops == top)
            # A row of windows may come in two batches.
            for part in np.array_split(index, 2):
                blocks += blender.add_all([windows[k] for k in part], values[torch.from_numpy(part)])
        found = put_together([*blocks, *blender.finish()], 2, height, width)
        assert torch.equal(found, literal(windows, values, weights, 2, height, width))


def test_what_no_window_has_touched_costs_no_values(random):
    windows = [window for window in Stitching(64, 16).windows(600, 600) if window.top > 200 and 100 < window.left < 200]
    blender = blender_for(windows, Stitching(64, 16).weights(), 1, 600, 600)
    blocks = [block for window in windows for block in blender.add(window, torch.ones(1, 64, 64))] + [*blender.finish()]
    canvas = put_together(blocks, 1, 600, 600)
    for block in blocks:
        covered = [
            window.top < block.top + block.height
            and block.top < window.top + 64
            and window.left < block.left + block.width
            and block.left < window.left + 64
            for window in windows
        ]
        assert (block.values is not None) == any(covered)
    assert canvas.sum() == pytest.approx(int((canvas != 0).sum()), rel=1e-5)


def test_only_the_shared_rows_are_held_over_the_width():
    height, width, stitching = 300, 10_000, Stitching(64, 16)
    windows = [window for window in stitching.windows(height, width) if window.top < 200]
    blender = blender_for(windows, stitching.weights(), 3, height, width, block=1024)
    most = 0
    for window in windows:
        for _ in blender.add(window, torch.ones(3, 64, 64)):
            pass
        if window.left == 0 and window.top:
            held = sum(tensor.numel() for tensor in blender._carried.values())
            most = max(most, held + blender._strip.numel())
    assert 0 < most <= 4 * (17 * width + 64 * (1024 + 64))


def test_windows_out_of_order_are_refused():
    stitching = Stitching(64, 16)
    windows = stitching.windows(300, 400)
    tops = sorted({window.top for window in windows})
    by_row = {top: [window for window in windows if window.top == top] for top in tops}
    value = torch.zeros(1, 64, 64)

    def fresh():
        return blender_for(windows, stitching.weights(), 1, 300, 400)

    blender = fresh()
    list(blender.add(by_row[tops[1]][0], value))
    with pytest.raises(UsageError, match="row by row"):
        list(blender.add(by_row[tops[0]][0], value))
    blender = fresh()
    list(blender.add(by_row[tops[0]][-1], value))
    with pytest.raises(UsageError, match="left to right"):
        list(blender.add(by_row[tops[0]][0], value))
    list(blender.finish_row())
    with pytest.raises(UsageError, match="row by row"):
        list(blender.add(by_row[tops[2]][0], value))
