"""Regions as nodes, against scipy's components and against sums over regions one by one."""

import numpy as np
import pytest
import torch
from scipy import ndimage
from tests.reference.draws import coarse_prediction
from tests.reference.trm_literal import divide

from ntrm.core.errors import UsageError
from ntrm.models.trm import RelationConfig, TissueRelation
from ntrm.models.trm.components import label_components, split_into_regions


def snake(side):
    """One region that needs a turn in every other row."""
    mask = np.zeros((side, side), dtype=bool)
    mask[::2] = True
    mask[1::4, -1] = mask[3::4, 0] = True
    return mask


def spiral(side):
    mask = np.zeros((side, side), dtype=bool)
    for ring in range(0, side // 2, 2):
        mask[ring, max(ring - 2, 0) : side - ring] = mask[side - 1 - ring, ring : side - ring] = True
        mask[ring : side - ring, side - 1 - ring] = mask[ring + 2 : side - ring, ring] = True
    return mask


def comb(side):
    """Teeth that hang on one row at the bottom: every run but the last starts as a tree without a lower neighbour."""
    mask = np.zeros((side, side), dtype=bool)
    mask[:, ::2] = mask[-1] = True
    return mask


@pytest.mark.parametrize("side", [31, 32, 64])
@pytest.mark.parametrize(
    "shape", [snake, spiral, comb, lambda side: snake(side).T, lambda side: comb(side)[::-1].copy()]
)
def test_winding_regions_are_one_component_each(shape, side):
    mask = shape(side)
    expected, count = ndimage.label(mask)
    labels = label_components(torch.as_tensor(mask)[None])[0].numpy()
    assert len(set(zip(expected[mask], labels[mask], strict=True))) == count == len(set(labels[mask]))


@pytest.mark.parametrize("filled", [0.2, 0.5, 0.59, 0.8])
def test_regions_are_those_of_a_flood_fill_largest_first(filled, random):
    height, width, most = random.integers(1, [16, 16, 6])
    masks = (random.random((2, 3, height, width)) < filled).astype(float)
    expected = [[own for mask in image for own in divide(mask, most)] for image in masks]
    assert np.array_equal(split_into_regions(torch.as_tensor(masks), int(most)).numpy(), np.array(expected))


@pytest.mark.parametrize("looks", [True, False])
def test_all_rounds_find_the_same_as_stopping_early(looks, random, monkeypatch):
    monkeypatch.setattr("ntrm.models.trm.components._may_look", lambda: looks)
    masks = torch.as_tensor(random.random((1, 4, 24, 24)) < 0.6)
    counts = [
        len(set(labels[mask].tolist())) for labels, mask in zip(label_components(masks[0]), masks[0], strict=True)
    ]
    assert counts == [ndimage.label(mask)[1] for mask in masks[0].numpy()]


def module(random, **options):
    torch.manual_seed(int(random.integers(1 << 31)))
    return TissueRelation(4, 5, RelationConfig(dim=6, layers=2, **options)).double().eval().requires_grad_(False)


def inputs(random, batch=2):
    features = torch.as_tensor(random.normal(size=(batch, 4, 12, 10)))
    return features, torch.as_tensor(np.stack([coarse_prediction(random, 5, 12, 10) for _ in range(batch)]))


@pytest.mark.parametrize("layer", ["attention", "sum"])
@pytest.mark.parametrize("absent", ["isolated", "linked"])
def test_one_region_a_tissue_is_a_node_a_tissue(layer, absent, random):
    by_class = module(random, layer=layer, absent=absent)
    by_region = TissueRelation(
        4, 5, RelationConfig(dim=6, layers=2, layer=layer, absent=absent, nodes="region", regions=1)
    )
    by_region = by_region.double().eval().requires_grad_(False)
    by_region.load_state_dict(by_class.state_dict())
    features, probabilities = inputs(random)
    (one, graph), (other, regions) = by_class(features, probabilities), by_region(features, probabilities)
    torch.testing.assert_close(other, one, rtol=1e-12, atol=1e-12)
    for name, ours, theirs in zip(graph._fields, regions, graph, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9, msg=name)


def test_the_graph_of_tissues_is_summed_up_from_regions(random):
    network = module(random, nodes="region", regions=3, edge_weight=True)
    features, probabilities = inputs(random, batch=1)
    _, regions = network.relate_regions(features, probabilities)
    _, tissues = network(features, probabilities)
    area = regions.area[0].detach().numpy()
    members = np.arange(15).reshape(5, 3)
    assert np.array_equal(tissues.area[0], area[members].sum(axis=1))
    for src in range(5):
        for dst in range(5):
            pairs = [(i, j) for i in members[src] for j in members[dst]]
            edges = [(i, j) for i, j in pairs if regions.adjacency[0, i, j]]
            assert tissues.adjacency[0, src, dst] == bool(edges)
            receiving = [j for j in members[dst] if regions.adjacency[0, :, j].any()]
            whole = area[receiving].sum() or 1
            for layer in range(2):
                expected = sum(float(regions.attention[0, layer, i, j]) * area[j] for i, j in pairs) / whole
                assert float(tissues.attention[0, layer, src, dst]) == pytest.approx(expected, abs=1e-12)
            weights = [float(regions.edge_weights[0, i, j]) for i, j in edges]
            expected = np.average(weights, weights=[area[j] for _, j in edges]) if edges else 0
            assert float(tissues.edge_weights[0, src, dst]) == pytest.approx(expected, abs=1e-12)


def test_attention_of_tissues_sums_to_one_where_anything_is_received(random):
    _, graph = module(random, nodes="region", regions=3)(*inputs(random))
    sums = graph.attention.sum(dim=2)
    received = graph.adjacency.any(dim=1).unsqueeze(1).expand_as(sums)
    torch.testing.assert_close(sums, received.to(sums), rtol=1e-9, atol=1e-9)


def test_too_many_nodes_are_refused():
    with pytest.raises(UsageError, match=r"from 1 to 1,?024"):
        TissueRelation(4, 40, RelationConfig(nodes="region", regions=32))
