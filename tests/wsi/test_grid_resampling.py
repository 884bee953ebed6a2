"""Means over boxes against the literal loop."""

import numpy as np
import pytest
from tests.wsi import making

from ntrm.wsi.grid import SUBPIXELS, box_weights, resample


def literal(pixels, step_y, step_x, rows, columns):
    """Means over the exact areas, one output pixel at a time."""
    height, width = pixels.shape[:2]
    out = np.zeros((rows, columns, 3))
    for i in range(rows):
        for j in range(columns):
            total = area = 0.0
            for y in range(height):
                share_y = min(y + 1, (i + 1) * step_y) - max(y, i * step_y)
                for x in range(width):
                    share = max(0, share_y) * max(0, min(x + 1, (j + 1) * step_x) - max(x, j * step_x))
                    total, area = total + share * pixels[y, x].astype(float), area + share
            out[i, j] = total / area
    return out


@pytest.mark.parametrize(("step_y", "step_x"), [(2.0, 3.0), (1.0, 4.0), (1.5, 2.75), (3.21, 1.07)])
def test_means_over_areas(step_y, step_x, random):
    pixels = random.integers(0, 256, (17, 23, 3), dtype=np.uint8)
    rows, columns = round(17 / step_y), round(23 / step_x)
    down = box_weights(0, rows, step_y, 0, 17, 17)
    across = box_weights(0, columns, step_x, 0, 23, 23)
    found = resample(pixels[down.start :][: down.length, across.start :][:, : across.length], down, across)
    exact = (step_y * SUBPIXELS).is_integer() and (step_x * SUBPIXELS).is_integer()
    wanted = literal(pixels, step_y, step_x, rows, columns)
    # A border off by half a subpixel moves at most 1/128 of two pixels' weight along each axis.
    np.testing.assert_allclose(found, wanted, atol=0.501 if exact else 0.501 + 4 * 255 / 128 / min(step_y, step_x))


def test_interpolation_where_the_input_is_coarser(random):
    line = random.integers(0, 256, 9, dtype=np.uint8)
    pixels = np.broadcast_to(line[None, :, None], (4, 9, 3))
    step = 0.625
    across, down = box_weights(0, 14, step, 0, 9, 9), box_weights(0, 4, 1, 0, 4, 4)
    found = resample(pixels, down, across)[0, :, 0]
    centres = (np.arange(14) + 0.5) * step - 0.5
    np.testing.assert_allclose(found, np.interp(centres, np.arange(9), line), atol=0.501 + 255 / SUBPIXELS)


def test_the_same_pixels_stay_the_same(random):
    pixels = making.tissue(random, 30, 40)
    boxes = box_weights(0, 30, 1.0, 0, 30, 30), box_weights(0, 40, 1.0, 0, 40, 40)
    np.testing.assert_array_equal(resample(pixels, *boxes), pixels)


def test_a_constant_stays_constant_to_the_border(random):
    value = int(random.integers(0, 256))
    pixels = np.full((53, 61, 3), value, dtype=np.uint8)
    step = float(random.uniform(0.6, 9))
    sides = [max(1, round(length / step)) for length in (53, 61)]
    boxes = [box_weights(0, side, step, 0, length, length) for side, length in zip(sides, (53, 61), strict=True)]
    part = pixels[boxes[0].start :][: boxes[0].length, boxes[1].start :][:, : boxes[1].length]
    assert (resample(part, *boxes) == value).all()


def test_large_boxes_are_summed_exactly(random):
    pixels = np.full((2000, 1900, 3), 255, dtype=np.uint8)
    pixels[0, 0] = 0
    boxes = box_weights(0, 2, 1000.0, 0, 2000, 2000), box_weights(0, 2, 950.0, 0, 1900, 1900)
    assert (resample(pixels, *boxes) == 255).all()


def test_parts_of_an_axis_are_the_whole_axis(random):
    step, origin = float(random.uniform(1, 7)), float(random.uniform(0, 5))
    whole = box_weights(0, 30, step, origin, 30 * step, 400).weights.toarray()
    start = box_weights(0, 30, step, origin, 30 * step, 400).start
    for first in range(0, 30, 7):
        part = box_weights(first, min(first + 7, 30), step, origin, 30 * step, 400)
        at = part.start - start
        np.testing.assert_array_equal(part.weights.toarray(), whole[first : first + 7, at : at + part.length])


@pytest.mark.parametrize(("step_y", "step_x"), [(2, 2), (3, 5), (20, 13), (1, 3)])
def test_blocks_of_whole_pixels_are_means_rounded_half_up(step_y, step_x, random):
    pixels = random.integers(0, 256, (41, 53, 3), dtype=np.uint8)
    rows, columns = -(-41 // step_y), -(-53 // step_x)
    down, across = box_weights(0, rows, step_y, 0, 41, 41), box_weights(0, columns, step_x, 0, 53, 53)
    assert (down.whole, across.whole) == (step_y, step_x)
    found = resample(pixels, down, across)
    for y in range(rows):
        for x in range(columns):
            block = pixels[y * step_y : (y + 1) * step_y, x * step_x : (x + 1) * step_x].reshape(-1, 3)
            wanted = (2 * block.sum(axis=0, dtype=int) + len(block)) // (2 * len(block))
            assert found[y, x].tolist() == wanted.tolist()


def test_boxes_that_are_no_blocks_are_known_as_such():
    assert box_weights(0, 5, 2.0, 0, 10, 10).whole == 2
    assert box_weights(0, 5, 2.0, 0.5, 10, 11).whole == 0
    assert box_weights(0, 4, 2.5, 0, 10, 10).whole == 0
    assert box_weights(0, 20, 0.5, 0, 10, 10).whole == 0
    assert box_weights(3, 5, 2.0, 0, 10, 10).whole == 2
    assert box_weights(0, 10, 1.0, 0, 10, 10).whole == 1
