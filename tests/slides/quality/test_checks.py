import io

import numpy as np
import pytest
from PIL import Image
from tests.helpers import real_data
from tests.slides.pictures import (
    BROWN,
    HAEMATOXYLIN,
    PENS,
    SQUARE,
    clean,
    marked,
    out_of_focus,
    skin_mask,
    stained,
    tissue_of,
)

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window
from ntrm.slides.quality.checks import (
    COLOURS,
    COLUMNS,
    FLAGGED,
    LEAST_COLOURED,
    LEAST_PIXELS,
    NO_TISSUE,
    Grade,
    Quality,
    as_judged,
    assess_quality,
    blur_score,
    few_colours,
    fine_detail,
    sample_windows,
)
from ntrm.slides.quality.thumbnail import Thumbnail, find_pen


def judged(picture, tissue=None, **more):
    thumbnail = Thumbnail(picture, SQUARE)
    tissue = tissue_of(picture) if tissue is None else tissue
    return assess_quality(thumbnail, tissue, find_pen(thumbnail), **more)


def test_clean_sections_raise_no_flag(section_seed):
    qualities = [judged(clean(section_seed + k)) for k in range(2)]
    for quality in qualities:
        assert not any(quality.columns[name] for name in COLUMNS if name != "folds")
        assert quality.has_tissue
    # About one clean section in fifty has a layer that looks like a fold.
    assert sum(quality.folds.flag for quality in qualities) <= 1
    assert any(quality.warnings == () for quality in qualities)


@pytest.mark.parametrize("eosin", [BROWN, HAEMATOXYLIN], ids=["brown", "haematoxylin alone"])
def test_another_stain_is_not_he(section_seed, eosin):
    quality = judged(stained(section_seed, HAEMATOXYLIN, eosin))
    assert quality.not_he.flag
    assert quality.not_he.score > 0.5
    assert any("H&E" in warning for warning in quality.warnings)


def test_a_scan_without_colour_is_not_he(section_seed):
    grey = np.repeat(clean(section_seed).mean(axis=2, keepdims=True), 3, axis=2).astype(np.uint8)
    quality = judged(grey)
    assert quality.not_he.score > 0.95
    assert quality.warnings[0] == NO_TISSUE


def test_a_blurred_section_is_out_of_focus(section_seed):
    picture = clean(section_seed, 6.7)
    thumbnail = picture.reshape(220, 2, 330, 2, 3).mean(axis=(1, 3)).astype(np.uint8)
    tissue = tissue_of(thumbnail)
    windows = sample_windows(tissue, SQUARE, Resolution.square(6.7), picture.shape[:2], size=128)
    sharp = [picture[window.slices] for window in windows]
    assert not judged(thumbnail, tissue, samples=sharp).out_of_focus.flag
    blurred = [out_of_focus(sample, 1.7) for sample in sharp]
    assert judged(thumbnail, tissue, samples=blurred).out_of_focus.flag


@pytest.mark.parametrize("pen", PENS)
def test_pen_is_flagged_and_is_no_other_fault(section_seed, pen):
    quality = judged(marked(clean(section_seed), slice(0, 220), slice(150, 180), pen))
    assert quality.pen.flag
    assert not quality.not_he.flag


def test_ink_over_dense_tissue_is_no_foreign_stain():
    """A section in which a blue stroke crosses so dense a tissue that a part of it is not known for ink."""
    quality = judged(marked(clean(705108783), slice(0, 220), slice(150, 180), "blue"))
    assert quality.pen.flag
    assert quality.not_he.score < 0.2


def test_empty_glass_has_no_fault_but_no_tissue_either():
    quality = judged(np.full((50, 60, 3), 245, dtype=np.uint8))
    assert quality.warnings == (NO_TISSUE,)
    assert quality.has_tissue is False
    assert all(quality.columns[f"{name}_score"] == 0 for name in COLUMNS)


def test_of_a_mask_nothing_else_is_said(section_seed):
    picture = marked(clean(section_seed), slice(0, 220), slice(150, 180), "blue")
    assert len(judged(picture, drawn=0.9).warnings) >= 1
    assert not judged(picture, drawn=0.9).drawn.flag
    (said,) = judged(picture, drawn=0.99).warnings
    assert said.startswith("not a stained section: 99%")


def test_folds_alone_are_not_serious():
    fine, bad = Grade(0.0, False), Grade(1.0, True)
    assert not Quality(fine, fine, bad, fine).serious
    for name in ("not_he", "out_of_focus", "pen", "drawn"):
        assert Quality(**{"not_he": fine, "out_of_focus": fine, "folds": fine, "pen": fine, name: bad}).serious
    assert Quality(fine, fine, fine, fine, has_tissue=False).serious


MASK = SKIN.colourise(skin_mask())


def compressed(picture, quality):
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, format="JPEG", quality=quality)
    with Image.open(stream) as image:
        return np.asarray(image)


def test_few_colours_cover_what_the_commonest_do(random):
    colours = random.permutation(256)[: COLOURS + 8]
    times = random.integers(50, 200, len(colours))
    pixels = np.stack([np.full(times.sum(), 99), np.repeat(colours, times), np.full(times.sum(), 7)], axis=1)
    picture = random.permutation(pixels).astype(np.uint8)[None]
    expected = np.sort(times)[-COLOURS:].sum() / times.sum()
    assert few_colours([picture]) == pytest.approx(expected)
    assert few_colours([picture[:, :400], picture[:, 400:]]) == pytest.approx(expected)
    assert few_colours([picture[:, : LEAST_COLOURED - 1]]) == 0.0
    assert few_colours([]) == 0.0


