"""Regions below tissues, the section's cancers, masks that are given, edges that are cut."""

import numpy as np
import pytest
import torch
from tests.models.section.variants import CLASSES, build, open_up, patchwork

from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE
from ntrm.models.registry import create
from ntrm.models.section.further import by_cells, random_blobs, shares_on_grid


def drawn(seed, **options):
    torch.manual_seed(seed)
    network = open_up(create("ntrm-section", CLASSES, width=0.125, dim=8, heads=2, **options))
    return network.double().eval()


@torch.no_grad()
def test_regions_are_means_under_a_tissue_in_a_cell(seed):
    further = drawn(seed, regions=2).relation.further
    masks = torch.softmax(4 * torch.randn(2, CLASSES, 8, 8, dtype=torch.float64), dim=1)
    masks[:, 3, :4, 4:] = 0  # nothing of tissue 3 in the second cell
    d2 = torch.randn(2, further.project.in_features, 8, 8, dtype=torch.float64)
    states = torch.randn(2, CLASSES, 8, dtype=torch.float64)
    found, seen = further._regions(d2, masks, states)
    assert found.shape == (2, CLASSES * 4, 8)
    for window in range(2):
        for tissue in range(CLASSES):
            for cell in range(4):
                rows, columns = (slice(4 * at, 4 * at + 4) for at in divmod(cell, 2))
                weight = masks[window, tissue, rows, columns]
                mean = (d2[window, :, rows, columns] * weight).sum(dim=(1, 2)) / (weight.sum() + 1e-6)
                expected = further.project(further.features(mean)) + states[window, tissue]
                torch.testing.assert_close(found[window, 4 * tissue + cell], expected, rtol=1e-9, atol=1e-9)
                assert seen[window, 4 * tissue + cell] == (weight.sum() >= 0.16)
    assert not seen[:, 4 * 3 + 1].any()


def test_cells_go_row_by_row(random):
    x = torch.from_numpy(random.random((2, 3, 8, 16)))
    cells = by_cells(x, 4)
    assert cells.shape == (32, 3, 2, 4)
    np.testing.assert_array_equal(cells[16 + 4 * 1 + 2], x[1, :, 2:4, 8:12])


@torch.no_grad()
def test_the_cancers_of_a_section_are_their_shares_among_all_of_them(seed):
    network = drawn(seed, cancers="1,3")
    sums = network.gather(torch.randn(1, 3, 64, 64, dtype=torch.float64))
    sums = sums._replace(weight=torch.tensor([[50.0, 30.0, 9.0, 10.0, 1.0]], dtype=torch.float64))
    state, seen = network.relation.further._cancers(sums)
    amount = 1 - np.log(0.4 + 1e-4) / np.log(1e-4)
    expected = network.relation.further.cancers(torch.tensor([[0.75, 0.25, amount]], dtype=torch.float64))
    torch.testing.assert_close(state[0], expected, rtol=1e-5, atol=1e-5)
    assert seen.item()
    none = sums._replace(weight=torch.tensor([[50.0, 0.0, 9.0, 0.0, 1.0]], dtype=torch.float64))
    assert not network.relation.further._cancers(none)[1].item()


@torch.no_grad()
def test_true_masks_take_the_place_of_the_coarse_prediction(seed, random):
    network = drawn(seed, masks="true")
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    truth = torch.from_numpy(random.integers(0, CLASSES, (2, 64, 64)).astype(np.uint8))
    with pytest.raises(UsageError, match="must be told"):
        network(x)
    network.tell(truth)
    first = network(x).final
    sums = network.gather(x)
    counts = np.stack([np.bincount(mask.ravel(), minlength=CLASSES) for mask in truth.numpy()]) / 64
    np.testing.assert_allclose(sums.weight, counts, rtol=1e-5)
    network.tell(truth.flip(0))
    assert (network(x).final - first).abs().max() > 1e-6
    place = network.relation.told.data_ptr()
    network.tell(truth[:1])
    with pytest.raises(UsageError, match=r"masks for \(1, 5, 8, 8\)"):
        network(x)
    network.tell(truth)
    assert network.relation.told.data_ptr() == place  # a recorded step reads it there
    assert torch.equal(network(x).final, first)


def test_shares_on_a_coarser_grid_leave_out_what_is_not_known(random):
    mask = random.integers(0, 3, (2, 16, 24)).astype(np.uint8)
    mask[random.random(mask.shape) < 0.3] = IGNORE
    found = shares_on_grid(torch.from_numpy(mask), 3, 8)
    assert found.shape == (2, 3, 2, 3)
    np.testing.assert_allclose(found[1, 2, 1, 2], (mask[1, 8:, 16:] == 2).mean(), rtol=1e-6)


@torch.no_grad()
def test_random_masks_know_nothing_of_the_window(seed):
    network = drawn(seed, masks="random")
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    assert not torch.equal(network(x).final, network(x).final)
    blobs = random_blobs(torch.zeros(3, CLASSES, 10, 8), 4)
    assert blobs.shape == (3, CLASSES, 10, 8)
    torch.testing.assert_close(blobs.sum(dim=1), torch.ones(3, 10, 8))
    assert torch.equal(blobs[..., 0:4, 0:4], blobs[..., :1, :1].expand(-1, -1, 4, 4))


@pytest.mark.parametrize("name", ["default", "complete"])
@torch.no_grad()
def test_nothing_is_heard_along_an_edge_that_is_cut(name, seed):
    torch.manual_seed(seed)
    network = patchwork(build(name, layers=1)).double().eval()
    x = torch.randn(1, 3, 64, 64, dtype=torch.float64)
    whole = network(x, graph=True)
    network.relation.cut = torch.zeros(CLASSES, CLASSES, dtype=torch.bool)
    assert torch.equal(network(x).final, whole.final)
    network.relation.cut[0, 1] = True  # tissue 0 no longer hears tissue 1
    found = network(x, graph=True).graph
    assert found.attention[0, 0, 1, 0].item() == 0
    assert whole.graph.attention[0, 0, 1, 0].item() > 0
    assert (found.nodes[0, 0] - whole.graph.nodes[0, 0]).abs().max() > 1e-6
    torch.testing.assert_close(found.nodes[0, 1:], whole.graph.nodes[0, 1:])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"regions": 3}, "regions"),
        ({"regions": 2, "readout": "paste"}, "further nodes"),
        ({"cancers": "1", "nodes": "vector", "graph": "none"}, "further nodes"),
        ({"cancers": "BCC"}, "indices of tissues"),
        ({"cancers": "1,1"}, "named twice"),
        ({"cancers": "5"}, "no such tissue"),
        ({"masks": "true", "rounds": 2}, "not revised"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, reason):
    with pytest.raises(UsageError, match=reason):
        create("ntrm-section", CLASSES, width=0.125, **options)


def test_the_mix_transformer_with_a_section(seed):
    pytest.importorskip("transformers")
    torch.manual_seed(seed)
    network = open_up(create("mit-section", CLASSES, width=0.125, dim=8, heads=2)).eval()
    assert network.passes == 1
    x, groups = torch.randn(3, 3, 64, 64), torch.tensor([0, 0, 0])
    with torch.no_grad():
        whole = network(x, sections=groups)
        context = [network.gather(x).pooled(groups, 1)]
        torch.testing.assert_close(network(x[:1], context=context).final, whole.final[:1], rtol=1e-3, atol=1e-3)
        assert (network(x[:1]).final - whole.final[:1]).abs().max() > 1e-6
    with pytest.raises(UsageError, match="one grid"):
        create("mit-section", CLASSES, width=0.125, source="e5")
