"""The slide and the network that cost nothing: pixels and answers are known."""

import numpy as np
import torch
from tests.evaluation.small import ByColour

from bench import segment_stages as bench
from ntrm.inference.predictor import Predictor
from ntrm.wsi.readers.formats import open_slide


def test_the_slide_is_the_picture_again_and_again(tmp_path, random):
    picture = random.integers(0, 256, (100, 150, 3)).astype(np.uint8)
    bench.write_slide(tmp_path / "a.tif", picture, 600)
    slide = open_slide(tmp_path / "a.tif")
    wanted = np.tile(picture, (6, 4, 1))
    assert np.array_equal(slide.read(0, 0, 600, 600, 0), wanted)
    assert slide.info.resolution.x == bench.MPP


def test_answers_are_those_of_the_network_in_turn(random):
    predictor = Predictor(ByColour(), "cpu", batch=2)
    size = predictor.config.window
    picture = random.integers(0, 256, (2 * size + 5, size + 3, 3)).astype(np.uint8)
    wanted = predictor.probabilities(np.stack([picture[:size, :size], picture[size : 2 * size, :size]])).final
    answer = bench.replayed(predictor, picture)
    first = answer(predictor, np.zeros((3, size, size, 3), dtype=np.uint8), graph=True)
    assert torch.equal(first.final, wanted[[0, 1, 0]])
    assert torch.equal(answer(predictor, np.zeros((1, size, size, 3), dtype=np.uint8)).final, wanted[[1]])


def test_the_table_is_per_megapixel():
    found = {"side": 2000, "regions": 1234, "clock": 9.0, "stages": {"look": 0.2}, "child and rest": 1.0}
    assert "| look | 50.0 |" in bench.table(found)
    assert "| child and rest | 250.0 |" in bench.table(found)
    assert bench.table(found).startswith("2,000 × 2,000 pixels, 1,234 regions, 9 s")
