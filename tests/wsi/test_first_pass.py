import numpy as np
import pytest
from tests.evaluation.small import ByColour, InSection

from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Stitching
from ntrm.inference.window_checkpoint import Checkpoints
from ntrm.slide.first_pass import gather_slide


class ArrayGrid:
    """An image in memory in place of a slide; ``fail_at`` makes that read fail."""

    def __init__(self, image, fail_at=None):
        self.image, self.reads, self.fail_at = image, 0, fail_at
        self.height, self.width = image.shape[:2]

    def read(self, top, left, height, width):
        self.reads += 1
        if self.reads == self.fail_at:
            raise OSError("cannot read the slide")
        return self.image[top : top + height, left : left + width]


def test_a_pass_goes_on_where_it_broke_and_ends_with_the_same_bits(tmp_path, random, monkeypatch):
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    predictor = Predictor(InSection(), "cpu", batch=2)
    image = random.integers(0, 256, (300, 200, 3), dtype=np.uint8)
    windows = Stitching(64).side_by_side(300, 200)

    def go(name, plan="plan", fail_at=None):
        grid = ArrayGrid(image, fail_at)
        return gather_slide(predictor, grid, windows, tmp_path / name, plan), grid.reads

    (whole,), reads = go("whole")
    assert reads == len(windows) == 20
    with pytest.raises(OSError, match="cannot read"):
        go("broken", fail_at=11)
    ((again,), reads) = go("broken")
    assert reads == 10  # two windows a time were added up and kept
    assert all(np.array_equal(one, two) for one, two in zip(whole, again, strict=True))
    assert go("broken")[1] == 0
    assert go("broken", plan="another")[1] == 20
    for path in (tmp_path / "broken" / "pass-0").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert go("broken")[1] == 20


def test_no_windows_and_no_passes_mean_no_context(tmp_path, random):
    grid = ArrayGrid(random.integers(0, 256, (64, 64, 3), dtype=np.uint8))
    assert gather_slide(Predictor(InSection(), "cpu"), grid, (), tmp_path, "plan") is None
    windows = Stitching(64).side_by_side(64, 64)
    assert gather_slide(Predictor(ByColour(), "cpu"), grid, windows, tmp_path, "plan") is None
    assert [*tmp_path.iterdir()] == []
