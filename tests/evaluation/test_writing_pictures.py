import numpy as np
import pytest
from tests.evaluation.small import draw_mask

from ntrm.evaluation.writing import most_changed


@pytest.mark.parametrize(("shape", "side"), [((40, 60), 16), ((40, 60), 15), ((10, 60), 32), ((5, 7), 64)])
def test_the_field_with_the_most_changes_is_found(shape, side, random):
    truth = draw_mask(random, *shape, ignored=0.1)
    coarse, final = (np.where(random.random(shape) < 0.8, truth, 0).astype(np.uint8) for _ in range(2))
    rows, columns = most_changed(truth, coarse, final, side)
    changed = ((coarse == truth) != (final == truth)) & (truth != 255)
    high, wide = min(side, shape[0]), min(side, shape[1])
    assert (rows.stop - rows.start, columns.stop - columns.start) == (high, wide)
    assert min(rows.start, columns.start) >= 0
    assert rows.stop <= shape[0]
    assert columns.stop <= shape[1]
    best = max(
        changed[top : top + high, left : left + wide].sum()
        for top in range(shape[0] - high + 1)
        for left in range(shape[1] - wide + 1)
    )
    assert changed[rows, columns].sum() == best
