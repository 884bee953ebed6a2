import numpy as np
import pytest
import torch
from PIL import Image
from tests.training.small_data import write_small

from ntrm.data.cache import TileCache
from ntrm.data.layouts import open_dataset
from ntrm.data.tensors import TileDataset
from ntrm.training.pictures import choose_examples, draw_curves, draw_examples


@pytest.fixture
def tiles(tmp_path, random):
    dataset = open_dataset(write_small(tmp_path / "data", random, shape=(64, 320)))
    return TileDataset(dataset, size=64, cache=TileCache(tmp_path / "cache"))


def tissues(tiles, index):
    return len(set(np.unique(tiles[index].mask)) - {255})


def test_examples_are_rich_and_from_different_sections(tiles):
    chosen = choose_examples(tiles, 4)
    assert {tiles.places[index].case.name for index in chosen} == {"a", "b", "c", "d"}
    for index in chosen:
        own = [i for i, place in enumerate(tiles.places) if place.case.name == tiles.places[index].case.name]
        assert tissues(tiles, index) == max(tissues(tiles, i) for i in own)


def test_more_than_there_are_sections(tiles):
    chosen = choose_examples(tiles, 7)
    assert len(set(chosen)) == 7
    assert len({tiles.places[index].case.name for index in chosen[:4]}) == 4
    assert len(choose_examples(tiles, 1000)) == len(tiles)


def test_pictures_are_written(tiles, tmp_path):
    seen = []

    def predict(images):
        seen.append(images)
        return torch.zeros(len(images), *images.shape[2:], dtype=torch.uint8)

    draw_examples(predict, tiles, choose_examples(tiles, 2), tmp_path / "examples.png")
    draw_curves([{"step": 1, "train_loss": 1.0, "val_loss": None}], tmp_path / "curves.png")
    assert seen[0].shape == (2, 3, 64, 64)
    assert seen[0].dtype == torch.uint8
    for name in ("examples.png", "curves.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 100
