"""Fine tissues: codes of their own, each under its label."""

import numpy as np
import pytest

from ntrm.core.labels import SKIN
from ntrm.phantom.tissues import FINE, KINDS, codes_of, fine_mask, labels_of


@pytest.mark.parametrize("name", FINE)
def test_what_was_painted_over_is_forgotten(name):
    labels = np.arange(len(SKIN), dtype=np.uint8)
    fine = fine_mask(np.full(len(SKIN), KINDS[name]), labels)
    under = np.isin(labels, [SKIN.index(label) for label in FINE[name]])
    assert np.isin(fine[under], codes_of(name)).all()
    assert np.array_equal(fine[~under], labels[~under])
    assert np.array_equal(labels_of(fine), labels)
