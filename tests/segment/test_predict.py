import resource

import numpy as np
import pytest
import torch
from tests.models.test_windows import Position

from ntrm.core.arrays import new_map
from ntrm.core.errors import DataError, NtrmError
from ntrm.models.base import Segmentation
from ntrm.models.predictor import Predictor
from ntrm.models.windows import Stitching, stitch
from ntrm.segment import predict
from ntrm.segment.predict import Maps, predict_maps

STITCHING = Stitching(64, 16)


class ArrayGrid:
    """An image in memory in place of a slide."""

    def __init__(self, image):
        self.image, self.reads = image, []
        self.height, self.width = image.shape[:2]

    def read(self, top, left, height, width):
        self.reads.append((top, left))
        pixels = self.image[top : top + height, left : left + width]
        return np.pad(pixels, ((0, height - len(pixels)), (0, width - pixels.shape[1]), (0, 0)), constant_values=255)


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
    monkeypatch.setattr(predict, "IN_MEMORY", in_memory)
    assert predictor.has_coarse
    labels, confidence, coarse = run(tmp_path, predictor, ArrayGrid(image), coarse=True)
    whole = stitch(predictor, image, stitching=STITCHING, coarse=True)
    np.testing.assert_array_equal(labels, whole.mask)
    np.testing.assert_array_equal(coarse, whole.coarse_mask)
    np.testing.assert_array_equal(confidence, np.rint(whole.confidence * 255))
    assert not Predictor(Position(), device="cpu").has_coarse


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


def test_values_that_are_not_finite_are_never_written(tmp_path, image):
    network = Position()
    network.segment = lambda x, **_: Segmentation(x * torch.nan)
    with pytest.raises(NtrmError, match="not numbers"):
        run(tmp_path, Predictor(network, device="cpu", batch=2), ArrayGrid(image))


def test_large_maps_lie_in_files_without_a_name_and_say_nothing_at_first(tmp_path, monkeypatch):
    for in_memory in (2 * 30 * 40 - 1, 2 * 30 * 40):
        monkeypatch.setattr(predict, "IN_MEMORY", in_memory)
        found = Maps.new(30, 40, tmp_path / "maps", coarse=False)
        assert isinstance(found.labels, np.memmap) is (in_memory < 2 * 30 * 40)
        assert found.coarse is None
        assert (found.labels == 255).all()
        assert not found.confidence.any()
    assert [*tmp_path.rglob("maps/*")] == []


def test_all_room_is_taken_at_once(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(DataError, match="cannot write"):
            new_map((10, 101), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