@pytest.mark.parametrize("quality", [None, 20])
def test_sections_have_not_even_when_they_were_compressed(section_seed, quality):
    picture = clean(section_seed, 6.7)
    picture = picture if quality is None else compressed(picture, quality)
    assert few_colours([picture]) < 0.7 * FLAGGED["drawn"]


def test_blank_glass_and_the_black_beside_it_are_not_drawn(random):
    flat = np.full((80, 90, 3), 244, dtype=np.uint8)
    noisy = random.normal(240, 2, (80, 90, 3)).astype(np.uint8)
    for glass in (flat, noisy):
        framed = np.pad(glass, ((9, 9), (9, 9), (0, 0)))
        assert [few_colours([each]) for each in (glass, framed)] == [0.0, 0.0]


THUMB, MODEL = Resolution.square(13.4), Resolution.square(6.7)


def test_blur_takes_fine_detail_away_step_by_step(section_seed):
    sharp = clean(section_seed, 6.7)[100:300, 150:500]
    details = [fine_detail(sharp), *(fine_detail(out_of_focus(sharp, sigma)) for sigma in (0.7, 1.2, 2.0))]
    assert details == sorted(details, reverse=True)
    assert details[0] > 1.1
    assert details[2] < 0.9


def test_white_noise_has_the_detail_that_theory_gives(random):
    # Variances of white noise after the filters 1 - g1 and g1 - g2: sums over their squared transfer functions.
    grey = np.clip(random.normal(150, 8, (400, 400, 1)), 0, 255).astype(np.uint8).repeat(3, axis=2)
    grey[:40] = 250
    f = np.fft.fftfreq(256) * 2 * np.pi
    square = f[:, None] ** 2 + f[None, :] ** 2
    g1, g2 = (np.exp(-square * s**2 / 2) for s in (1, 2))
    expected = np.sqrt(((1 - g1) ** 2).mean() / ((g1 - g2) ** 2).mean())
    tissue = np.zeros((400, 400), dtype=bool)
    tissue[70:] = True
    assert fine_detail(grey, tissue) == pytest.approx(expected, rel=0.05)


def test_too_little_tissue_tells_nothing():
    picture = np.full((60, 60, 3), 250, dtype=np.uint8)
    assert fine_detail(picture) is None
    picture[5:15, 5:15] = 120
    assert fine_detail(picture) is None
    assert LEAST_PIXELS > 100
    assert fine_detail(np.full((90, 90, 3), (240, 150, 210), dtype=np.uint8)) is None, "a flat picture has no detail"


def test_samples_come_from_the_fuller_half(random):
    tissue = random.random((90, 130)) < np.linspace(0, 1, 130)
    windows = sample_windows(tissue, Resolution.square(10), Resolution.square(4), (225, 325), count=1000, size=30)
    shares = {}
    for top in range(0, 225 - 30 + 1, 30):
        for left in range(0, 325 - 30 + 1, 30):
            rows, columns = (slice(int(n * 0.4), int(np.ceil((n + 30) * 0.4 - 1e-9))) for n in (top, left))
            shares[top, left] = tissue[rows, columns].mean()
    middle = np.median([share for share in shares.values() if share > 0])
    assert [(w.top, w.left) for w in windows] == [place for place, share in shares.items() if share >= middle]


def test_a_slide_smaller_than_a_sample_is_one_sample_and_glass_is_none():
    assert sample_windows(np.ones((5, 5), dtype=bool), THUMB, MODEL, (10, 10)) == (Window(0, 0, 10, 10),)
    assert sample_windows(np.zeros((5, 5), dtype=bool), THUMB, MODEL, (10, 10)) == ()


def test_fine_pixels_are_put_together_before_they_are_judged(random):
    fine = random.integers(0, 256, (60, 40, 3), dtype=np.uint8)
    means = fine.reshape(30, 2, 20, 2, 3).astype(np.float64).mean(axis=(1, 3))
    np.testing.assert_array_equal(as_judged(fine, Resolution.square(0.62)), np.floor(means + 0.5))
    for mpp, shape in ((0.3, (15, 10, 3)), (1.0, (30, 20, 3)), (1.2, (60, 40, 3)), (6.7, (60, 40, 3))):
        assert as_judged(fine, Resolution.square(mpp)).shape == shape
    assert as_judged(fine, Resolution(0.62, 1.3)).shape == (60, 20, 3)
    # As many pixels of each window are left at any µm/px.
    mpp = Resolution.square(0.3)
    for window in sample_windows(np.ones((30, 30), dtype=bool), THUMB, mpp, (1340, 1340), size=64):
        assert as_judged(np.zeros((window.height, window.width, 3), dtype=np.uint8), mpp).shape == (64, 64, 3)


def test_no_sharp_image_of_colon_is_called_blurred_and_every_blurred_one_is(random):
    names = random.choice(sorted(real_data("glas", "Images").glob("*.jpg")), 4, replace=False)
    for path in names:
        with Image.open(path) as image:
            sharp = as_judged(np.asarray(image.convert("RGB")), Resolution.square(0.62))
        assert blur_score([fine_detail(sharp)]) < FLAGGED["out_of_focus"], path.name
        assert blur_score([fine_detail(out_of_focus(sharp, 1.7))]) >= FLAGGED["out_of_focus"], path.name
