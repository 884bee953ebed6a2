"""Fine tissues: codes of their own, each under its label."""

import numpy as np
import pytest

from ntrm.core.labels import IGNORE, SKIN
from ntrm.phantom.tissues import CODES, FINE, KINDS, PASSING, codes_of, fine_mask, labels_of


def test_codes_lie_above_the_labels_and_below_ignore():
    assert len(set(CODES.values())) == len(CODES) == sum(map(len, FINE.values()))
    assert len(SKIN) <= min(CODES.values()) <= max(CODES.values()) < IGNORE
    assert set(PASSING) <= set(FINE)
    assert codes_of("muscle", "scar") == [CODES["muscle", "RET"], CODES["scar", "RET"]]


def test_a_fine_mask_keeps_its_labels():
    labels = np.array([*range(len(SKIN)), IGNORE], dtype=np.uint8)
    assert np.array_equal(labels_of(labels), labels)
    assert all(labels_of(np.array(code)) == SKIN.index(label) for (_, label), code in CODES.items())


@pytest.mark.parametrize("name", FINE)
def test_what_was_painted_over_is_forgotten(name):
    labels = np.arange(len(SKIN), dtype=np.uint8)
    fine = fine_mask(np.full(len(SKIN), KINDS[name]), labels)
    under = np.isin(labels, [SKIN.index(label) for label in FINE[name]])
    assert np.isin(fine[under], codes_of(name)).all()
    assert np.array_equal(fine[~under], labels[~under])
    assert np.array_equal(labels_of(fine), labels)
