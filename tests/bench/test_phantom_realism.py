"""The facts about real masks, and how near the phantom comes to them."""

import numpy as np
import pytest
from bench.phantom_realism import REAL_BOUNDARY, REAL_SHARE, REAL_SHARE_LARGE, calibrate, tissue_share

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.generate import cancer_quotas
from ntrm.phantom.layout import paint_section
from ntrm.phantom.versions import VERSIONS


def test_tables_are_shares():
    assert sum(REAL_SHARE.values()) == pytest.approx(1.0, abs=1e-3)
    assert sum(REAL_SHARE_LARGE.values()) == pytest.approx(1.0, abs=2e-3)
    assert tuple(REAL_SHARE) == tuple(REAL_SHARE_LARGE) == SKIN.names
    matrix = np.array(REAL_BOUNDARY)
    assert matrix.shape == (12, 12)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-3)
    assert not np.diag(matrix).any()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_phantom_resembles_the_real_masks(seed, version):
    """Forty sections in the real ratio of cancers, drawn anew each run, at a quarter of the resolution.

    Over 24 such samples at half the resolution, which changes it by 0.001, the correlation was at least 0.968, and the
    bounds lie at least four standard deviations of a tissue's share away.
    """
    cancers = [cancer for cancer, number in cancer_quotas(40).items() for _ in range(number)]
    result = calibrate(
        paint_section(draw_plan(seed + k, cancer, version), 26.8).mask for k, cancer in enumerate(cancers)
    )
    assert result.correlation > 0.93
    for name, ratio in result.ratio.items():
        slack = 4.0 if REAL_SHARE[name] < 0.1 else 3.0
        assert 1 / slack < ratio < slack, name


def test_calibrate_counts_what_it_is_given():
    mask = np.array([[SKIN.index("RET"), SKIN.index("HYP")], [SKIN.index("RET"), SKIN.index("BKG")]], dtype=np.uint8)
    result = calibrate([mask, mask])
    assert result.share["RET"] == pytest.approx(2 / 3)
    assert result.boundary[SKIN.index("HYP"), SKIN.index("RET")] == 0.5
    assert result.ratio["HYP"] == pytest.approx((1 / 3) / tissue_share(REAL_SHARE)["HYP"])


def test_nothing_to_compare_is_refused():
    with pytest.raises(UsageError, match="nothing to compare"):
        calibrate([])
