"""The literal oracle against numbers worked out by hand.

Most cases live on one row of six pixels with two tissues, C = 1 and d = 1. Tissue 0 is seen at pixel 0, tissue 1 at
pixels 3 to 5, so by hand:

    hard masks   M_0 = {0, 1}    M_1 = {2, 3, 4, 5}    (each grown by one pixel)
    dilated          {0, 1, 2}         {1, 2, 3, 4, 5}
    ratios       b_01 = |{1}| / 2 = 1/2,  b_10 = |{2}| / 4 = 1/4
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.draws import coarse_prediction, parameters
from tests.reference.trm_literal import VARIANTS, attention_coefficients, attention_layer, tissue_relation

SEEDS = st.integers(0, 2**32 - 1)
SEEN = np.array([[[0.9, 0.2, 0.3, 0.2, 0.1, 0.1]], [[0.1, 0.3, 0.4, 0.8, 0.9, 0.9]]])
ROW = np.array([[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]])
NEUTRAL = {"bn_weight": np.ones(1), "bn_bias": np.zeros(1), "bn_mean": np.zeros(1), "bn_var": np.full(1, 1 - 1e-5)}


def taps(left=0.0, centre=0.0, right=0.0):
    """A 3×3 kernel (1, 1, 3, 3) that looks along the row only."""
    return np.array([[[[0, 0, 0], [left, centre, right], [0, 0, 0]]]], dtype=float)


def row_parameters(kernel=None, **changes):
    """F = 2·D2; e = 2·ReLU(h_j + 10·b_ji + 100·b_ij + 1) − 1; Sum with W = 1/2, bias −1; S' = 2·S + 1."""
    params = {
        "psi": {"weight": taps(centre=2) if kernel is None else kernel, **NEUTRAL},
        "absent": np.array([[50.0], [70.0]]),
        "edge": {
            "w1": np.array([[1.0, 0.0, 10.0, 100.0]]),
            "b1": np.array([1.0]),
            "w2": np.array([[2.0]]),
            "b2": np.array([-1.0]),
        },
        "W_e": np.array([[math.log(3) / 67**2]]),  # so that e = 67 has the weight 3/4
        "layers": [{"W": np.array([[0.5]]), "bias": np.array([-1.0])}],
        "proj": {"weight": np.array([[2.0]]), "bias": np.array([1.0]), **NEUTRAL},
    }
    return params | changes


def close(values):
    """Up to the 1e-6 in the denominator of Node, which the numbers by hand leave out."""
    return pytest.approx(np.array(values, dtype=float), rel=1e-5)


# --- Reg, Adj, Bnd ---


def test_regions_and_ratios_by_hand():
    result = tissue_relation(ROW, SEEN, row_parameters(), layer="sum")
    assert result.area.tolist() == [2, 4]
    assert result.presence.tolist() == [True, True]
    assert result.adjacency.tolist() == [[False, True], [True, False]]
    assert result.boundary == pytest.approx(np.array([[1, 1 / 2], [1 / 4, 1]]))


def test_plain_masks_are_not_grown():
    # {0} and {3, 4, 5}: dilated to {0, 1} and {2, …, 5}, which do not meet.
    result = tissue_relation(ROW, SEEN, row_parameters(), layer="sum", masks="plain")
    assert result.area.tolist() == [1, 3]
    assert not result.adjacency.any()
    assert result.boundary.tolist() == [[1, 0], [0, 1]]


def test_ratios_count_the_pixels_of_their_own_tissue():
    # 3×4, not grown: tissue 0 is the pixel (1, 1), tissue 1 the eleven others, eight of which touch it.
    seen = np.array([np.full((3, 4), 0.1), np.full((3, 4), 0.9)])
    seen[:, 1, 1] = 0.9, 0.1
    result = tissue_relation(np.ones((1, 3, 4)), seen, row_parameters(), layer="sum", masks="plain")
    assert result.boundary == pytest.approx(np.array([[1, 1], [8 / 11, 1]]))


