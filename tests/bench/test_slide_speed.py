"""The bench of whole slides: what is drawn, and that a run tells its times and memory."""

import numpy as np
import pytest
from tifffile import imread

from bench import slide_speed


def test_sections_stand_in_some_places_and_glass_in_the_others(tmp_path):
    picture = np.random.default_rng(0).integers(0, 200, (256, 512, 3), dtype=np.uint8)
    slide_speed.write_slide(tmp_path / "a.tif", 500, 1500, picture, 2)
    pixels = imread(tmp_path / "a.tif")
    assert pixels.shape == (500, 1500, 3)
    assert (pixels[:256, :512] == picture).all()
    assert (pixels[:256, 512:1024] == slide_speed.GLASS).all()
    assert (pixels[:256, 1024:] == picture[:, :476]).all()


@pytest.mark.slow
def test_a_run_is_timed_and_its_memory_watched(tmp_path, monkeypatch):
    picture = np.full((256, 256, 3), slide_speed.GLASS, dtype=np.uint8)
    picture[40:220, 40:220] = (200, 120, 170)
    monkeypatch.setattr(slide_speed, "section", lambda _seed: picture)
    words = ["--sizes", "300x260", "--repeats", "1", "--slides", "2", "--width", "0.125", "--batch", "4"]
    lines = []
    (found,) = slide_speed.study(slide_speed.options(words), words, tmp_path, lines.append).values()
    once = found["median"]
    assert once["before"] + once["windows"] + once["after"] == pytest.approx(once["whole"], rel=1e-6)
    assert once["windows seen"] >= 1
    assert 0 < once["bare network"] < once["whole"]
    assert once["one of 2"] > 0
    assert lines[0].startswith("300x260: whole ")
