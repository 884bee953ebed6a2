import numpy as np
import pytest
from skimage.measure import block_reduce

from ntrm.core.errors import DataError
from ntrm.core.pixels import block_means, check_picture, mean_colours, sampled


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4), (0, 4, 3)])
def test_refuses_what_is_no_picture(shape):
    with pytest.raises(DataError, match="not an RGB picture"):
        check_picture(np.zeros(shape, dtype=np.uint8))
    with pytest.raises(DataError, match="not an RGB picture"):
        check_picture(np.zeros((4, 4, 3), dtype=np.float32))


def test_samples_are_the_pixels_in_the_middle(random):
    labels = random.integers(0, 12, (37, 52), dtype=np.uint8)
    shape = tuple(int(n) for n in random.integers(1, 90, 2))
    expected = [
        [labels[int((row + 0.5) * 37 / shape[0]), int((column + 0.5) * 52 / shape[1])] for column in range(shape[1])]
        for row in range(shape[0])
    ]
    np.testing.assert_array_equal(sampled(labels, shape), expected)
    np.testing.assert_array_equal(sampled(labels, (37, 52)), labels)


@pytest.mark.parametrize("factors", [(1, 1), (3, 2), (2, 5)])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_block_means_agree_with_scikit_image(random, factors, rest):
    values = random.normal(size=(11, 13, *rest)).astype(np.float32)
    sides = [(0, -size % factor) for size, factor in zip(values.shape, factors, strict=False)]
    full = np.pad(values, [*sides, *((0, 0) for _ in rest)], mode="edge")
    expected = block_reduce(full, (*factors, *(1 for _ in rest)), np.mean)
    np.testing.assert_allclose(block_means(values, factors), expected, atol=1e-6)


def test_mean_colours_are_those_of_the_pixels(random):
    picture = random.integers(0, 256, (600, 50, 3), dtype=np.uint8)
    labels = random.integers(0, 3, (600, 5), dtype=np.uint8).repeat(10, axis=1)
    found = mean_colours(picture, labels, 4)
    for index in range(3):
        np.testing.assert_allclose(found[index], picture[labels == index].mean(axis=0))
    assert np.isnan(found[3]).all()
