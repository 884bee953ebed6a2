from contextlib import closing

import numpy as np
import pytest
from scipy import ndimage
from tests.slides.pictures import clean, skin_mask

from ntrm.core.errors import RefusedError
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image
from ntrm.segment.options import Options
from ntrm.segment.overview import inspect_slide
from ntrm.slides.grid import SlideGrid
from ntrm.slides.readers.formats import open_slide


def look(path, pixels, *, mpp=6.7, model_mpp=6.7, strict=False):
    write_image(path, pixels, Resolution.square(mpp))
    with closing(open_slide(path)) as reader:
        return inspect_slide(SlideGrid(reader, model_mpp), Options(strict=strict)).quality


def finer(mask, factor):
    return mask.repeat(factor, axis=0).repeat(factor, axis=1)


def test_a_mask_is_told_from_a_section(tmp_path, seed):
    mask = SKIN.colourise(finer(skin_mask(), 2))
    quality = look(tmp_path / "mask.tif", mask, model_mpp=26.8)
    assert quality.drawn.flag
    assert quality.warnings == ("not a stained section: 100% of it in a few flat colours; a mask?",)
    with pytest.raises(RefusedError, match="a mask") as refused:
        look(tmp_path / "again.tif", mask, strict=True)
    assert "give the image" in refused.value.hint
    assert not look(tmp_path / "section.tif", clean(seed, 6.7)).drawn.flag


def test_optics_as_fine_as_the_pixels_are_no_blur(tmp_path, seed):
    mpp = 0.62
    section = finer(clean(seed, 6.7)[60:260, 100:400], 2).astype(np.float32)
    scanned = ndimage.gaussian_filter(section, (0.9, 0.9, 0)).astype(np.uint8)
    assert not look(tmp_path / "sharp.tif", scanned, mpp=mpp, model_mpp=mpp).out_of_focus.flag
    blurred = ndimage.gaussian_filter(section, (3.4, 3.4, 0)).astype(np.uint8)
    assert look(tmp_path / "blurred.tif", blurred, mpp=mpp, model_mpp=mpp).out_of_focus.flag
