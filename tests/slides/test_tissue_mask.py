import numpy as np
import pytest
from tests.helpers import real_data
from tests.slides.pictures import (
    BKG,
    BROWN,
    HAEMATOXYLIN,
    MPP,
    PENS,
    clean,
    marked,
    skin_mask,
    stained,
    tissue_of,
    undisturbed,
)

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import tile_windows
from ntrm.phantom.layout import layout
from ntrm.phantom.render import render
from ntrm.slides.quality.thumbnail import Thumbnail, find_pen, tissue_under
from ntrm.slides.tissue_mask import find_marks, find_tissue

THUMB, MODEL = Resolution.square(13.4), Resolution.square(6.7)


def shares(found, mask):
    """Share of the tissue that was missed, and of the glass that was taken."""
    true = mask != BKG
    return (true & ~found).sum() / true.sum(), (~true & found).sum() / (~true).sum()


def test_finds_the_tissue_of_a_slide_and_leaves_its_glass(section_seed):
    mask = np.pad(layout(section_seed, MPP, "SCC").mask, 60, constant_values=BKG)
    missed, taken = shares(tissue_of(render(mask, MPP, section_seed)), mask)
    assert missed < 0.004
    assert taken < 0.06


def test_fat_is_not_lost(section_seed):
    found = tissue_of(clean(section_seed))
    # The least of 102 such sections was 0.970: fat frays at its lower edge.
    assert found[skin_mask() == SKIN.index("HYP")].mean() > 0.95


def test_a_brown_stain_is_tissue_too(section_seed):
    missed, taken = shares(tissue_of(stained(section_seed, HAEMATOXYLIN, BROWN)), skin_mask())
    assert missed < 0.1
    assert taken < 0.2


def test_dust_and_the_edge_of_the_coverslip_are_no_tissue(section_seed, random):
    picture = clean(section_seed).astype(np.float32)
    picture[:, 20:23] *= 0.6
    picture[205:208] *= 0.6
    for y, x in zip(random.integers(2, 12, 12), random.integers(30, 320, 12), strict=True):
        picture[y : y + 3, x : x + 3] *= 0.2
    found = tissue_of(picture.astype(np.uint8))
    assert not found[:, :40].any()
    assert not found[200:].any()
    assert not found[:20].any()


def marks_of(picture):
    """What is no tissue, and the tissue, of a picture."""
    seen = Thumbnail(picture, THUMB)
    pen = find_pen(seen)
    tissue = find_tissue(seen, pen)
    return find_marks(seen, pen, tissue), tissue


@pytest.mark.parametrize("pen", PENS)
def test_a_pen_s_stroke_is_a_mark_on_glass_and_tissue_under_it_stays_tissue(section_seed, pen):
    stroke = slice(150, 185)
    picture = marked(undisturbed(section_seed), slice(0, 220), stroke, pen)
    marks, tissue = marks_of(marked(picture, slice(20, 200), slice(6, 28), pen))
    assert marks[:18, 148:187].all()
    assert marks[205:, 148:187].all()
    assert not marks[60:120, 40:].any()
    assert not (marks & tissue).any()
    assert tissue[60:120, stroke].mean() > 0.95
    assert tissue[:20, stroke].mean() < 0.05
    assert tissue[200:, stroke].mean() < 0.05
    assert tissue[:, :34].mean() < 0.02
    assert shares(tissue, skin_mask())[0] < 0.02


def test_specks_are_marks_with_their_rims(section_seed):
    picture = undisturbed(section_seed).copy()
    dust, fibre, crumb = (
        (slice(8, 14), slice(100, 106)),
        (slice(9, 12), slice(160, 163)),
        (slice(4, 18), slice(220, 234)),
    )
    picture[dust], picture[fibre], picture[crumb] = (60, 60, 60), (200, 90, 150), (200, 90, 150)
    marks, found = marks_of(picture)
    for rows, columns in (dust, fibre):
        assert marks[rows.start - 1 : rows.stop + 1, columns.start - 1 : columns.stop + 1].all()
    assert found[crumb].all()
    assert not marks[:, 215:].any(), "a crumb of tissue is none"
    assert marks.sum() < 2 * 16**2


def test_neither_tissue_nor_ink_on_its_margin_nor_pale_fat_is_a_mark(section_seed):
    picture = undisturbed(section_seed).copy()
    picture[60:100, 268:272] = 40  # a crust of ink along the right side
    pale = picture[5:25, 100:200].astype(float)
    picture[5:25, 100:200] = pale * (1.0, 0.985, 0.99)
    assert not marks_of(picture)[0].any()


def test_glass_alone_has_no_tissue(random):
    for level in (255, 241, 215):
        noise = random.normal(level, 2.0, (150, 200, 1)) + random.normal(0, 1.0, (150, 200, 3))
        assert not tissue_of(np.clip(noise, 0, 255).astype(np.uint8)).any()


def test_white_beside_the_scan_changes_nothing(section_seed):
    picture = clean(section_seed)
    framed = np.full((picture.shape[0] + 80, picture.shape[1] + 80, 3), 255, dtype=np.uint8)
    framed[40:-40, 40:-40] = picture
    found = tissue_of(framed)
    assert (found[40:-40, 40:-40] == tissue_of(picture)).mean() > 0.98
    assert not found[:36].any()


def test_only_tissue_at_the_edge_touches_the_edge(section_seed):
    picture = clean(section_seed)
    assert not tissue_of(np.ascontiguousarray(picture[:, 36:]))[:, 0].any()
    assert tissue_of(np.ascontiguousarray(picture[:, 80:]))[60:110, 0].all()


def test_a_real_section_under_a_real_pen_is_tissue():
    path = real_data("slides", "pen-marks.png")
    from PIL import Image

    with Image.open(path) as image:
        # About 2 µm/px: 754 pixels are 1.5 mm.
        picture = np.asarray(image.convert("RGB").resize((image.width // 6, image.height // 6), Image.Resampling.BOX))
    assert tissue_of(picture, Resolution.square(12.0)).mean() > 0.97


def brute_force(windows, tissue, thumb, model, margin_um):
    """Every pixel of tissue as a rectangle in µm against every window as one."""
    kept = []
    for w in windows:
        top, bottom = w.top * model.y - margin_um, (w.top + w.height) * model.y + margin_um
        left, right = w.left * model.x - margin_um, (w.left + w.width) * model.x + margin_um
        rows, columns = np.nonzero(tissue)
        meets = (rows * thumb.y < bottom) & ((rows + 1) * thumb.y > top)
        meets &= (columns * thumb.x < right) & ((columns + 1) * thumb.x > left)
        if meets.any():
            kept.append(w)
    return tuple(kept)


@pytest.mark.parametrize("margin", [0.0, 45.5])
def test_agrees_with_every_pixel_against_every_window(random, margin):
    thumb, model = Resolution(31.0, 26.3), Resolution(6.7, 7.3)
    shape = (620, 810)
    tissue = random.random((int(shape[0] * model.y / thumb.y) + 1, int(shape[1] * model.x / thumb.x) + 1)) < 0.003
    windows = tile_windows(*shape, size=64, overlap=16)
    found, _ = tissue_under(windows, tissue, thumb, model, margin)
    kept = tuple(window for window, count in zip(windows, found, strict=True) if count)
    assert kept == brute_force(windows, tissue, thumb, model, margin)
    assert 0 < len(kept) < len(windows)
