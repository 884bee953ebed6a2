from io import BytesIO
from types import SimpleNamespace

import numpy as np
from PIL import Image

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.core.pixels import OPACITY
from ntrm.results.paths import OVERLAY, PICTURE, THUMBNAIL
from ntrm.segment.pictures import (
    SMALLEST_SIDE,
    THUMBNAIL_BYTES,
    overlay,
    resized,
    small_jpeg,
    tinted,
    write_overlays,
    write_plain,
)


def test_tissues_are_tinted_and_the_rest_stays(random):
    picture = random.integers(0, 256, (3, 1, 3), dtype=np.uint8)
    labels = np.array([[SKIN.index("BCC")], [SKIN.index("BKG")], [255]], dtype=np.uint8)
    shown = overlay(picture, labels, SKIN)
    np.testing.assert_array_equal(shown[1:], picture[1:])
    tinted = [
        (1 - OPACITY) * was + OPACITY * colour for was, colour in zip(picture[0, 0], (127, 255, 255), strict=True)
    ]
    np.testing.assert_allclose(shown[0, 0], tinted, atol=0.51)


def test_thumbnails_have_at_most_so_many_bytes(random):
    noise = random.integers(0, 256, (160, 160, 3), dtype=np.uint8)
    content = small_jpeg(noise, THUMBNAIL_BYTES)
    assert len(content) <= THUMBNAIL_BYTES
    with Image.open(BytesIO(content)) as stored:
        assert stored.format == "JPEG"
        assert max(stored.size) <= 160
    assert len(small_jpeg(np.zeros((160, 160, 3), dtype=np.uint8), THUMBNAIL_BYTES)) < 2000


def test_all_pictures_of_a_slide_are_written_and_the_same_every_time(tmp_path, random):
    labels = np.kron(random.integers(0, 12, (20, 30)), np.ones((10, 10), dtype=int)).astype(np.uint8)
    picture = random.integers(0, 256, (100, 150, 3), dtype=np.uint8)
    shares = {name: 1 / 11 for name in SKIN.names if name != "BKG"}
    summary = SimpleNamespace(pieces=(), tissue_fractions=shares, corrected=None)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_overlays(
            tmp_path / name, tinted(picture, labels, SKIN), labels.shape, SKIN, Resolution.square(10.0), summary
        )
        write_plain(tmp_path / name, picture)
    for name in (OVERLAY, PICTURE, THUMBNAIL):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    with Image.open(tmp_path / "a" / OVERLAY) as stored:
        assert stored.info == {}
        shown = np.asarray(stored)
    assert shown.shape[1] == SMALLEST_SIDE
    assert shown.shape[0] > 800  # the legend is below
    plain = overlay(resized(picture, SMALLEST_SIDE, SMALLEST_SIDE), labels, SKIN)
    np.testing.assert_array_equal(shown[:600], plain[:600])
    with Image.open(tmp_path / "a" / PICTURE) as stored:
        assert stored.size == (150, 100)
        assert "exif" not in stored.info