def test_masks_may_overlap_and_leave_pixels_uncovered():
    # 3×3: tissue 0 in the left column, tissue 1 in the right; both grow into the middle.
    columns = np.array([[[0.9, 0.4, 0.1]] * 3, [[0.1, 0.4, 0.8]] * 3])
    result = tissue_relation(np.ones((1, 3, 3)), columns, row_parameters(), layer="sum")
    assert result.area.tolist() == [6, 6]
    assert result.boundary.tolist() == [[1, 1], [1, 1]]
    lonely = np.full((2, 4, 4), 0.5)
    lonely[:, 0, 0] = 0.6, 0.4
    assert tissue_relation(np.ones((1, 4, 4)), lonely, row_parameters(), layer="sum").area.tolist() == [4, 0]


def test_the_threshold_is_strict_and_can_be_moved():
    even = np.full((2, 2, 2), 0.5)
    features = np.ones((1, 2, 2))
    assert tissue_relation(features, even, row_parameters(), layer="sum").area.tolist() == [0, 0]
    assert tissue_relation(features, even, row_parameters(), layer="sum", tau=0.49).area.tolist() == [4, 4]


# --- Node, Absent ---


def test_nodes_by_hand():
    # F = 2, 4, 6, 8, 10, 12: the sums over the masks are 6 and 36.
    nodes = tissue_relation(ROW, SEEN, row_parameters(), layer="sum").nodes[0]
    assert nodes == pytest.approx(np.array([[6 / (2 + 1e-6)], [36 / (4 + 1e-6)]]), rel=1e-14)


def test_mask_first_does_not_see_across_the_border():
    # F takes the right neighbour. Projected first: (2 + 3) / 2. Masked first: pixel 1 finds 0 beyond the mask.
    kernel = taps(right=1)
    first = tissue_relation(ROW, SEEN, row_parameters(kernel), layer="sum").nodes[0]
    later = tissue_relation(ROW, SEEN, row_parameters(kernel), layer="sum", order="mask-first").nodes[0]
    assert first == close([[5 / 2], [15 / 4]])
    assert later == close([[2 / 2], [15 / 4]])


def test_soft_masks_weigh_nodes_and_projection_but_not_the_graph():
    params = row_parameters(taps(centre=1))
    result = tissue_relation(ROW, SEEN, params, masks="soft", graph="none")
    # Σ x·p_0 = 0.9 + 0.4 + 0.9 + 0.8 + 0.5 + 0.6 = 4.1 over Σ p_0 = 1.8;
    # Σ x·p_1 = 0.1 + 0.6 + 1.2 + 3.2 + 4.5 + 5.4 = 15 over Σ p_1 = 3.4
    h_0, h_1 = 4.1 / 1.8, 15 / 3.4
    assert result.nodes[0] == close([[h_0], [h_1]])
    assert result.projected[0, 0] == close(h_0 * SEEN[0, 0] + h_1 * SEEN[1, 0])
    assert result.area.tolist() == [2, 4]
    assert result.boundary == pytest.approx(np.array([[1, 1 / 2], [1 / 4, 1]]))


def test_all_absent():
    result = tissue_relation(ROW, np.full((2, 1, 6), 0.5), row_parameters(), layer="sum", absent="linked")
    assert not result.presence.any()
    assert not result.adjacency.any()
    assert not result.boundary.any()
    assert result.nodes[0].tolist() == [[50], [70]]
    assert result.nodes[1].tolist() == [[0], [0]]  # ReLU(bias)
    assert not result.projected.any()
    assert result.features == pytest.approx(ROW + 1)  # the bias of the projection


# --- Edge, Weight, Sum, Proj ---


