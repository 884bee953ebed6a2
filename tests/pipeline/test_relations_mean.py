import numpy as np
import pytest
import torch

from ntrm.analysis.graph import NOTE
from ntrm.core.errors import UsageError
from ntrm.inference.predictor import TissueRelations
from ntrm.models.base import TissueGraph
from ntrm.pipeline.relations_mean import RelationsMean

NAMES = ("EPI", "PAP", "BKG")


def draw(random, windows, layers=2):
    """Graphs of some windows, as a network gives them."""
    size = len(NAMES)
    presence = random.random((windows, size)) < 0.6
    adjacency = (random.random((windows, size, size)) < 0.6) & presence[:, None] & presence[:, :, None]
    return TissueGraph(
        *map(
            torch.from_numpy,
            (
                presence,
                (random.integers(1, 1000, (windows, size)) * presence).astype(np.float32),
                adjacency,
                random.random((windows, size, size), dtype=np.float32),
                random.random((windows, layers, size, size), dtype=np.float32) * adjacency[:, None],
                random.random((windows, size, size), dtype=np.float32) * adjacency,
                random.random((windows, size, 5), dtype=np.float32),
            ),
        )
    )


def literal(graphs, background=None):
    """Window by window and edge by edge."""
    size = len(NAMES)
    sums, areas, count = np.zeros((2, size, size)), np.zeros((2, size, size)), 0
    for window in range(len(graphs.area)):
        presence, area, adjacency, _, attention, weights, _ = (each[window].numpy() for each in graphs)
        if not any(presence[k] for k in range(size) if k != background):
            continue
        count += 1
        for sender in range(size):
            for receiver in range(size):
                sums[0, sender, receiver] += attention[:, sender, receiver].mean(dtype=float) * float(area[receiver])
                areas[0, sender, receiver] += area[receiver]
                if adjacency[sender, receiver]:
                    sums[1, sender, receiver] += float(weights[sender, receiver]) * float(area[receiver])
                    areas[1, sender, receiver] += area[receiver]
    return *(sums / np.where(areas > 0, areas, 1)), count


@pytest.mark.parametrize("background", [None, 2])
def test_means_are_weighted_by_the_receivers_area(random, background):
    graphs = draw(random, 40)
    mean = RelationsMean(NAMES, background)
    assert mean.result() is None
    for start in (0, 1, 7, 30):
        stop = {0: 1, 1: 7, 7: 30, 30: 40}[start]
        mean.add_graphs(TissueGraph(*(each[start:stop] for each in graphs)))
    attention, weight, count = literal(graphs, background)
    found = mean.result()
    np.testing.assert_allclose(found.attention, attention, rtol=1e-12)
    np.testing.assert_allclose(found.edge_weight, weight, rtol=1e-12)
    assert found.windows == count
    document = found.as_dict()
    assert list(document) == ["names", "attention", "edge_weight", "windows", "note"]
    np.testing.assert_allclose(document["attention"], attention, atol=1e-6)
    assert document["note"] == NOTE


def test_windows_of_background_alone_do_not_count(random):
    graphs = draw(random, 6)
    graphs.presence[:] = torch.tensor([False, False, True])
    mean = RelationsMean(NAMES, 2)
    mean.add_graphs(graphs)
    assert mean.result() is None


def test_it_goes_on_from_its_state_to_the_last_bit(random):
    graphs = [draw(random, 5) for _ in range(6)]
    whole, first, second = (RelationsMean(NAMES, 2) for _ in range(3))
    for each in graphs:
        whole.add_graphs(each)
    second.restore(RelationsMean(NAMES, 2).state())
    assert second.result() is None
    for each in graphs[:3]:
        first.add_graphs(each)
    state = first.state()
    first.add_graphs(graphs[0])  # what was handed out does not change
    second.restore(state)
    for each in graphs[3:]:
        second.add_graphs(each)
    assert torch.equal(whole.state(), second.state())


def test_one_window_at_a_time_is_the_same(random):
    graphs = draw(random, 4, layers=0)
    together, alone = RelationsMean(NAMES), RelationsMean(NAMES)
    together.add_graphs(graphs)
    for window in range(4):
        alone.add(TissueRelations(NAMES, *(each[window].numpy() for each in graphs)))
    torch.testing.assert_close(together.state(), alone.state())
    assert not together.result().attention.any()
    with pytest.raises(UsageError, match="other classes"):
        alone.add(TissueRelations(("A", "B", "C"), *(each[0].numpy() for each in graphs)))
