from collections import Counter

import numpy as np
import pytest

from ntrm.core.errors import UsageError
from ntrm.core.labels import CANCERS
from ntrm.metrics.cancer_scores import score_cancers
from ntrm.regions import cancers
from ntrm.regions.cancers import CancerFinding, presence_confidence


def test_presence_is_what_the_rule_says(random):
    areas, weights = random.uniform(0.001, 0.1, 6), random.random(6)
    # The literal integral: walk through the tissue, the surest first, in many small steps.
    edges = np.linspace(0, areas.sum(), 2_000_001)
    order = np.argsort(-weights)
    at = np.searchsorted(np.cumsum(areas[order]), (edges[1:] + edges[:-1]) / 2)
    typical = cancers.TYPICAL_AREA_MM2
    density = np.exp(-(edges[1:] + edges[:-1]) / 2 / typical) / typical
    literal = np.sum(weights[order][np.minimum(at, 5)] * density) * (edges[1] - edges[0])
    assert presence_confidence(areas, weights) == pytest.approx(literal, abs=1e-5)


def test_presence_knows_no_fragments_and_never_falls(random):
    areas, weights = random.uniform(0.001, 0.1, 6), random.random(6)
    whole = presence_confidence(areas, weights)
    assert presence_confidence(np.repeat(areas / 2, 2), np.repeat(weights, 2)) == pytest.approx(whole)
    more = presence_confidence(np.append(areas, random.uniform(0.001, 1)), np.append(weights, random.random()))
    assert more >= whole - 1e-12
    assert 0 <= whole <= weights.max()


def findings(*present):
    return tuple(CancerFinding(name, name in present, 0.0, 0, 0.0, "") for name in CANCERS)


def test_scores_count_sections(random):
    draws = random.random((2, 50, 3)) < 0.4
    predicted, true = ([findings(*np.array(CANCERS)[row]) for row in side] for side in draws)
    scores = score_cancers(predicted, true)
    assert list(scores["cancers"]) == list(CANCERS)
    for column, score in enumerate(scores["cancers"].values()):
        pairs = Counter(zip(*(side[:, column].tolist() for side in draws), strict=True))
        assert (score["found"], score["missed"]) == (pairs[True, True], pairs[False, True])
        assert (score["invented"], score["excluded"]) == (pairs[True, False], pairs[False, False])
        assert score["accuracy"] == pytest.approx((draws[0, :, column] == draws[1, :, column]).mean())
        assert score["sensitivity"] == pytest.approx(draws[0][draws[1, :, column], column].mean())
        assert score["specificity"] == pytest.approx(1 - draws[0][~draws[1, :, column], column].mean())
    assert scores["exact_set_accuracy"] == pytest.approx((draws[0] == draws[1]).all(axis=1).mean())


def test_scores_without_a_case_are_none_not_perfect():
    document = score_cancers([findings("BCC")], [findings("BCC")])
    assert document["cancers"]["BCC"]["specificity"] is None
    assert document["cancers"]["SCC"]["sensitivity"] is None
    assert document["exact_set_accuracy"] == 1
    assert score_cancers([], [])["exact_set_accuracy"] is None
    with pytest.raises(UsageError, match="cannot be compared"):
        score_cancers([findings()], [])
