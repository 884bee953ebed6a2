import numpy as np
import pytest
from PIL import Image

from ntrm.core.errors import DataError
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image, write_rgb_mask
from ntrm.data.layouts import open_dataset
from ntrm.report.contact_sheet import CELL, MARGIN, contact_sheet, thumbnail


@pytest.fixture
def dataset(tmp_path, random):
    for k in range(5):
        shape = tuple(random.integers(20, 90, size=2))
        mask = np.full(shape, SKIN.index("BCC"), dtype=np.uint8)
        write_image(tmp_path / f"10x/Images/BCC_{k}.tif", np.full((*shape, 3), 200, np.uint8), Resolution(6.7, 6.7))
        write_rgb_mask(tmp_path / f"10x/Masks/BCC_{k}.png", mask, SKIN)
    return open_dataset(tmp_path)


def test_image_stands_beside_mask_in_its_colours(dataset, tmp_path):
    assert contact_sheet(dataset, tmp_path / "sheet.png", columns=2) == 5
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    middle = MARGIN + CELL // 2
    assert tuple(sheet[middle, middle]) == (200, 200, 200)
    assert tuple(sheet[middle, middle + CELL + 2]) == SKIN["BCC"].rgb
    for tissue in SKIN.tissues:
        assert (sheet == tissue.rgb).all(axis=2).any(), tissue.name


def test_no_more_than_asked_for(dataset, tmp_path):
    assert contact_sheet(dataset, tmp_path / "sheet.png", most=3) == 3


def test_masks_keep_their_exact_colours(random):
    picture = SKIN.colourise(random.integers(12, size=(50, 30)))
    small = np.asarray(thumbnail(picture, 20, smooth=False))
    assert small.shape == (20, 12, 3)
    assert SKIN.decode(small).strays == 0


def test_nothing_to_show_is_an_error(dataset, tmp_path):
    with pytest.raises(DataError, match="both image and mask"):
        contact_sheet(dataset.where(name="nobody"), tmp_path / "sheet.png")
