import numpy as np

from ntrm.core.pixels import mean_colours, sampled


def test_samples_are_the_pixels_in_the_middle(random):
    labels = random.integers(0, 12, (37, 52), dtype=np.uint8)
    shape = tuple(int(n) for n in random.integers(1, 90, 2))
    expected = [
        [labels[int((row + 0.5) * 37 / shape[0]), int((column + 0.5) * 52 / shape[1])] for column in range(shape[1])]
        for row in range(shape[0])
    ]
    np.testing.assert_array_equal(sampled(labels, shape), expected)
    np.testing.assert_array_equal(sampled(labels, (37, 52)), labels)


def test_mean_colours_are_those_of_the_pixels(random):
    picture = random.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    labels = random.integers(0, 3, (40, 50), dtype=np.uint8)
    found = mean_colours(picture, labels, 4)
    for index in range(3):
        np.testing.assert_allclose(found[index], picture[labels == index].mean(axis=0))
    assert np.isnan(found[3]).all()
