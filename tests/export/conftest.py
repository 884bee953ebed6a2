import numpy as np
import pytest

from ntrm.core.labels import IGNORE


@pytest.fixture
def block_mask(random):
    """Rectangles of the twelve classes and of nothing, of an odd size."""
    blocks = random.integers(0, 13, (33, 41)).astype(np.uint8)
    blocks[blocks == 12] = IGNORE
    return np.kron(blocks, np.ones((19, 30), np.uint8))[:-5, :-7]