def test_edges_and_weights_by_hand():
    result = tissue_relation(ROW, SEEN, row_parameters(), layer="sum")
    # 0 → 1: h_0 + 10·b_01 + 100·b_10 + 1 = 3 + 5 + 25 + 1 = 34; 1 → 0: 9 + 2.5 + 50 + 1 = 62.5
    assert result.edges[..., 0] == close([[0, 67], [124, 0]])
    assert result.weights == close([[0, 3 / 4], [1 / (1 + 3 ** -((124 / 67) ** 2)), 0]])


def test_edges_without_boundary_see_the_nodes_alone():
    mlp = row_parameters()["edge"] | {"w1": np.array([[1.0, 100.0]])}
    result = tissue_relation(ROW, SEEN, row_parameters(edge=mlp), layer="sum", boundary=False)
    # 0 → 1: 3 + 900 + 1 = 904; 1 → 0: 9 + 300 + 1 = 310
    assert result.edges[..., 0] == close([[0, 1807], [619, 0]])


def test_sum_layer_and_projection_by_hand():
    result = tissue_relation(ROW, SEEN, row_parameters(), layer="sum")
    # h_0 = 9/2·124 − 1 = 557, h_1 = 3/2·67 − 1 = 99.5
    assert result.nodes[1] == close([[557], [99.5]])
    assert result.projected[0, 0] == close([557, 557, 99.5, 99.5, 99.5, 99.5])
    assert result.features[0, 0] == close([1 + 1115, 2 + 1115, 3 + 200, 4 + 200, 5 + 200, 6 + 200])
    assert result.attention == []


def test_edge_weight_multiplies_the_message():
    result = tissue_relation(ROW, SEEN, row_parameters(), layer="sum", edge_weight=True)
    assert result.nodes[1][1] == close([100.5 * 3 / 4 - 1])


def test_edges_are_not_renewed_from_layer_to_layer():
    two = row_parameters()["layers"] * 2
    result = tissue_relation(ROW, SEEN, row_parameters(layers=two), layer="sum")
    assert result.nodes[2] == close([[99.5 / 2 * 124 - 1], [557 / 2 * 67 - 1]])


# --- the graphs ---


def three_tissues():
    """Tissue 0 on the left, tissue 1 far on the right, tissue 2 nowhere."""
    seen = np.full((3, 1, 12), 0.1)
    seen[0, 0, :2] = seen[1, 0, 10:] = 0.8
    return seen


@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
@pytest.mark.parametrize(
    ("graph", "absent", "edges"),
    [
        ("adjacency", "isolated", set()),
        ("adjacency", "linked", {(2, 0), (2, 1)}),
        ("complete", "isolated", {(0, 1), (1, 0)}),
        ("complete", "linked", {(0, 1), (1, 0), (2, 0), (2, 1)}),
        ("none", "isolated", set()),
        ("none", "linked", set()),
    ],
)
def test_which_edges_carry_messages(seed, graph, absent, edges):
    params = parameters(np.random.default_rng(seed), 2, 3, 3, 2)
    result = tissue_relation(np.ones((2, 1, 12)), three_tissues(), params, graph=graph, absent=absent)
    assert {(int(src), int(dst)) for src, dst in zip(*np.nonzero(result.adjacency), strict=True)} == edges
    assert not result.touching.any()
    assert np.array_equal(result.weights > 0, result.adjacency)
    assert np.array_equal(result.edges.any(axis=2), result.adjacency)
    assert len(result.nodes) == (1 if graph == "none" else 3)
    assert len(result.attention) == (0 if graph == "none" else 2)


def absent_embedding_acts(seed, layer="attention", **options):
    """Whether another g changes D2' of ``three_tissues``."""
    params = parameters(np.random.default_rng(seed), 2, 3, 3, 2, layer)
    other = params | {"absent": -params["absent"]}
    here, there = (
        tissue_relation(np.ones((2, 1, 12)), three_tissues(), p, layer=layer, **options) for p in (params, other)
    )
    return not np.array_equal(here.features, there.features)


