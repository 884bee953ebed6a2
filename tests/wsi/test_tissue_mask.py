import os
from pathlib import Path

import numpy as np
import pytest
from tests.wsi.pictures import BKG, BROWN, HAEMATOXYLIN, MPP, PENS, clean, marked, skin_mask, stained

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.phantom.layout import lay_slide
from ntrm.phantom.render import render
from ntrm.wsi.tissue_mask import find_tissue


def shares(found, mask):
    """Share of the tissue that was missed, and of the glass that was taken."""
    true = mask != BKG
    return (true & ~found).sum() / true.sum(), (~true & found).sum() / (~true).sum()


def test_finds_the_tissue_of_a_slide_and_leaves_its_glass(seed):
    slide = lay_slide(seed, MPP, "SCC", pieces=2)
    picture = render(slide.mask, MPP, seed)
    missed, taken = shares(find_tissue(picture, MPP), slide.mask)
    assert missed < 0.004
    assert taken < 0.06


def test_fat_is_not_lost(seed):
    found = find_tissue(clean(seed), MPP)
    # The least of 102 such sections was 0.970: fat frays at its lower edge.
    assert found[skin_mask() == SKIN.index("HYP")].mean() > 0.95


def test_a_brown_stain_is_tissue_too(seed):
    missed, taken = shares(find_tissue(stained(seed, HAEMATOXYLIN, BROWN), MPP), skin_mask())
    assert missed < 0.1
    assert taken < 0.2


@pytest.mark.parametrize("pen", PENS)
def test_pen_on_glass_is_no_tissue(seed, pen):
    found = find_tissue(marked(clean(seed), slice(20, 200), slice(6, 28), pen), MPP)
    assert found[:, :34].mean() < 0.02
    assert shares(found, skin_mask())[0] < 0.02


@pytest.mark.parametrize("pen", PENS)
def test_tissue_under_pen_stays_tissue(seed, pen):
    stroke = slice(150, 185)
    found = find_tissue(marked(clean(seed), slice(0, 220), stroke, pen), MPP)
    assert found[60:120, stroke].mean() > 0.95
    assert found[:20, stroke].mean() < 0.05
    assert found[200:, stroke].mean() < 0.05


def test_dust_and_the_edge_of_the_coverslip_are_no_tissue(seed, random):
    picture = clean(seed).astype(np.float32)
    picture[:, 20:23] *= 0.6
    picture[205:208] *= 0.6
    for y, x in zip(random.integers(2, 12, 12), random.integers(30, 320, 12), strict=True):
        picture[y : y + 3, x : x + 3] *= 0.2
    found = find_tissue(picture.astype(np.uint8), MPP)
    assert not found[:, :40].any()
    assert not found[200:].any()
    assert not found[:20].any()


def test_glass_alone_has_no_tissue(random):
    for level in (255, 241, 215):
        noise = random.normal(level, 2.0, (150, 200, 1)) + random.normal(0, 1.0, (150, 200, 3))
        assert not find_tissue(np.clip(noise, 0, 255).astype(np.uint8), MPP).any()


def test_white_beside_the_scan_changes_nothing(seed):
    picture = clean(seed)
    framed = np.full((picture.shape[0] + 80, picture.shape[1] + 80, 3), 255, dtype=np.uint8)
    framed[40:-40, 40:-40] = picture
    found = find_tissue(framed, MPP)
    assert (found[40:-40, 40:-40] == find_tissue(picture, MPP)).mean() > 0.98
    assert not found[:36].any()


def test_a_picture_full_of_tissue_is_all_tissue(seed):
    picture = clean(seed)[52:110, 70:250]
    assert find_tissue(np.ascontiguousarray(picture), MPP).mean() > 0.98


def test_only_tissue_at_the_edge_touches_the_edge(seed):
    picture = clean(seed)
    assert not find_tissue(np.ascontiguousarray(picture[:, 36:]), MPP)[:, 0].any()
    assert find_tissue(np.ascontiguousarray(picture[:, 80:]), MPP)[60:110, 0].all()


def test_pixels_need_not_be_square(seed):
    picture = clean(seed)
    squeezed = np.ascontiguousarray(picture[:, ::2])
    found = find_tissue(squeezed, Resolution(2 * MPP, MPP))
    missed, taken = shares(found, skin_mask()[:, ::2])
    assert missed < 0.02
    assert taken < 0.2


def test_a_few_pixels_are_enough_to_answer():
    assert find_tissue(np.full((1, 1, 3), 250, dtype=np.uint8), MPP).tolist() == [[False]]
    assert find_tissue(np.zeros((2, 3, 3), dtype=np.uint8), MPP).shape == (2, 3)


def test_refuses_what_is_no_picture_or_no_resolution():
    with pytest.raises(DataError, match="must be RGB"):
        find_tissue(np.zeros((4, 4), dtype=np.uint8), MPP)
    with pytest.raises(DataError, match="must be RGB"):
        find_tissue(np.zeros((0, 4, 3), dtype=np.uint8), MPP)
    with pytest.raises(RefusedError, match="implausible"):
        find_tissue(np.zeros((4, 4, 3), dtype=np.uint8), 0.0)


def test_a_real_section_under_a_real_pen_is_tissue():
    folder = os.environ.get("NTRM_REAL_DATA")
    if not folder:
        pytest.skip("NTRM_REAL_DATA names no folder with real slides")
    from PIL import Image

    with Image.open(Path(folder) / "slides" / "pen-marks.png") as image:
        # About 2 µm/px: 754 pixels are 1.5 mm.
        picture = np.asarray(image.convert("RGB").resize((image.width // 6, image.height // 6), Image.Resampling.BOX))
    assert find_tissue(picture, 12.0).mean() > 0.97
