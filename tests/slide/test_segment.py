import numpy as np
import pytest
import torch

from ntrm.data.tiles import Window
from ntrm.errors import DataError, NtrmError
from ntrm.models.registry import create
from ntrm.predictor import Predictor
from ntrm.slide.bands import BandStore
from ntrm.slide.segment import first_window, read_tile, stream
from ntrm.stitching import Stitching, stitch

STITCHING = Stitching(64, 16)


class ArrayGrid:
    """An image in memory in place of a slide; ``fail_at`` makes that read fail."""

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
def predictor(seed):
    torch.manual_seed(seed)
    return Predictor(create("ntrm-paper", classes=12, width=0.125), device="cpu", batch=2)


def run(folder, predictor, grid, windows=None):
    windows = STITCHING.windows(grid.height, grid.width) if windows is None else windows
    with BandStore.opened(folder, grid.height, grid.width, "plan") as store:
        before = store.done
        rows = [*stream(predictor, grid, store, stitching=STITCHING, windows=windows)]
        assert rows == [*range(grid.height)]
        return before, np.array(store.maps())


def test_rows_on_disk_are_those_of_the_section_in_memory(tmp_path, predictor, image):
    _, (labels, confidence) = run(tmp_path, predictor, ArrayGrid(image))
    whole = stitch(predictor, image, stitching=STITCHING)
    np.testing.assert_array_equal(labels, whole.mask)
    np.testing.assert_array_equal(confidence, np.rint(whole.confidence * 255))


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_a_run_that_broke_goes_on_to_the_same_bytes(tmp_path, predictor, image, random, batch):
    predictor.batch = batch
    _, expected = run(tmp_path / "whole", predictor, ArrayGrid(image))
    windows = STITCHING.windows(*image.shape[:2])
    broken = ArrayGrid(image, fail_at=int(random.integers(7, len(windows) + 1)))
    with pytest.raises(DataError, match="cannot read"):
        run(tmp_path / "broken", predictor, broken)
    again = ArrayGrid(image)
    before, got = run(tmp_path / "broken", predictor, again)
    np.testing.assert_array_equal(got, expected)
    # Only windows that show a missing row were read again, and those that fill up their batch.
    needed = [window for window in windows if window.top + window.height > before]
    assert len(needed) <= len(again.reads) < len(needed) + batch


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


def test_numbers_that_are_none_are_never_written(tmp_path, predictor, image):
    predictor._network.requires_grad_(False)
    for parameter in predictor._network.parameters():
        parameter.fill_(float("nan"))
    with pytest.raises(NtrmError, match="no numbers"):
        run(tmp_path, predictor, ArrayGrid(image))


def test_restart_is_at_a_batch_that_the_first_run_had():
    windows = STITCHING.windows(170, 130)  # 3 a row; rows start at 0, 35, 70, 106
    for done in range(171):
        for batch in (1, 2, 4, 5):
            first = first_window(windows, done, batch)
            assert first % batch == 0
            assert all(window.top + window.height <= done for window in windows[:first])
            assert all(window.top + window.height > done for window in windows[first + batch - 1 :])
