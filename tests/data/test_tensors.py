import numpy as np
import pytest
import torch
from PIL import Image
from tests.data.random_sections import write_random
from torch.utils.data import DataLoader, default_collate

from ntrm.core.errors import RefusedError
from ntrm.core.labels import CANCERS, IGNORE, SKIN, LabelSchema, Tissue
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import Dataset
from ntrm.data.tensors import TileDataset

SIZE = 32
BACKGROUND = SKIN.index("BKG")


@pytest.fixture
def dataset_and_pixels(tmp_path, random):
    """Two sections, the first with background on the right."""
    cases, images, masks = zip(*write_random(tmp_path / "data", random, (70, 90), (20, 40)), strict=True)
    masks[0][:, SIZE:] = BACKGROUND
    Image.fromarray(SKIN.colourise(masks[0])).save(cases[0].mask)
    pixels = {case.name: (image, mask) for case, image, mask in zip(cases, images, masks, strict=True)}
    return Dataset(tmp_path / "data", "queensland", SKIN, cases), pixels


@pytest.fixture
def cache(tmp_path):
    return SectionCache(tmp_path / "cache")


@pytest.fixture
def tiles(dataset_and_pixels, cache):
    return TileDataset(dataset_and_pixels[0], size=SIZE, cache=cache)


def test_tiles_are_the_pixels_of_their_source(tiles, dataset_and_pixels):
    pixels = dataset_and_pixels[1]
    assert len(tiles) == 3 * 3 + 1 * 2
    for number in range(len(tiles)):
        tile, source = tiles[number], tiles.sources[number]
        image, mask = (array[source.window.slices] for array in pixels[source.case.name])
        height, width = mask.shape
        assert tile.source == number
        assert (tile.image.dtype, tile.image.shape) == (torch.uint8, (3, SIZE, SIZE))
        assert (tile.mask.dtype, tile.mask.shape) == (torch.uint8, (SIZE, SIZE))
        np.testing.assert_array_equal(tile.image[:, :height, :width].permute(1, 2, 0), image)
        np.testing.assert_array_equal(tile.mask[:height, :width], mask)


def test_windows_of_background_alone_can_be_dropped(dataset_and_pixels, cache):
    tiles = TileDataset(dataset_and_pixels[0], size=SIZE, cache=cache, drop_background=True)
    everything = TileDataset(dataset_and_pixels[0], size=SIZE, cache=cache)
    with_tissue = [
        everything.sources[tile.source] for tile in everything if (~torch.isin(tile.mask, torch.tensor([8, 255]))).any()
    ]
    assert list(tiles.sources) == with_tissue
    assert 0 < len(tiles) < len(everything)


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_worker_processes_see_the_same_tiles(tiles, start):
    expected = default_collate(list(tiles))
    loader = DataLoader(tiles, batch_size=4, num_workers=1, multiprocessing_context=start)
    batches = list(loader)
    assert torch.equal(torch.cat([batch.image for batch in batches]), expected.image)
    assert torch.equal(torch.cat([batch.mask for batch in batches]), expected.mask)
    assert torch.cat([batch.source for batch in batches]).tolist() == list(range(len(tiles)))


def test_another_order_of_the_classes_is_remapped_by_name(tiles, dataset_and_pixels, cache, random):
    order = random.permutation(len(SKIN))
    shuffled = LabelSchema(
        tuple(Tissue(k, SKIN.names[old], "", SKIN.tissues[old].rgb) for k, old in enumerate(order)), background="BKG"
    )
    moved = TileDataset(dataset_and_pixels[0], size=SIZE, cache=cache, schema=shuffled)
    names, moved_names = np.array([*SKIN.names, "ignore"]), np.array([*shuffled.names, "ignore"])
    for tile, other in zip(tiles, moved, strict=True):
        ours, theirs = (np.minimum(t.mask.numpy(), len(SKIN)) for t in (tile, other))
        assert np.array_equal(names[ours], moved_names[theirs])
    few = LabelSchema((Tissue(0, "tumour", "", (1, 1, 1)), Tissue(1, "other", "", (2, 2, 2))))
    with pytest.raises(RefusedError, match="without a counterpart"):
        TileDataset(dataset_and_pixels[0], size=SIZE, cache=cache, schema=few)
    joined = {name: "tumour" if name in CANCERS else "other" for name in SKIN.names} | {"BKG": ""}
    grouped = TileDataset(dataset_and_pixels[0], size=SIZE, cache=cache, schema=few, names=joined)
    for tile, other in zip(tiles, grouped, strict=True):
        assert torch.equal(other.mask == 0, torch.isin(tile.mask, torch.tensor([9, 10, 11])))
        assert torch.equal(other.mask == IGNORE, torch.isin(tile.mask, torch.tensor([BACKGROUND, IGNORE])))
