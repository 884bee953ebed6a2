"""The bench of what follows the network: the maps that were kept are those of the slide, side by side."""

import argparse

import numpy as np
from PIL import Image
from tests.pipeline.small import fingerprints

from bench import slide_tail
from ntrm.results.paths import MASK


def test_kept_maps_are_laid_side_by_side_and_give_the_same_files_again(tmp_path, random, capsys):
    Image.fromarray(random.integers(120, 256, (60, 50, 3)).astype(np.uint8)).resize((130, 150)).save(tmp_path / "a.png")
    asked = argparse.Namespace(
        picture=tmp_path / "a.png", size="300x260", times=2, threads=0, ahead=False, maps=tmp_path / "maps.npz",
        repeats=1, keep=tmp_path / "first",
    )  # fmt: skip
    for folder, more in (("first", {}), ("again", {"threads": 8, "ahead": True})):
        (tmp_path / f"work-{folder}").mkdir()
        chosen = argparse.Namespace(**{**vars(asked), "keep": tmp_path / folder, **more})
        slide_tail.study(chosen, tmp_path / f"work-{folder}")
        assert "| files |" in capsys.readouterr().out
    assert fingerprints(tmp_path / "first") == fingerprints(tmp_path / "again")
    with np.load(tmp_path / "maps.npz") as kept:
        labels = kept["labels"]
    assert labels.shape == (300, 260)
    written = np.asarray(Image.open(tmp_path / "first" / "slide" / MASK))
    np.testing.assert_array_equal(written, np.tile(labels, (2, 2)) + np.uint8(1))
