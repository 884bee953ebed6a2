import json
import os
import signal
from contextlib import closing

import numpy as np
import pytest
import torch
from tests.familiarity.small import reference_of
from tests.inference.test_sliding_window import Constant, Position
from tests.wsi import making

from ntrm.core.errors import DataError, NtrmError
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window, cut
from ntrm.familiarity.recorder import BlockRecorder
from ntrm.inference import wsi_inference
from ntrm.inference.checkpoints import Checkpoints
from ntrm.inference.mask_store import MAPS, BandStore
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Stitching, stitch
from ntrm.inference.wsi_inference import read_tile, reading_ahead, reading_blocks, stream
from ntrm.models.registry import create
from ntrm.pipeline.relations_mean import RelationsMean
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


@pytest.fixture(scope="module")
def relating():
    """A predictor whose network has a relation module."""
    return Predictor(create("ntrm-paper", classes=12, width=0.125), device="cpu", batch=2)


def run(folder, predictor, grid, windows=None, names=MAPS, **more):
    windows = STITCHING.windows(grid.height, grid.width) if windows is None else windows
    with BandStore.opened(folder, grid.height, grid.width, "plan", names) as store:
        before = store.done
        rows = [*stream(predictor, grid, store, stitching=STITCHING, windows=windows, **more)]
        assert rows == [*range(grid.height)]
        return before, np.array([np.asarray(store.map(name)) for name in store.names])


def test_rows_on_disk_are_those_of_the_section_in_memory(tmp_path, predictor, image):
    _, (labels, confidence) = run(tmp_path, predictor, ArrayGrid(image))
    whole = stitch(predictor, image, stitching=STITCHING)
    np.testing.assert_array_equal(labels, whole.mask)
    np.testing.assert_array_equal(confidence, np.rint(whole.confidence * 255))


def always(monkeypatch, due=True):
    monkeypatch.setattr(Checkpoints, "due", lambda self: due)


def row_of(windows, number):
    """Where the window's row begins, and how many windows come before it."""
    tops = [window.top for window in windows]
    return tops[number], tops.index(tops[number])


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_a_run_that_broke_redoes_one_row_of_windows_and_ends_with_the_same_bytes(
    tmp_path, relating, image, random, monkeypatch, batch
):
    always(monkeypatch)
    predictor = relating
    predictor.batch = batch
    windows = STITCHING.windows(*image.shape[:2])
    whole, broken, resumed = (RelationsMean(predictor.config.schema.names) for _ in range(3))
    seen = [BlockRecorder(reference_of(SKIN), SKIN, predictor.device) for _ in range(3)]
    _, expected = run(tmp_path / "whole", predictor, ArrayGrid(image), sums=whole, observer=seen[0])
    fail_at = int(random.integers(1, len(windows) + 1))
    with pytest.raises(DataError, match="cannot read"):
        run(tmp_path / "broken", predictor, ArrayGrid(image, fail_at=fail_at), sums=broken, observer=seen[1])
    again = ArrayGrid(image)
    done, got = run(tmp_path / "broken", predictor, again, sums=resumed, observer=seen[2])
    np.testing.assert_array_equal(got, expected)
    assert torch.equal(whole.state(), resumed.state())
    assert torch.equal(seen[0].state(), seen[2].state())
    assert len(seen[0].state()) == len(windows)
    # The batch that failed was never predicted: from the row of windows in which it begins everything is done again.
    top, before = row_of(windows, (fail_at - 1) // batch * batch)
    assert len(windows) - before <= len(again.reads) < len(windows) - before + batch
    assert done == top


def test_without_a_checkpoint_it_begins_anew_but_writes_no_row_twice(tmp_path, predictor, image, monkeypatch):
    always(monkeypatch, due=False)
    _, expected = run(tmp_path / "whole", predictor, ArrayGrid(image))
    with pytest.raises(DataError, match="cannot read"):
        run(tmp_path / "broken", predictor, ArrayGrid(image, fail_at=10))
    again = ArrayGrid(image)
    done, got = run(tmp_path / "broken", predictor, again)
    assert done > 0
    assert len(again.reads) == len(STITCHING.windows(*image.shape[:2]))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "empty"])
def test_a_damaged_checkpoint_is_ignored_and_the_one_before_is_used(
    tmp_path, predictor, image, random, monkeypatch, damage
):
    always(monkeypatch)
    _, expected = run(tmp_path / "whole", predictor, ArrayGrid(image))
    with pytest.raises(DataError, match="cannot read"):
        run(tmp_path / "broken", predictor, ArrayGrid(image, fail_at=12))
    found = {path.name: json.loads(path.read_bytes().split(b"\n")[0])["top"] for path in checkpoints(tmp_path)}
    assert len(found) == 2
    latest = tmp_path / "broken" / max(found, key=found.get)
    content = bytearray(latest.read_bytes())
    at = int(random.integers(0, len(content)))
    content[at] ^= 255
    latest.write_bytes({"cut": content[:at], "flip": content, "gone": b"", "empty": b""}[damage])
    if damage == "gone":
        latest.unlink()
    again = ArrayGrid(image)
    _, got = run(tmp_path / "broken", predictor, again)
    np.testing.assert_array_equal(got, expected)
    assert again.reads[0][0] <= min(found.values())
    assert len(again.reads) < len(STITCHING.windows(*image.shape[:2]))


def checkpoints(folder):
    return sorted((folder / "broken").glob("checkpoint-*"))


