import numpy as np
import pytest

from ntrm.report.overlay import STEPS, TINT, familiarity_map, window_values


def test_values_are_geometric_means_over_the_windows_of_a_pixel(random):
    height, width = 30, 40
    tops, lefts, sizes = random.integers(0, 20, 12), random.integers(0, 30, 12), random.integers(1, 10, (12, 2))
    values = random.uniform(0.001, 1, 12)
    every = [[[] for _ in range(width)] for _ in range(height)]
    windows = [
        (int(top), int(left), int(high), int(wide), float(p))
        for top, left, (high, wide), p in zip(tops, lefts, sizes, values, strict=True)
    ]
    for top, left, high, wide, p in windows:
        for row in range(top, top + high):
            for column in range(left, left + wide):
                every[row][column].append(p)
    expected = [[np.prod(cell) ** (1 / len(cell)) if cell else np.nan for cell in row] for row in every]
    np.testing.assert_allclose(window_values(windows, (height, width), (height, width)), expected)


def test_windows_have_the_colour_of_their_step_and_the_rest_is_grey(random):
    picture = random.integers(0, 256, (60, 90, 3)).astype(np.uint8)
    windows = [(0, 0, 20, 10, 0.001), (0, 10, 20, 10, 0.01), (0, 20, 20, 10, 0.5)]
    drawn = familiarity_map(picture, windows, (60, 90))
    grey = picture.mean(axis=2)
    for k, (_, colour, _) in enumerate(STEPS):
        expected = (1 - TINT) * grey[:20, 10 * k : 10 * k + 10, None] + TINT * np.array(colour)
        np.testing.assert_allclose(drawn[:20, 10 * k : 10 * k + 10], expected, atol=0.5)
    np.testing.assert_allclose(drawn[20:60, :90], np.repeat(grey[20:, :, None], 3, axis=2), atol=0.5)
    assert drawn.shape[0] > 60  # the legend


@pytest.mark.parametrize("p_value", [0.0, 1e-30])
def test_a_p_value_of_nothing_does_not_outweigh_all_others(p_value):
    windows = [(0, 0, 1, 1, p_value), *[(0, 0, 1, 1, 0.5)] * 20]
    assert window_values(windows, (1, 1), (1, 1))[0, 0] > 0.1
