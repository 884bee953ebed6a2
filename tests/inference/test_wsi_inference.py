import numpy as np
import pytest
import torch
from tests.inference.test_sliding_window import Constant, Position

from ntrm.core.errors import DataError, NtrmError
from ntrm.data.tiles import Window, cut
from ntrm.inference import maps as maps_module
from ntrm.inference.maps import Maps
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Stitching, stitch
from ntrm.inference.wsi_inference import predict_maps, read_tile, reading_ahead

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


@pytest.mark.parametrize("sizes", [(4, 4, 4, 1), (3, 1, 5, 4), (13,), (1,) * 13])
def test_tiles_come_in_their_order_however_many_are_asked_for(image, sizes):
    windows = STITCHING.windows(*image.shape[:2]) * 2
    with reading_ahead(ArrayGrid(image), windows, 4) as read:
        start = 0
        for size in sizes:
            asked = windows[start : start + size]
            start += size
            np.testing.assert_array_equal(read(asked), np.stack([cut(image, window, fill=255) for window in asked]))
