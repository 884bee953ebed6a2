"""bfloat16: the graph that is counted stays exact, and what is computed stays close."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import ndimage

from ntrm.models.registry import create
from ntrm.models.trm import RelationConfig, TissueRelation

CLASSES = 12
SIDES = (32, 128)  # Grids of inputs of 256 and 1024 pixels
CHANNELS = 4  # Few, since a processor without bfloat16 imitates it slowly


def smooth_probabilities(random, side, batch=1):
    """Float32 p (B, K, side, side): blobs of many tissues, some of them above the threshold."""
    noise = ndimage.gaussian_filter(random.normal(size=(batch, CLASSES, side, side)), (0, 0, side / 16, side / 16))
    logits = torch.as_tensor(12 * noise / noise.std(), dtype=torch.float32)
    logits[:, -1] = -30  # one tissue is absent
    return torch.softmax(logits, dim=1)


def bfloat16():
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("masks", ["hard", "plain", "soft"])
@pytest.mark.failed_once(1301176172)  # a draw whose features round to 6 %
@torch.no_grad()
def test_the_counted_graph_is_identical(side, masks, random):
    module = TissueRelation(CHANNELS, CLASSES, RelationConfig(masks=masks, dim=CHANNELS, absent="linked")).eval()
    features = torch.as_tensor(random.normal(size=(1, CHANNELS, side, side)), dtype=torch.float32)
    probabilities = smooth_probabilities(random, side)
    refined, exact = module(features, probabilities)
    with bfloat16():
        rounded, graph = module(features.bfloat16(), probabilities)
    assert graph.presence.any()
    assert not graph.presence.all()
    for name in ("presence", "area", "adjacency", "boundary"):
        assert torch.equal(getattr(graph, name), getattr(exact, name)), name
    assert rounded.dtype == torch.bfloat16
    # bfloat16 keeps 8 bits, and three layers add up: an error of a dozen of its steps would be another computation.
    assert (rounded - refined).abs().max() < 12 * torch.finfo(torch.bfloat16).eps * refined.abs().max()


@torch.no_grad()
def test_areas_are_whole_numbers_that_bfloat16_could_not_hold(random):
    probabilities = smooth_probabilities(random, 128)
    seen = ndimage.maximum_filter(probabilities.numpy(), size=(1, 1, 3, 3), mode="constant", cval=-1) > 0.5
    counted = seen.sum(axis=(2, 3))
    module = TissueRelation(CHANNELS, CLASSES, RelationConfig(dim=CHANNELS)).eval()
    with bfloat16():
        _, graph = module(torch.zeros(1, CHANNELS, 128, 128, dtype=torch.bfloat16), probabilities)
    assert np.array_equal(graph.area.numpy(), counted)
    assert not torch.equal(graph.area.bfloat16().float(), graph.area), "the draw has areas that bfloat16 would round"


@pytest.mark.parametrize("name", ["ntrm-paper", "ntrm-control"])
@torch.no_grad()
def test_logits_are_close_given_the_same_coarse_prediction(name, random, seed):
    # Small, since a processor without bfloat16 imitates it slowly.
    torch.manual_seed(seed)
    network = create(name, CLASSES, width=0.125).eval()
    coarse = smooth_probabilities(random, 16).log()
    network.coarse.register_forward_hook(lambda *_: coarse)
    image = torch.as_tensor(random.normal(size=(1, 3, 128, 128)), dtype=torch.float32)
    single = network(image, graph=True)
    with bfloat16():
        half = network(image, graph=True)
    assert torch.backends.mkldnn.enabled, "torch gives oneDNN up where it cannot multiply"
    assert (half.final - single.final).std() < 0.06 * single.final.std()  # 0.024 at most over 24 draws
    if single.graph is not None:
        assert torch.equal(half.graph.adjacency, single.graph.adjacency)
        assert F.cosine_similarity(half.graph.nodes, single.graph.nodes, dim=-1).min() > 0.99
