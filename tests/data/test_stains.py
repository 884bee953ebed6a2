"""Stains of tissue that was stained with known ones, and what is left alone."""

import json
import math

import numpy as np
import pytest

from ntrm.data.stains import LEAST_PIXELS, StainError, Stains, estimate_stains, exchange

HAEMATOXYLIN, EOSIN = np.array([0.650, 0.704, 0.286]), np.array([0.072, 0.990, 0.105])
OTHER = np.array([[0.80, 0.55, 0.24], [0.20, 0.80, 0.57]])


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def amounts_of(random, count=20_000, most=(1.2, 0.8)):
    """Of two stains: a twentieth of the pixels has one of them alone, as nuclei and collagen nearly have."""
    amounts = random.uniform(0.05, 1, (count, 2)) * most
    amounts[: count // 20, 0] = 0
    amounts[count // 20 : count // 10, 1] = 0
    return amounts[amounts.sum(axis=1) > 0.2]


def degrees(one, other):
    return math.degrees(math.acos(min(1.0, float(np.dot(one, other)))))


@pytest.mark.parametrize("vectors", [np.array([HAEMATOXYLIN, EOSIN]), OTHER])
def test_two_stains_are_found_with_their_strengths(vectors, random):
    vectors, amounts = unit(vectors), amounts_of(random)
    found = estimate_stains(amounts @ vectors + random.normal(0, 0.002, (len(amounts), 3)))
    assert degrees(found.vectors[0], vectors[0]) < 2
    assert degrees(found.vectors[1], vectors[1]) < 2
    np.testing.assert_allclose(found.strengths, np.quantile(amounts, 0.99, axis=0), rtol=0.03)
    np.testing.assert_allclose(found.density, (amounts @ vectors).mean(axis=0), rtol=0.01)


def test_exchanged_stains_are_the_same_amounts_of_the_others(random):
    own, wanted, amounts = unit(np.array([HAEMATOXYLIN, EOSIN])), unit(OTHER), amounts_of(random)
    stronger = amounts * [1.5, 0.7]
    matrix = np.array(exchange(*(estimate_stains(each) for each in (amounts @ own, stronger @ wanted)), "macenko"))
    np.testing.assert_allclose(amounts @ own @ matrix.T, stronger @ wanted, atol=0.02)


def test_grey_tissue_and_too_little_of_it_have_no_stains(random):
    grey = random.uniform(0.2, 1, (5000, 1)) + random.normal(0, 0.02, (5000, 3))
    with pytest.raises(StainError, match="no colour"):
        estimate_stains(grey)
    with pytest.raises(StainError, match="too little") as caught:
        estimate_stains(amounts_of(random)[: LEAST_PIXELS - 1] @ OTHER)
    assert (caught.value.got, caught.value.expected) == ("499 pixels of tissue", "at least 500")


def test_stains_come_back_from_json(random):
    both = estimate_stains(amounts_of(random) @ unit(OTHER))
    for stains in (both, Stains(both.density, None, None)):
        assert Stains.parse(json.loads(json.dumps(stains.as_dict()))) == stains
