"""What is counted of a section, networks that are told the truth, and edges that are cut."""

import numpy as np
import pytest
import torch
from bench.relation_edges import Study, chosen_edges, rank_correlation
from bench.relation_scores import ToldPredictor, graph_scores, near_borders, predicted, without_specks
from skimage.measure import label
from tests.models.section.variants import CLASSES, build, open_up, patchwork

from ntrm.core.labels import IGNORE
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Stitching, stitch
from ntrm.models.registry import create

STITCHING = Stitching(64, 16)


@pytest.fixture
def image(random):
    return random.integers(0, 256, (100, 140, 3), dtype=np.uint8)


@pytest.fixture
def truth(random):
    return np.kron(random.integers(0, CLASSES, (10, 14)), np.ones((10, 10), dtype=int)).astype(np.uint8)


def test_pixels_at_borders_have_two_tissues_around_them(random):
    truth = np.kron(random.integers(0, 3, (3, 4)), np.ones((9, 8), dtype=int)).astype(np.uint8)
    truth[random.random(truth.shape) < 0.1] = IGNORE
    found = near_borders(truth, torch.device("cpu"), near=2)
    for y, x in np.ndindex(truth.shape):
        around = truth[max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3]
        several = len(set(around[around != IGNORE].tolist())) > 1
        assert found[y, x] == (several and truth[y, x] != IGNORE)


@pytest.mark.parametrize("name", ["default", "window"])
def test_a_network_that_wants_no_truth_predicts_as_ever(image, truth, name, seed):
    torch.manual_seed(seed)
    network = patchwork(build(name)).describe(window=64)
    mask, tally = predicted(ToldPredictor(network, "cpu", batch=3), image, truth, STITCHING)
    expected = stitch(Predictor(network, "cpu", batch=3), image, stitching=STITCHING)
    np.testing.assert_array_equal(mask, expected.mask)
    assert tally.final.sum() == truth.size


def test_a_network_is_told_the_truth_of_the_very_windows(image, truth, seed, monkeypatch):
    torch.manual_seed(seed)
    network = open_up(create("ntrm-section", CLASSES, width=0.125, dim=8, heads=2, masks="true")).describe(window=64)
    told = []
    real = network.tell
    monkeypatch.setattr(network, "tell", lambda masks: (told.append(masks.clone()), real(masks)))
    predicted(ToldPredictor(network, "cpu", batch=4), image, truth, STITCHING)
    once, every = STITCHING.side_by_side(100, 140), STITCHING.windows(100, 140)
    for mask, window in zip(torch.cat(told), [*once, *every], strict=True):
        np.testing.assert_array_equal(mask, truth[window.slices])


def test_scores_of_graphs_are_those_of_all_sections_together():
    counts = np.array([[3, 1, 2, 100.0, 20.0], [1, 0, 0, 50.0, 10.0]])
    f1, error = graph_scores(counts)
    assert f1 == pytest.approx(8 / (8 + 1 + 2))
    assert error == pytest.approx(0.2)
    assert graph_scores(np.zeros((2, 5))) == (None, None)


def test_cut_edges_are_cut_and_put_back(image, truth, seed):
    torch.manual_seed(seed)
    network = patchwork(build("default")).describe(window=64)
    study = Study(network, [image], [truth], STITCHING, "cpu")
    attention = study.attention()
    assert np.isnan(attention[-1]).all()  # the tissue that is nowhere
    assert np.nansum(attention, axis=0)[:4] == pytest.approx(np.ones(4), rel=1e-4)
    with study.without(~np.eye(CLASSES, dtype=bool)):
        alone = study.attention()
    np.testing.assert_allclose(np.diag(alone)[:4], 1, rtol=1e-6)
    assert network.relation.cut is None
    np.testing.assert_allclose(study.attention()[:4, :4], attention[:4, :4], rtol=1e-6)


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
