from types import SimpleNamespace

import numpy as np
import pytest

from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.evaluation.measuring import MasksToMeasure, measure


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
