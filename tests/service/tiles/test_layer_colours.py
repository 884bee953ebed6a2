import io

import numpy as np
from PIL import Image

from ntrm.service.tiles.layer_colours import indexed_png


def test_another_library_reads_the_same_pixels_and_colours(random):
    pixels = random.integers(0, 7, (33, 50)).astype(np.uint8)
    colours = random.integers(0, 256, (7, 3)).astype(np.uint8)
    alpha = random.integers(0, 256, 7).astype(np.uint8)
    with Image.open(io.BytesIO(indexed_png(pixels, colours, alpha))) as image:
        image.verify()
    with Image.open(io.BytesIO(indexed_png(pixels, colours, alpha))) as image:
        assert image.mode == "P"
        np.testing.assert_array_equal(np.asarray(image), pixels)
        shown = np.asarray(image.convert("RGBA"))
    np.testing.assert_array_equal(shown[..., :3], colours[pixels])
    np.testing.assert_array_equal(shown[..., 3], alpha[pixels])
