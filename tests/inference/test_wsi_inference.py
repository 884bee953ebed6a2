import os
import signal
from contextlib import closing

import numpy as np
import pytest
import torch
from tests.inference.test_sliding_window import Constant, Position
from tests.wsi import making

from ntrm.core.errors import DataError, NtrmError
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window, cut
from ntrm.inference import maps as maps_module
from ntrm.inference import wsi_inference
from ntrm.inference.maps import Maps
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Stitching, stitch
from ntrm.inference.wsi_inference import predict_maps, read_tile, reading_ahead, reading_blocks
from ntrm.wsi import grid as grid_module
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.isolated import ReadingGroup, ReadingProcess, open_isolated

STITCHING = Stitching(64, 16)


class ArrayGrid:
    """An image in memory in place of a slide; ``fail_at`` makes that read fail."""

    at_once = 1

    def __init__(self, image, fail_at=None):
        self.image, self.reads, self.fail_at = image, [], fail_at
        self.height, self.width = image.shape[:2]

    def read(self, top, left, height, width):
        self.reads.append((top, left))
        if len(self.reads) == self.fail_at:
            raise DataError("cannot read the slide")
        return self.image[top : top + height, left : left + width]


@pytest.fixture
def image(random):
    return random.integers(0, 256, (170, 130, 3), dtype=np.uint8)


@pytest.fixture
def predictor():
    return Predictor(Position(coarse=True), device="cpu", batch=2)


def run(folder, predictor, grid, windows=None, *, coarse=False, **more):
    windows = STITCHING.windows(grid.height, grid.width) if windows is None else windows
    maps = Maps.new(grid.height, grid.width, folder, coarse=coarse)
    rows = [*predict_maps(predictor, grid, maps, stitching=STITCHING, windows=windows, **more)]
    assert rows == [*range(grid.height)]
    return [each for each in (maps.labels, maps.confidence, maps.coarse) if each is not None]


@pytest.mark.parametrize("in_memory", [1 << 29, 0])
def test_maps_are_those_of_the_section_in_memory(tmp_path, predictor, image, monkeypatch, in_memory):
    monkeypatch.setattr(maps_module, "IN_MEMORY", in_memory)
    labels, confidence = run(tmp_path, predictor, ArrayGrid(image))
    whole = stitch(predictor, image, stitching=STITCHING)
    np.testing.assert_array_equal(labels, whole.mask)
    np.testing.assert_array_equal(confidence, np.rint(whole.confidence * 255))


def test_the_coarse_head_has_its_own_map(tmp_path, predictor, image):
    assert predictor.has_coarse
    labels, confidence, coarse = run(tmp_path, predictor, ArrayGrid(image), coarse=True)
    whole = stitch(predictor, image, stitching=STITCHING, coarse=True)
    np.testing.assert_array_equal(labels, whole.mask)
    np.testing.assert_array_equal(coarse, whole.coarse_mask)
    np.testing.assert_array_equal(confidence, np.rint(whole.confidence * 255))
    assert not Predictor(Position(), device="cpu").has_coarse


class Canvas:
    """Takes blocks of probabilities, in memory."""

    def __init__(self, shape):
        self.values, self.seen = np.zeros(shape, np.uint8), np.zeros(shape[1:], int)

    def put(self, top, left, height, width, values):
        place = slice(top, top + height), slice(left, left + width)
        self.seen[place] += 1
        self.values[:, *place] = 0 if values is None else values


def test_probabilities_come_block_by_block_and_once(tmp_path, predictor, image):
    canvas = Canvas((3, *image.shape[:2]))
    run(tmp_path, predictor, ArrayGrid(image), sink=canvas)
    assert (canvas.seen == 1).all()
    whole = stitch(predictor, image, stitching=STITCHING, probabilities=True)
    np.testing.assert_allclose(canvas.values, whole.probabilities * 255, atol=0.501)


def test_where_no_window_was_there_is_nothing(tmp_path, predictor, image):
    windows = STITCHING.windows(*image.shape[:2])
    labels, confidence = run(tmp_path / "some", predictor, ArrayGrid(image), windows[-1:])
    seen = np.zeros(image.shape[:2], dtype=bool)
    seen[windows[-1].slices] = True
    np.testing.assert_array_equal(labels == 255, ~seen)
    assert not confidence[~seen].any()
    grid = ArrayGrid(image)
    labels, _ = run(tmp_path / "none", predictor, grid, ())
    assert (labels == 255).all()
    assert grid.reads == []