@settings(max_examples=3, deadline=None)
@given(seed=SEEDS)
@pytest.mark.parametrize("masks", VARIANTS["masks"])
@pytest.mark.parametrize("absent", VARIANTS["absent"])
def test_the_absent_embedding_acts_through_links_or_soft_masks(seed, masks, absent):
    assert absent_embedding_acts(seed, masks=masks, absent=absent) == (absent == "linked" or masks == "soft")


@settings(max_examples=3, deadline=None)
@given(SEEDS)
def test_the_sum_layer_forgets_the_absent_embedding_even_with_soft_masks(seed):
    # No residual: an isolated node becomes ReLU(bias), whatever it was.
    assert not absent_embedding_acts(seed, layer="sum", masks="soft")
    assert absent_embedding_acts(seed, layer="sum", masks="soft", graph="none")


# --- Attn ---


def attention_parameters(**changes):
    """W and both norms neutral, FFN silent, a_ij = LeakyReLU(first number of h_j)."""
    d = 2
    neutral = {"ln1_weight": np.ones(d), "ln1_bias": np.zeros(d), "ln2_weight": np.ones(d), "ln2_bias": np.zeros(d)}
    silent = {"ffn_w1": np.zeros((4, d)), "ffn_b1": np.zeros(4), "ffn_w2": np.zeros((d, 4)), "ffn_b2": np.zeros(d)}
    return {"W": np.eye(d), "q": np.array([0.0, 0.0, 1.0, 0.0]), **neutral, **silent, **changes}


def edges_into_first(count):
    links = np.zeros((count, count), dtype=bool)
    links[1:, 0] = True
    return links


def normed(first, second):
    """LN of two numbers: ±t / √(t² + 1e-5) with t half their difference."""
    t = (first - second) / 2
    return np.array([t, -t]) / math.sqrt(t * t + 1e-5)


def test_attention_coefficients_by_hand():
    # Scores of the senders: ln 3, 0 and −5·ln 2, of which LeakyReLU leaves −ln 2: shares 3 : 1 : 1/2.
    nodes = np.array([[7.0, 1.0], [math.log(3), 4.0], [0.0, 8.0], [-5 * math.log(2), 2.0]])
    alpha = attention_coefficients(nodes, edges_into_first(4), attention_parameters())
    assert alpha[0] == pytest.approx(np.array([0, 3, 1, 0.5]) / 4.5)
    assert not alpha[1:].any()


def test_attention_reads_the_receiver_before_the_sender():
    # q looks at W h_i: every sender scores the same, whatever it holds.
    nodes = np.array([[7.0, 1.0], [5.0, 4.0], [-9.0, 8.0]])
    alpha = attention_coefficients(nodes, edges_into_first(3), attention_parameters(q=np.array([1.0, 1.0, 0.0, 0.0])))
    assert alpha[0] == pytest.approx(np.array([0, 0.5, 0.5]))


def test_attention_layer_by_hand():
    nodes = np.array([[1.0, 2.0], [math.log(3), 4.0], [0.0, 8.0]])
    links = edges_into_first(3)
    edges = np.zeros((3, 3, 2))
    edges[1, 0] = 2.0, 1.0
    edges[2, 0] = 1.0, 0.5
    factors = np.ones((3, 3))
    factors[2, 0] = 0.25
    layer = attention_parameters(W=2 * np.eye(2), q=np.array([0.0, 0.0, 0.5, 0.0]))
    alpha = attention_coefficients(nodes, links, layer)
    updated = attention_layer(nodes, links, edges, factors, alpha, layer)
    # 3/4 · (2·ln 3 · 2, 8 · 1) + 1/4 · 1/4 · (0, 16 · 0.5) = (3·ln 3, 6.5)
    assert updated[0] == pytest.approx(normed(*normed(1 + 3 * math.log(3), 2 + 6.5)), rel=1e-12)
    # Nobody sends to the others: both norms still apply.
    assert updated[1] == pytest.approx(normed(*normed(math.log(3), 4)), rel=1e-12)


