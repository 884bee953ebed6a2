from types import SimpleNamespace

import numpy as np
import pytest

from ntrm.core.errors import DataError, UsageError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.evaluation.measuring import MasksToMeasure, measure, stream_map


def square(number):
    return number * number


def fail(number):
    raise DataError("cannot do it", got=number)


def test_results_come_in_order_from_several_processes():
    assert list(stream_map(square, iter(range(9)), jobs=2)) == [n * n for n in range(9)]


def test_items_are_made_while_results_are_taken():
    made = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    stream = stream_map(square, items(), jobs=1)
    assert next(stream) == 0
    assert made == [0]


def test_an_error_arrives_as_it_was():
    with pytest.raises(DataError, match=r"(?s)cannot do it.*3"):
        list(stream_map(fail, [3]))


def test_no_jobs_are_refused():
    with pytest.raises(UsageError, match="jobs"):
        list(stream_map(square, [1], jobs=0))


def test_nothing_gives_nothing():
    assert list(stream_map(square, [], jobs=2)) == []
    assert np.sum(list(stream_map(square, [2, 3]))) == 13


@pytest.mark.parametrize("annotated", [True, False])
def test_cancers_are_judged_where_the_truth_is_known(annotated):
    """A right tumour of which nobody annotated anything is not invented; one that is contradicted is."""
    mask = np.full((60, 60), SKIN.index("RET"), dtype=np.uint8)
    mask[:10] = SKIN.index("EPI")
    mask[20:50, 20:50] = SKIN.index("BCC")
    truth = np.where(mask == SKIN.index("BCC"), SKIN.index("RET") if annotated else IGNORE, mask).astype(np.uint8)
    same = np.arange(256, dtype=np.uint8)
    confidence = np.ones(mask.shape, dtype=np.float32)
    section = SimpleNamespace(mask=truth)
    found = measure(MasksToMeasure(section, same, mask, confidence, None, SKIN, Resolution.square(6.7)))
    assert [finding.name for finding in found.cancers if finding.present] == ["BCC"] * annotated
    assert not any(finding.present for finding in found.true_cancers)