def test_a_slide_smaller_than_a_window(tmp_path, predictor, image):
    small = image[:40, :50]
    labels, _ = run(tmp_path, predictor, ArrayGrid(small))
    np.testing.assert_array_equal(labels, stitch(predictor, small, stitching=STITCHING).mask)
    tile = read_tile(ArrayGrid(small), Window(0, 0, 40, 50, 24, 14))
    np.testing.assert_array_equal(tile[:40, :50], small)
    assert (tile[40:] == 255).all()
    assert (tile[:, 50:] == 255).all()


def test_values_that_are_not_finite_are_never_written(tmp_path, image):
    network = Constant([0.5, 0.5])
    network.logits[0] = torch.nan
    with pytest.raises(NtrmError, match="not numbers"):
        run(tmp_path, Predictor(network, device="cpu", batch=2), ArrayGrid(image))


@pytest.fixture
def slide(tmp_path, random):
    return making.write_ome(tmp_path / "a.ome.tif", making.tissue(random, 700, 900), compression="zlib")


@pytest.fixture
def small_blocks(monkeypatch):
    """A grid in many small blocks, few of which fit into its cache."""
    monkeypatch.setattr(grid_module, "MAX_BLOCK", 32)
    for module in (grid_module, wsi_inference):
        monkeypatch.setattr(module, "CACHE_BYTES", 40 * 3 * 32 * 32)


def in_children(slide, count):
    first, *others = (ReadingProcess() for _ in range(count))
    return ReadingGroup(open_isolated(slide, process=first), others, slide, alone=False)


def test_a_slide_read_by_one_and_by_three_children_has_the_same_maps(tmp_path, slide, predictor, small_blocks):
    windows = [window for number, window in enumerate(STITCHING.windows(700, 900)) if number % 5]
    found = []
    for count in (1, 3):
        with closing(in_children(slide, count)) as reader:
            grid = SlideGrid(reader, 1.0, Resolution.square(1.0))
            assert grid.at_once == count
            found.append(run(tmp_path / str(count), predictor, grid, windows))
    np.testing.assert_array_equal(*found)


def test_a_child_that_dies_while_the_network_works_is_the_slides_error(tmp_path, slide, predictor, small_blocks):
    with closing(in_children(slide, 3)) as reader:
        grid = SlideGrid(reader, 1.0, Resolution.square(1.0))
        read, count = reader.children[0].read, [0]

        def dying(*region):
            count[0] += 1
            if count[0] == 5:
                os.kill(reader.children[0]._child.pid, signal.SIGKILL)
            return read(*region)

        reader.children[0].read = dying
        with pytest.raises(DataError, match="reading the slide failed"):
            run(tmp_path, predictor, grid)


@pytest.mark.parametrize("sizes", [(4, 4, 4, 1), (3, 1, 5, 4), (13,), (1,) * 13])
def test_tiles_come_in_their_order_however_many_are_asked_for(image, sizes):
    windows = STITCHING.windows(*image.shape[:2]) * 2
    with reading_ahead(ArrayGrid(image), windows, 4) as read:
        start = 0
        for size in sizes:
            asked = windows[start : start + size]
            start += size
            np.testing.assert_array_equal(read(asked), np.stack([cut(image, window, fill=255) for window in asked]))


def test_what_is_read_ahead_takes_no_more_than_its_part_of_the_cache(slide, small_blocks):
    windows = STITCHING.windows(700, 900)
    most = 10  # a quarter of the 40 blocks that are cached
    with closing(in_children(slide, 3)) as reader:
        grid = SlideGrid(reader, 1.0, Resolution.square(1.0))
        begun, needed, largest = set(), set(), 0
        block = grid.block

        def counted(row, column):
            begun.add((row, column))
            return block(row, column)

        grid.block = counted
        with reading_blocks(grid, windows) as go_on:
            # One row of windows: later ones need blocks again that were dropped meanwhile.
            for number, window in enumerate(windows[: 900 // 48]):
                go_on(number)
                under = grid.blocks_under(window.top, window.left, window.top + 64, window.left + 64)
                needed.update(under)
                largest = max(largest, len(begun - needed))
                np.testing.assert_array_equal(read_tile(grid, window), reader.read(window.left, window.top, 64, 64, 0))
        assert 0 < largest <= most
        assert grid._blocks.nbytes <= grid_module.CACHE_BYTES
