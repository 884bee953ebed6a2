from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ntrm.core.labels import SKIN, LabelSchema, Tissue, boundary_counts, pixel_counts
from ntrm.core.mpp import Resolution
from ntrm.data.dataset import Case
from ntrm.data.image_files import write_image, write_rgb_mask
from ntrm.data.layouts import open_dataset
from ntrm.data.stats import DatasetStats, MaskCounts, tissues_per_tile
from ntrm.report.dataset_report import contact_sheet, stats_figure
from ntrm.report.drawing import write_figure


@pytest.fixture
def dataset(tmp_path, random):
    for k in range(5):
        shape = tuple(random.integers(20, 90, size=2))
        mask = np.full(shape, SKIN.index("BCC"), dtype=np.uint8)
        write_image(tmp_path / f"10x/Images/BCC_{k}.tif", np.full((*shape, 3), 200, np.uint8), Resolution(6.7, 6.7))
        write_rgb_mask(tmp_path / f"10x/Masks/BCC_{k}.png", mask, SKIN)
    return open_dataset(tmp_path)


def test_image_stands_beside_mask_in_its_colours(dataset, tmp_path):
    assert contact_sheet(dataset, tmp_path / "sheet.png") == 5
    sheet = np.asarray(Image.open(tmp_path / "sheet.png").convert("RGB"))
    images, masks = (np.argwhere((sheet == rgb).all(axis=2)) for rgb in ((200, 200, 200), SKIN["BCC"].rgb))
    assert images[:, 0].mean() == pytest.approx(masks[:, 0].mean(), rel=0.3)
    assert images[:, 1].min() < masks[:, 1].min()
    for tissue in SKIN.tissues:
        assert (sheet == tissue.rgb).all(axis=2).any(), tissue.name


def stats_of(mask, schema):
    count, shape = len(schema), [mask.shape]
    counts = MaskCounts(pixel_counts(mask, count), boundary_counts(mask, count), tissues_per_tile(mask, count), shape)
    return DatasetStats(schema, counts, 256, (Case("a", None, Path("a.png"), "p"),))


@pytest.fixture(scope="module")
def stats():
    random = np.random.default_rng(1)
    blocks = random.choice(len(SKIN), (20, 20), p=random.dirichlet(np.ones(len(SKIN)))).astype(np.uint8)
    return stats_of(np.kron(blocks, np.ones((5, 5), dtype=np.uint8)), SKIN)


@pytest.fixture(scope="module")
def figure(stats):
    return stats_figure(stats)


def test_the_heat_map_says_what_the_statistics_say(stats, figure):
    axes = figure.axes[1]
    assert np.allclose(axes.images[0].get_array(), stats.boundary_share)
    said = {(int(text.get_position()[1]), int(text.get_position()[0])): float(text.get_text()) for text in axes.texts}
    assert said.keys() == {(row, column) for row, column in np.argwhere(stats.boundary_share >= 0.005)}
    assert all(abs(stats.boundary_share[cell] - value) <= 0.00501 for cell, value in said.items())
    assert [label.get_text() for label in axes.get_yticklabels()] == list(SKIN.names)


def test_other_schemas_and_odd_names_can_be_drawn(tmp_path):
    schema = LabelSchema((Tissue(0, "cost in $", "", (9, 9, 9)), Tissue(1, "x_1^$2", "a $ title", (255, 255, 255))))
    write_figure(tmp_path / "stats.svg", stats_figure, stats_of(np.zeros((4, 4), dtype=np.uint8), schema))
    assert (tmp_path / "stats.svg").stat().st_size > 1000