def test_a_checkpoint_ahead_of_the_rows_does_not_count(tmp_path, predictor, image, monkeypatch):
    """As after a power cut that took rows away which the checkpoint takes for finished."""
    always(monkeypatch)
    _, expected = run(tmp_path / "broken", predictor, ArrayGrid(image))
    content = bytearray((tmp_path / "broken" / "labels.u8").read_bytes())
    content[image.shape[1] * 40] ^= 1
    (tmp_path / "broken" / "labels.u8").write_bytes(content)
    grid = ArrayGrid(image)
    _, got = run(tmp_path / "broken", predictor, grid)
    np.testing.assert_array_equal(got, expected)
    assert len(grid.reads) == len(STITCHING.windows(*image.shape[:2]))


def test_rows_without_their_last_checkpoint_are_not_the_end(tmp_path, relating, image, monkeypatch):
    """Killed between the last row and the last checkpoint: what is added up over windows must still be right."""
    always(monkeypatch)
    names = relating.config.schema.names
    whole, again = RelationsMean(names), RelationsMean(names)
    run(tmp_path / "broken", relating, ArrayGrid(image), sums=whole)
    last = max(checkpoints(tmp_path), key=lambda path: json.loads(path.read_bytes().split(b"\n")[0])["top"])
    last.unlink()
    run(tmp_path / "broken", relating, ArrayGrid(image), sums=again)
    assert torch.equal(whole.state(), again.state())
    finished = RelationsMean(names)
    grid = ArrayGrid(image)
    run(tmp_path / "broken", relating, grid, sums=finished)
    assert grid.reads == []
    assert torch.equal(whole.state(), finished.state())


def test_the_coarse_head_has_its_own_map(tmp_path, predictor, image):
    assert predictor.has_coarse
    _, (labels, confidence, coarse) = run(tmp_path / "a", predictor, ArrayGrid(image), names=(*MAPS, "coarse"))
    whole = stitch(predictor, image, stitching=STITCHING, coarse=True)
    np.testing.assert_array_equal(labels, whole.mask)
    np.testing.assert_array_equal(coarse, whole.coarse_mask)
    np.testing.assert_array_equal(confidence, np.rint(whole.confidence * 255))
    assert not Predictor(Position(), device="cpu").has_coarse


class Canvas:
    """Takes blocks of probabilities, in memory."""

    def __init__(self, shape):
        self.values, self.seen, self.finished = np.zeros(shape, np.uint8), np.zeros(shape[1:], int), False

    def put(self, top, left, height, width, values):
        place = slice(top, top + height), slice(left, left + width)
        self.seen[place] += 1
        self.values[:, *place] = 0 if values is None else values

    def finish(self):
        self.finished = True

    def state(self):
        return {"all": self.values.copy(), "seen": self.seen.astype(np.float64)}

    def restore(self, state):
        self.finished = False
        if state:
            self.values, self.seen = state["all"].copy(), state["seen"].astype(int)


def test_probabilities_come_block_by_block_and_once_although_a_run_broke(tmp_path, predictor, image, monkeypatch):
    always(monkeypatch)
    shape = (3, *image.shape[:2])
    with pytest.raises(DataError, match="cannot read"):
        run(tmp_path, predictor, ArrayGrid(image, fail_at=11), sink=Canvas(shape))
    canvas = Canvas(shape)
    run(tmp_path, predictor, ArrayGrid(image), sink=canvas)
    assert canvas.finished
    assert (canvas.seen == 1).all()
    whole = stitch(predictor, image, stitching=STITCHING, probabilities=True)
    np.testing.assert_allclose(canvas.values, whole.probabilities * 255, atol=0.501)


def test_a_failure_of_the_disk_comes_out_and_nothing_is_written_after_it(tmp_path, predictor, image, monkeypatch):
    always(monkeypatch)
    real, calls = BandStore.append, []

    def full(self, top, bands):
        calls.append(top)
        if len(calls) == 2:
            raise DataError("cannot keep finished rows")
        real(self, top, bands)

    monkeypatch.setattr(BandStore, "append", full)
    with pytest.raises(DataError, match="cannot keep"):
        run(tmp_path / "broken", predictor, ArrayGrid(image))
    assert len(calls) == 2
    monkeypatch.setattr(BandStore, "append", real)
    done, got = run(tmp_path / "broken", predictor, ArrayGrid(image))
    assert done == calls[1]
    np.testing.assert_array_equal(got[0], stitch(predictor, image, stitching=STITCHING).mask)


def test_where_no_window_was_there_is_nothing(tmp_path, predictor, image):
    windows = STITCHING.windows(*image.shape[:2])
    _, (labels, confidence) = run(tmp_path / "some", predictor, ArrayGrid(image), windows[-1:])
    seen = np.zeros(image.shape[:2], dtype=bool)
    seen[windows[-1].slices] = True
    np.testing.assert_array_equal(labels == 255, ~seen)
    assert not confidence[~seen].any()
    grid = ArrayGrid(image)
    _, (labels, _) = run(tmp_path / "none", predictor, grid, ())
    assert (labels == 255).all()
    assert grid.reads == []


def test_a_slide_smaller_than_a_window(tmp_path, predictor, image):
    small = image[:40, :50]
    _, (labels, _) = run(tmp_path, predictor, ArrayGrid(small))
    np.testing.assert_array_equal(labels, stitch(predictor, small, stitching=STITCHING).mask)
    tile = read_tile(ArrayGrid(small), Window(0, 0, 40, 50, 24, 14))
    np.testing.assert_array_equal(tile[:40, :50], small)
    assert (tile[40:] == 255).all()
    assert (tile[:, 50:] == 255).all()


def test_a_finished_slide_is_not_read_again(tmp_path, predictor, image):
    run(tmp_path, predictor, ArrayGrid(image))
    grid = ArrayGrid(image)
    run(tmp_path, predictor, grid)
    assert grid.reads == []


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
            found.append(run(tmp_path / str(count), predictor, grid, windows)[1])
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
