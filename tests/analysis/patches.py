"""Small masks for the tests of runs."""

import numpy as np


def patchy(random):
    """Patches of 4 values; now and then a single row or column, or one value only."""
    shape = tuple(int(n) for n in random.integers(1, 24, 2))
    values = random.integers(0, 4, shape)
    return np.kron(values, np.ones((2, 1))).astype(np.uint8)[: shape[0] + 1]
