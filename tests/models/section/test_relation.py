"""The module against the literal oracle: pooling, contacts, graph and readout in float64 to 1e-9."""

import numpy as np
import pytest
import torch
from tests.reference import section_literal as literal

from ntrm.models.section.config import SectionConfig
from ntrm.models.section.relation import SectionRelation

K, C, C5, WINDOWS = 4, 3, 5, 3
GROUPS = [0, 1, 0]

TISSUES = [
    {},
    {"source": "d2"},
    {"source": "both", "position": True, "prior": True},
    {"graph": "complete"},
    {"graph": "complete", "prior": True},
    {"graph": "complete", "position": True},
    {"graph": "none"},
    {"readout": "paste"},
    {"masks": "straight-through", "temperature": 0.5, "position": True},
    {"masks": "detached", "temperature": 3.0},
    {"layers": 1, "heads": 1},
    {"floor": 0.0},
    {"looks": False, "position": True},
    {"looks": False, "graph": "none"},
]
OTHERS = [
    {"nodes": "vector", "graph": "none"},
    {"nodes": "vector", "graph": "none", "source": "d2"},
    {"nodes": "tokens", "graph": "none", "source": "both"},
    {"nodes": "tokens", "graph": "complete"},
]


@pytest.fixture
def scene(random):
    """Logits, D2 and E5 of three windows; the last tissue is nowhere."""
    logits = random.normal(0, 2, (WINDOWS, K, 8, 12))
    logits[:, -1] = -30
    return logits, random.normal(size=(WINDOWS, C, 8, 12)), random.normal(size=(WINDOWS, C5, 2, 3))


def module_of(options, seed):
    torch.manual_seed(seed)
    module = SectionRelation(C, C5, K, SectionConfig(**{"dim": 4, "heads": 2, **options})).double()
    with torch.no_grad():
        for parameter in module.parameters():  # nothing stays at a value that would hide a term left out
            parameter.copy_(torch.randn_like(parameter) * 0.7)
    return module


def numbers(module):
    return {key: value.detach().numpy() for key, value in module.state_dict().items()}


def expected_sums(module, logits, d2, e5):
    config, params = module.config, numbers(module)
    if config.nodes == "tissue":
        masks = [literal.masks_of(one, config.masks, config.temperature) for one in logits]
        return masks, [
            literal.gather(m, f, g, config.source, config.maps, config.looks)
            for m, f, g in zip(masks, d2, e5, strict=True)
        ]
    query = params.get("tokens.query")
    norm = None if query is None else {key: params[f"tokens.norm.{key}"] for key in ("weight", "bias")}
    return None, [literal.gather_cells(f, g, config.source, query, norm) for f, g in zip(d2, e5, strict=True)]


@pytest.mark.parametrize("options", TISSUES + OTHERS, ids=str)
def test_every_stage_is_the_literal_reading(options, scene, seed):
    module = module_of(options, seed)
    config, params = module.config, numbers(module)
    logits, d2, e5 = scene
    masks, windows = expected_sums(module, logits, d2, e5)
    sections = [literal.add([windows[i] for i in range(WINDOWS) if GROUPS[i] == group]) for group in (0, 1)]

    tensors = [torch.from_numpy(part) for part in (logits, d2, e5)]
    ours = module.masks(tensors[0])
    sums = module.gather(ours, tensors[1], tensors[2])
    whole = sums.within(torch.tensor(GROUPS))
    refined, related = module.round(tensors[1], ours, whole)
    for i in range(WINDOWS):
        close(sums.features[i], windows[i].features)
        close(sums.weight[i], windows[i].weight)
        if config.nodes == "tissue":
            close(sums.pairs[i], windows[i].pairs)
        states, present, attention = literal.relate(
            sections[GROUPS[i]], params, nodes=config.nodes, graph=config.graph, position=config.position,
            prior=config.prior, layers=config.layers, heads=config.heads, floor=config.floor,
        )  # fmt: skip
        assert related.presence[i].tolist() == present
        close(related.states[i], states)
        close(
            related.attention[i],
            np.array([each.mean(axis=0) for each in attention]).reshape(-1, *related.attention.shape[2:]),
        )
        if config.readout == "ask":
            told = literal.ask(d2[i], states, present, params, config.heads)
        else:
            told = literal.paste(masks[i], states, present, params)
        close(refined[i], d2[i] + told)
    if config.nodes == "tissue" and config.floor:
        assert not related.presence[:, -1].any()


def close(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"nodes": "vector", "graph": "none"}, {"nodes": "tokens", "graph": "none"}], ids=str
)
def test_each_node_shifts_the_logit_of_its_tissue(options, scene, seed, random):
    module = module_of({**options, "shift": True}, seed)
    weight, bias = module.shift.weight.detach().numpy(), module.shift.bias.detach().numpy()
    logits, d2, e5 = (torch.from_numpy(part) for part in scene)
    masks = module.masks(logits)
    _, related = module.round(d2, masks, module.gather(masks, d2, e5))
    final = random.normal(size=(WINDOWS, K, 5, 6))
    found = module.shifted(torch.from_numpy(final), related)
    states = related.states.detach().numpy()
    for window in range(WINDOWS):
        for tissue in range(K):
            node = states[window, tissue if states.shape[1] > 1 else 0]
            moved = sum(weight[tissue, axis] * node[axis] for axis in range(len(node))) + bias[tissue]
            close(found[window, tissue], final[window, tissue] + moved)
    still = module_of(options, seed)
    assert still.shifted(found, related) is found


def test_the_reported_graph_is_that_of_the_section(scene, seed):
    module = module_of({"prior": True}, seed)
    logits, d2, e5 = (torch.from_numpy(part) for part in scene)
    masks = module.masks(logits)
    sums = module.gather(masks, d2, e5).within(torch.tensor(GROUPS))
    _, related = module.round(d2, masks, sums)
    graph = module.graph(sums, related)
    pooled = sum(literal.contact(masks[i].numpy()) for i in (0, 2))
    close(graph.boundary[0], literal.shares_of_contact(pooled))
    close(graph.boundary[2], graph.boundary[0].numpy())
    assert torch.equal(graph.adjacency, graph.adjacency.mT)
    assert not graph.adjacency[:, -1].any()
    close(graph.attention.sum(dim=2), np.ones((*graph.attention.shape[:2], K)))  # over the senders of a receiver
    assert ((graph.edge_weights > 0) == graph.adjacency).all()


def test_a_prior_starts_at_the_contacts_of_the_masks(seed):
    module = module_of({"prior": True}, seed)
    counts = torch.tensor([[0, 6, 2, 0], [6, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]])
    module.set_prior(counts)
    expected = np.vectorize(literal.stretched)(literal.shares_of_contact(counts.double().numpy()))
    assert len(module.biases) > 0
    for bias in module.biases:
        assert bias.prior.shape == (2, K, K)
        for head in bias.prior:
            close(head, expected)


def test_turning_and_mirroring_a_window_changes_no_pair(scene, seed):
    module = module_of({"position": True}, seed)
    masks = module.masks(torch.from_numpy(scene[0]))
    features = [torch.from_numpy(part) for part in scene[1:]]
    plain = module.gather(masks, *features)
    for turned in (
        lambda x: x.flip(-1),
        lambda x: x.flip(-2),
        lambda x: x.transpose(-2, -1),
        lambda x: x.rot90(1, (2, 3)),
    ):
        other = module.gather(turned(masks), *(turned(each) for each in features))
        for one, two in zip(plain, other, strict=True):
            torch.testing.assert_close(one, two)
