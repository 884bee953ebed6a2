"""The section relation against a literal oracle in float64 to 1e-9, and the oracle against numbers worked by hand."""

import math

import numpy as np
import pytest
import torch

pytest.importorskip("research.section_networks", reason="this copy has no folder research/")

from research.section_networks.config import SectionConfig
from research.section_networks.relation import SectionRelation
from tests.research import section_literal as literal

TWO = np.array([[[1.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])
"""Tissue 0 in two cells of a row, tissue 1 in the third."""


def test_contacts_are_counted_from_both_sides():
    assert literal.contact(TWO).tolist() == [[2, 1], [1, 0]]
    assert literal.shares_of_contact(literal.contact(TWO)) == pytest.approx(np.array([[0, 1], [1, 0]]), abs=1e-5)


def test_nearness_leaves_out_what_is_outside():
    # Within one cell: around cell 0 tissue 0 alone; around cell 1 a third is tissue 1; around cell 2 a half.
    assert literal.nearness(TWO, 1) == pytest.approx(np.array([[1 + 2 / 3, 1 / 3], [1 / 2, 1 / 2]]))


def test_sums_by_hand():
    masks = np.zeros((2, 4, 4))
    masks[0, :, :3], masks[1, :, 3] = 1, 1
    d2 = np.tile(np.arange(4.0), (1, 4, 1))
    found = literal.gather(masks, d2, np.array([[[7.0]]]), "both", 1)
    assert found.weight.tolist() == [12, 4]
    assert found.features.tolist() == [[4 * (0 + 1 + 2), 12 * 7], [4 * 3, 4 * 7]]
    twice = literal.add([found, found])
    assert twice.weight.tolist() == [24, 8]
    assert twice.pairs[0, 0, 1] == 2 * 4


def test_tokens_weigh_by_what_they_look_for():
    e5 = np.array([[[1.0, 3.0]], [[3.0, 1.0]]])
    norm = {"weight": np.ones(2), "bias": np.zeros(2)}
    found = literal.gather_cells(np.zeros((1, 4, 8)), e5, "e5", np.array([[0.0, 0.5]]), norm)
    # Normed, the cells are (-1, 1) and (1, -1), so that the scores are ±0.5.
    up, down = (math.exp(8 * math.tanh(score / 8)) for score in (0.5, -0.5))
    assert found.weight == pytest.approx(np.array([up + down]), rel=1e-5)
    assert found.features[0] == pytest.approx(np.array([up + 3 * down, 3 * up + down]), rel=1e-5)


def test_the_most_probable_class_takes_all():
    logits = np.array([[[1.0, 0.0]], [[0.0, 2.0]]])
    assert literal.masks_of(logits, "straight-through", 1.0).tolist() == [[[1, 0]], [[0, 1]]]
    warm = literal.masks_of(logits, "soft", 2.0)
    assert warm[0, 0, 0] == pytest.approx(1 / (1 + math.exp(-0.5)))


def test_pixels_share_their_attention_with_silence():
    params = {
        "readout.key.weight": np.array([[1.0]]), "readout.value.weight": np.array([[1.0]]),
        "readout.value.bias": np.array([2.0]), "readout.silence": np.array([0.0]),
        "readout.query.weight": np.array([[1.0]]), "readout.query.bias": np.array([0.0]),
        "readout.out.weight": np.array([[10.0]]), "readout.out.bias": np.array([1.0]),
    }  # fmt: skip
    found = literal.ask(np.array([[[0.0, math.log(3.0)]]]), np.array([[1.0], [5.0]]), [True, False], params, 1)
    # The node says 3; a pixel of 0 gives it half of its attention, one of log 3 three quarters.
    assert found[0, 0] == pytest.approx(np.array([10 * 1.5 + 1, 10 * 2.25 + 1]))


def test_nodes_are_pasted_under_their_masks():
    params = {"readout.out.weight": np.array([[2.0]]), "readout.out.bias": np.array([0.5])}
    found = literal.paste(np.array([[[1.0, 0.25]], [[0.0, 0.75]]]), np.array([[1.0], [4.0]]), [True, True], params)
    assert found[0, 0] == pytest.approx(np.array([2.5, 0.5 + 2 * (0.25 + 3.0)]))


# --- the module against the oracle ---

K, C, C5, WINDOWS = 4, 3, 5, 3
GROUPS = [0, 1, 0]

TISSUES = [
    {},
    {"source": "d2"},
    {"source": "both", "position": True},
    {"graph": "complete"},
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
    ours = module.masks(tensors[0], None)
    sums = module.gather(ours, tensors[1], tensors[2])
    whole = sums.within(torch.tensor(GROUPS))
    refined, related = module.refine(tensors[1], ours, whole)
    for i in range(WINDOWS):
        close(sums.features[i], windows[i].features)
        close(sums.weight[i], windows[i].weight)
        if config.nodes == "tissue":
            close(sums.pairs[i], windows[i].pairs)
        states, present, attention = literal.relate(
            sections[GROUPS[i]], params, nodes=config.nodes, graph=config.graph, position=config.position,
            layers=config.layers, heads=config.heads, floor=config.floor,
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
    masks = module.masks(logits, None)
    _, related = module.refine(d2, masks, module.gather(masks, d2, e5))
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
    module = module_of({}, seed)
    logits, d2, e5 = (torch.from_numpy(part) for part in scene)
    masks = module.masks(logits, None)
    sums = module.gather(masks, d2, e5).within(torch.tensor(GROUPS))
    _, related = module.refine(d2, masks, sums)
    graph = module.graph(sums, related)
    pooled = sum(literal.contact(masks[i].numpy()) for i in (0, 2))
    close(graph.boundary[0], literal.shares_of_contact(pooled))
    close(graph.boundary[2], graph.boundary[0].numpy())
    assert torch.equal(graph.adjacency, graph.adjacency.mT)
    assert not graph.adjacency[:, -1].any()
    close(graph.attention.sum(dim=2), np.ones((*graph.attention.shape[:2], K)))  # over the senders of a receiver
    assert ((graph.edge_weights > 0) == graph.adjacency).all()


def test_turning_and_mirroring_a_window_changes_no_pair(scene, seed):
    module = module_of({"position": True}, seed)
    masks = module.masks(torch.from_numpy(scene[0]), None)
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
