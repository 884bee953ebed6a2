"""What is counted of a section, which edges are cut, and probabilities moved by the section's own amounts."""

import numpy as np
import pytest

pytest.importorskip("research.section_networks", reason="this copy has no folder research/")

import torch
from research.relation_edges import chosen_edges, rank_correlation
from research.relation_prior import re_estimated
from research.relation_scores import graph_scores, near_borders, without_specks
from skimage.measure import label

from ntrm.core.labels import IGNORE


def test_pixels_at_borders_have_two_tissues_around_them(random):
    truth = np.kron(random.integers(0, 3, (3, 4)), np.ones((9, 8), dtype=int)).astype(np.uint8)
    truth[random.random(truth.shape) < 0.1] = IGNORE
    found = near_borders(truth, torch.device("cpu"), near=2)
    for y, x in np.ndindex(truth.shape):
        around = truth[max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3]
        several = len(set(around[around != IGNORE].tolist())) > 1
        assert found[y, x] == (several and truth[y, x] != IGNORE)


def test_scores_of_graphs_are_those_of_all_sections_together():
    counts = np.array([[3, 1, 2, 100.0, 20.0], [1, 0, 0, 50.0, 10.0]])
    f1, error = graph_scores(counts)
    assert f1 == pytest.approx(8 / (8 + 1 + 2))
    assert error == pytest.approx(0.2)
    assert graph_scores(np.zeros((2, 5))) == (None, None)


def test_edges_are_chosen_along_the_ranking(random):
    attention = random.random((6, 6))
    attention[2], attention[:, 2] = np.nan, np.nan
    chosen = chosen_edges(attention, 5)
    values = [attention[edge] for edge in chosen]
    assert len(chosen) == 5
    assert values == sorted(values, reverse=True)
    others = attention[~np.isnan(attention) & ~np.eye(6, dtype=bool)]
    assert (values[0], values[-1]) == (others.max(), others.min())
    assert chosen_edges(np.full((3, 3), np.nan)) == []


def test_ranks_are_compared_where_there_are_some():
    assert rank_correlation([(1, 1), (2, 4), (3, 9)]) == pytest.approx(1)
    assert rank_correlation([(1, 9), (2, 4), (3, 1)]) == pytest.approx(-1)
    assert rank_correlation([(1, 0), (2, 0), (3, 0)]) is None
    assert rank_correlation([(1, 0), (2, 1)]) is None


def test_specks_go_to_their_nearest_neighbour(random):
    mask = np.zeros((40, 60), dtype=np.uint8)
    mask[:, 30:] = 1
    whole = mask.copy()
    mask[5:8, 5:8], mask[20, 50], mask[30:35, 10:15] = 2, 0, 3  # 9, 1 and 25 pixels
    assert (without_specks(mask, 26) == whole).all()
    kept = without_specks(mask, 25)
    assert (kept == np.where(mask == 3, 3, whole)).all()
    assert (without_specks(mask, 1) == mask).all()
    noise = random.integers(0, 3, (64, 64)).astype(np.uint8)
    found = without_specks(noise, 12)
    pieces = label(noise, background=-1, connectivity=1)  # what was large enough stays as it was
    large = np.bincount(pieces.ravel())[pieces] >= 12
    assert (found[large] == noise[large]).all() if large.any() else (found == noise).all()
    assert not large.any() or set(np.unique(found)) <= set(np.unique(noise[large]))


def draw(random, classes=4, height=5, width=6):
    p = torch.from_numpy(random.dirichlet(np.ones(classes), (height, width)).transpose(2, 0, 1).copy())
    known = torch.from_numpy(random.random((height, width)) < 0.7)
    known[0, 0] = True
    return p, known, torch.from_numpy(random.dirichlet(np.ones(classes)))


@pytest.mark.parametrize(("power", "turns"), [(1.0, 1), (0.5, 3)])
def test_as_written_down_pixel_by_pixel(random, power, turns):
    p, known, usual = draw(random)
    places = [(y, x) for y in range(known.shape[0]) for x in range(known.shape[1])]
    r = {place: p[:, place[0], place[1]].numpy() for place in places}
    for _ in range(turns):
        seen = [r[place] for place in places if known[place]]
        factors = ((sum(seen) / len(seen) + 1e-6) / (usual.numpy() + 1e-6)) ** power
        moved = {place: p[:, place[0], place[1]].numpy() * factors for place in places}
        r = {place: values / values.sum() for place, values in moved.items()}
    found = re_estimated(p, known, usual, power, turns)
    for (y, x), values in r.items():
        np.testing.assert_allclose(found[:, y, x].numpy(), values, rtol=1e-9)


def test_a_usual_section_stays_as_it_is(random):
    p, known, _ = draw(random)
    usual = p[:, known].mean(dim=1)
    torch.testing.assert_close(re_estimated(p, known, usual, 1.0, 5), p)


def test_what_a_section_has_much_of_becomes_likelier(random):
    p, known, _ = draw(random)
    usual = p[:, known].mean(dim=1) * torch.tensor([0.5, 1.0, 1.0, 1.5])
    found = re_estimated(p, known, usual / usual.sum(), 1.0, 1)
    assert (found[0] > p[0]).all()
    assert (found[3] < p[3]).all()