def test_feed_forward_and_both_norms_by_hand():
    # FFN(x) = 3·ReLU(x_0 + 1/2) on the first number, 1 on the second; LN1 doubles, LN2 takes times 5 plus 10.
    layer = attention_parameters(
        ln1_weight=np.full(2, 2.0),
        ffn_w1=np.array([[1.0, 0], [0, 0], [0, 0], [0, 0]]),
        ffn_b1=np.array([0.5, 0, 0, 0]),
        ffn_w2=np.array([[3.0, 0, 0, 0], [0, 0, 0, 0]]),
        ffn_b2=np.array([0.0, 1.0]),
        ln2_weight=np.full(2, 5.0),
        ln2_bias=np.full(2, 10.0),
    )
    alone, nothing = np.zeros((1, 1), dtype=bool), np.zeros((1, 1))
    updated = attention_layer(np.array([[5.0, 1.0]]), alone, np.zeros((1, 1, 2)), nothing, nothing, layer)
    first, second = 2 * normed(5, 1)
    assert updated[0] == pytest.approx(5 * normed(first + 3 * (first + 0.5), second + 1) + 10, rel=1e-12)


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(2, 8))
def test_attention_sums_to_one_over_a_neighbourhood_and_to_zero_over_none(seed, tissues):
    random = np.random.default_rng(seed)
    params = parameters(random, 3, 4, tissues, 2)
    result = tissue_relation(random.normal(size=(3, 9, 7)), coarse_prediction(random, tissues, 9, 7), params)
    assert len(result.attention) == 2
    for alpha in result.attention:
        assert alpha.sum(axis=1) == pytest.approx(result.adjacency.any(axis=0).astype(float), abs=1e-12)


# --- the module as a whole ---


def every_variant():
    return [dict(zip(VARIANTS, chosen, strict=True)) for chosen in itertools.product(*VARIANTS.values())]


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.sampled_from(every_variant()))
def test_order_of_the_classes_does_not_matter(seed, options):
    random = np.random.default_rng(seed)
    params = parameters(random, 3, 4, 5, 2, options["layer"], options["boundary"])
    features, seen = random.normal(size=(3, 7, 5)), coarse_prediction(random, 5, 7, 5)
    order = random.permutation(5)
    here = tissue_relation(features, seen, params, **options)
    there = tissue_relation(features, seen[order], params | {"absent": params["absent"][order]}, **options)
    assert there.features == pytest.approx(here.features, abs=1e-11)
    own = len(here.presence) // 5  # nodes of a tissue
    nodes = (order[:, None] * own + np.arange(own)).ravel()
    assert np.array_equal(there.adjacency, here.adjacency[np.ix_(nodes, nodes)])
    assert there.nodes[-1] == pytest.approx(here.nodes[-1][nodes], abs=1e-11)


def test_every_option_changes_the_result():
    # A fixed draw: by bad luck a dead ReLU can hide an option.
    random = np.random.default_rng(3)
    seen = np.full((4, 6, 16), 0.05)
    seen[0, :, :4] = seen[1, :, 4:8] = seen[2, :, 13:] = 0.8  # 3 is absent
    seen[0, :2, 10] = 0.8  # 0 has two regions; 1 and 2 lie apart
    features = random.normal(size=(3, 6, 16))

    def run(**options):
        params = parameters(
            np.random.default_rng(4), 3, 4, 4, 2, options.get("layer", "attention"), options.get("boundary", True)
        )
        return tissue_relation(features, seen, params, **options).features

    usual = run()
    for option, (default, *others) in VARIANTS.items():
        assert np.array_equal(run(**{option: default}), usual)
        assert all(np.abs(run(**{option: other}) - usual).max() > 1e-3 for other in others), option


@pytest.mark.parametrize("option", ["masks", "order", "layer", "absent", "graph", "nodes"])
def test_an_unknown_variant_is_refused(option):
    with pytest.raises(ValueError, match=option):
        tissue_relation(ROW, SEEN, row_parameters(), **{option: "other"})
