import numpy as np
from PIL import Image

from ntrm.labels import SKIN
from ntrm.slide.outputs import OPACITY, overlay, sampled, write_png


def test_samples_are_the_pixels_in_the_middle(random):
    labels = random.integers(0, 12, (37, 52), dtype=np.uint8)
    shape = tuple(int(n) for n in random.integers(1, 90, 2))
    expected = [
        [labels[int((row + 0.5) * 37 / shape[0]), int((column + 0.5) * 52 / shape[1])] for column in range(shape[1])]
        for row in range(shape[0])
    ]
    np.testing.assert_array_equal(sampled(labels, shape), expected)
    np.testing.assert_array_equal(sampled(labels, (37, 52)), labels)


def test_tissues_are_tinted_and_the_rest_stays(random):
    picture = random.integers(0, 256, (3, 1, 3), dtype=np.uint8)
    labels = np.array([[SKIN.index("BCC")], [SKIN.index("BKG")], [255]], dtype=np.uint8)
    shown = overlay(picture, labels, SKIN)
    np.testing.assert_array_equal(shown[1:], picture[1:])
    tinted = [
        (1 - OPACITY) * was + OPACITY * colour for was, colour in zip(picture[0, 0], (127, 255, 255), strict=True)
    ]
    np.testing.assert_allclose(shown[0, 0], tinted, atol=0.51)


def test_pictures_are_the_same_file_every_time_and_hold_pixels_only(tmp_path, random):
    picture = random.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    for name in ("a.png", "b.png"):
        write_png(tmp_path / name, picture)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with Image.open(tmp_path / "a.png") as stored:
        np.testing.assert_array_equal(np.asarray(stored), picture)
        assert stored.info == {}
