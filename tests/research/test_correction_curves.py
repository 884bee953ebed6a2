"""Means and intervals over sections, and the formula of ``spread`` with weights that can be learned."""

import numpy as np
import pytest
import torch
from research.correction_curves import group_of, interval, row_of, wrong_regions
from research.correction_learning import Carrying, Prepared, clicked, learn
from research.simulated_clicks import Section, Truth
from research.spread_arms import names_after
from tests.correction.test_graph import made
from tests.correction.test_parts import blocks
from tests.correction.test_spread import BCC, EPI, RET, chain, random_graph

from ntrm.core.labels import IGNORE
from ntrm.correction.spread import PROBABILITIES, Settings
from research import correction_learning


def test_intervals_are_over_sections_whatever_the_number_of_stains(random):
    values = random.random(6)
    alone, twice = interval(values, list("abcdef")), interval(np.repeat(values, 2), list("aabbccddeeff"))
    assert twice == pytest.approx(alone)
    assert alone[0] < values.mean() < alone[1]


def test_a_phantom_section_in_two_stains_is_one():
    names = ["report-BCC_1-0", "report-BCC_1-1", "report-BCC_2-0", "renders-BCC_11"]
    assert [group_of(name) for name in names] == ["report-BCC_1", "report-BCC_1", "report-BCC_2", "renders-BCC_11"]


def test_a_region_is_wrong_if_most_of_what_is_known_of_it_is(random):
    mask, truth = blocks(random), blocks(random)
    section = Section(made(mask), Truth.of_phantom(truth))
    pixels, wrong = wrong_regions(section)
    regions = np.append(section.graph.region, -1)[section.graph.runs.dense()]
    known = (truth != IGNORE) & (mask != IGNORE)
    for region in range(len(pixels)):
        own = regions == region
        assert pixels[region] == own.sum()
        assert wrong[region] == (2 * (own & known & (mask != truth)).sum() > (own & known).sum())


def test_rows_are_written_without_the_zero_before_the_point():
    assert row_of([0.25, -0.25, 1.0]) == ".250 | −.250 | 1.000"


@pytest.mark.failed_once(1839522548)  # a class that nobody gave would lead
@pytest.mark.parametrize("how", ["looks", "looks and relations"])
def test_before_it_has_learned_the_formula_is_that_of_the_product(how, random):
    graph, clicks = random_graph(random), {2: EPI, 7: RET, 11: BCC}
    settings = Settings(weights={"colour": 1.0, PROBABILITIES: 1.0}, least=0.01)
    carrying = Carrying(edges=how != "looks", borders=False, steps=settings.steps)
    with torch.no_grad():
        carrying.looks[[2, 3]] = -2 * np.log(settings.width)
        carrying.share.fill_(50.0)
    section = Section(graph, Truth.of_phantom(np.repeat([graph.tissue.astype(np.uint8)] * 2, 2, axis=1)))
    expected = names_after(graph, clicks, how, settings)
    leading = carrying(Prepared(section), clicks).detach().topk(2, dim=1).values
    clear = (leading[:, 0] - leading[:, 1] > 1e-4).numpy()  # elsewhere the last bit decides
    assert clear.sum() > 10
    np.testing.assert_array_equal(carrying.names(Prepared(section), clicks)[clear], expected[clear])


@pytest.mark.failed_once(1402459571)
def test_what_is_learned_has_a_gradient_for_every_weight(random):
    graph = chain([EPI, EPI, RET, RET, BCC, EPI, BCC, BCC, RET, RET] * 2, random.random(20))
    truth = random.integers(0, 3, (2, 40)).astype(np.uint8)
    carrying = Carrying(edges=True, borders=True, steps=3)
    carrying.loss(Prepared(Section(graph, Truth.of_phantom(truth))), {2: EPI, 7: RET}).backward()
    # Groups that the graph does not have, and the limit of a margin that is not reached or its factor, have none.
    assert all(value.grad is not None and value.grad.isfinite().all() for value in carrying.parameters())
    assert carrying.ridge.grad.abs() > 0
    assert carrying.gate.grad.abs().min() > 0


@pytest.mark.failed_once(1824656994)
def test_learning_moves_the_weights_and_the_loss_falls(monkeypatch, random):
    monkeypatch.setattr(correction_learning, "ROUNDS", 1)
    monkeypatch.setattr(correction_learning, "EPOCHS", 10)
    monkeypatch.setattr(correction_learning, "CLICKS", (4,))
    graph = random_graph(random)
    truth = random.integers(0, 3, len(graph)).astype(np.uint8)
    section = Prepared(Section(graph, Truth.of_phantom(np.repeat([truth] * 2, 2, axis=1))))
    carrying = Carrying(edges=True, borders=False, steps=2)
    clicks = dict(clicked(carrying, section, "parts", 0)[0])  # those that are learned from
    before = carrying.loss(section, clicks).item()
    learn(carrying, [section], [])
    assert carrying.loss(section, clicks).item() < before
