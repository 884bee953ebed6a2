import numpy as np
import pytest
from PIL import Image
from tests.helpers import real_data
from tests.wsi.pictures import clean, out_of_focus

from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window
from ntrm.wsi.quality.checks import FLAGGED, LEAST_PIXELS, as_judged, blur_score, fine_detail, sample_windows

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


def test_the_score_is_that_of_the_median():
    assert blur_score([]) is None
    assert blur_score([None]) is None
    assert blur_score([2.0, 1.9, 0.1]) == 0.0
    assert blur_score([0.1, 0.2, 2.0]) == 1.0
    assert blur_score([0.88]) == pytest.approx(0.4)


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
    names = random.choice(sorted(real_data("glas", "Images").glob("*.jpg")), 8, replace=False)
    for path in names:
        with Image.open(path) as image:
            sharp = as_judged(np.asarray(image.convert("RGB")), Resolution.square(0.62))
        assert blur_score([fine_detail(sharp)]) < FLAGGED["out_of_focus"], path.name
        assert blur_score([fine_detail(out_of_focus(sharp, 1.7))]) >= FLAGGED["out_of_focus"], path.name
