import numpy as np
import pytest
import torch

from ntrm.data.tiles import Window
from ntrm.models.base import NetworkGraph
from ntrm.segment.predict import KEPT, RelationsMean

NAMES = ("EPI", "PAP", "BKG")
WINDOWS = [Window(10 * number, 3 * number, 64, 64 - number) for number in range(60)]


def draw(random, windows, layers=2, steps=2**24):
    """Graphs of some windows, as a network gives them; attention has so many different values."""
    size = len(NAMES)
    presence = random.random((windows, size)) < 0.6
    adjacency = (random.random((windows, size, size)) < 0.6) & presence[:, None] & presence[:, :, None]
    attention = random.integers(1, steps + 1, (windows, layers, size, size)) / steps
    return NetworkGraph(
        *map(
            torch.from_numpy,
            (
                presence,
                (random.integers(1, 4, (windows, size)) * presence).astype(np.float32),
                adjacency,
                random.random((windows, size, size), dtype=np.float32),
                attention.astype(np.float32) * adjacency[:, None],
                random.random((windows, size, size), dtype=np.float32) * adjacency,
                random.random((windows, size, 5), dtype=np.float32),
            ),
        )
    )


def part(graphs, start, stop):
    return NetworkGraph(*(each[start:stop] for each in graphs))


def add_in_parts(mean, graphs, ends, begin=0):
    for start, stop in zip((begin, *ends), ends, strict=False):
        mean.add_graphs(part(graphs, start, stop), start)


def counted_windows(graphs, background):
    tissues = [k for k in range(len(NAMES)) if k != background]
    return [window for window, presence in enumerate(graphs.presence.tolist()) if any(presence[k] for k in tissues)]


def literal(graphs, background, sender, receiver):
    """Of one edge, window by window: attention by layer, how many have it, its weight, and the strongest."""
    layers, weights, ranked = [], [], []
    for window in counted_windows(graphs, background):
        if graphs.adjacency[window, sender, receiver]:
            layers.append(graphs.attention[window, :, sender, receiver].double().tolist())
            weights.append(float(graphs.edge_weights[window, sender, receiver]))
            ranked.append((-np.mean(layers[-1]), -float(graphs.area[window, receiver]), window))
    strongest = [(WINDOWS[window], -mean) for mean, _, window in sorted(ranked)[:KEPT]]
    return np.mean(layers, axis=0) if layers else 0, len(layers), np.mean(weights) if weights else 0, strongest


@pytest.mark.parametrize(("background", "steps"), [(None, 2**24), (2, 2**24), (2, 2), (None, 1)])
def test_means_counts_and_strongest_windows_are_the_literal_ones(random, background, steps):
    graphs = draw(random, 60, steps=steps)  # with few values of attention many windows are equal
    mean = RelationsMean(NAMES, background, edge_weights=True)
    assert mean.result(WINDOWS) is None
    add_in_parts(mean, graphs, (1, 7, 30, 60))
    found = mean.result(WINDOWS)
    shares, weights = np.array(found.attention), np.array(found.edge_weight)
    assert shares.shape == (2, 3, 3)
    assert found.windows == len(counted_windows(graphs, background))
    windows = {(edge.source, edge.target): edge.windows for edge in found.strongest_windows}
    for sender, one in enumerate(NAMES):
        for receiver, other in enumerate(NAMES):
            attention, count, weight, strongest = literal(graphs, background, sender, receiver)
            np.testing.assert_allclose(shares[:, sender, receiver], attention, atol=1e-6)
            np.testing.assert_allclose(weights[sender, receiver], weight, atol=1e-6)
            assert found.edge_windows[sender][receiver] == count
            kept = windows.get((one, other), ())
            assert [(w.top, w.left, w.height, w.width) for w in kept] == [
                (w.top, w.left, w.height, w.width) for w, _ in strongest
            ]
            np.testing.assert_allclose([w.attention for w in kept], [value for _, value in strongest], atol=1e-6)


def test_windows_of_background_alone_do_not_count(random):
    graphs = draw(random, 6)
    graphs.presence[:] = torch.tensor([False, False, True])
    mean = RelationsMean(NAMES, 2)
    mean.add_graphs(graphs, 0)
    assert mean.result(WINDOWS) is None
