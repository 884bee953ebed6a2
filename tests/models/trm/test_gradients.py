"""Which parameters receive gradient in each variant: measured, as the specification predicts it, and as documented."""

import itertools
from pathlib import Path

import pytest
import torch
from tests.reference.trm_literal import VARIANTS

from ntrm.models.trm import RelationConfig, TissueRelation

DOCUMENT = Path(__file__).parents[3] / "docs" / "gradients.md"
SWITCHES = ("nodes", "masks", "absent", "graph", "layer", "edge_weight")
COMBINATIONS = [
    dict(zip(SWITCHES, chosen, strict=True)) for chosen in itertools.product(*(VARIANTS[name] for name in SWITCHES))
]


def scene():
    """p (2, K, 8, 8): four tissues in a quarter each, a fifth nowhere."""
    p = torch.full((2, 5, 8, 8), 0.05, dtype=torch.float64)
    p[:, 0, :4, :4] = p[:, 1, :4, 4:] = p[:, 2, 4:, :4] = p[:, 3, 4:, 4:] = 0.8
    return p


def measured(variant):
    """Names (parameters, ``features``, ``probabilities``) that receive gradient in a variant, and those that do not."""
    module = TissueRelation(4, 5, RelationConfig(dim=32, layers=2, **variant)).double().eval()
    features = torch.randn(2, 4, 8, 8, dtype=torch.float64, requires_grad=True)
    probabilities = scene().requires_grad_()
    refined, _ = module(features, probabilities)
    (refined * torch.randn_like(refined)).sum().backward()
    tensors = {"features": features, "probabilities": probabilities, **dict(module.named_parameters())}
    received = {name for name, tensor in tensors.items() if tensor.grad is not None and tensor.grad.any()}
    return received, tensors.keys() - received


def predicted_without(variant):
    """The specification, section 3: where g, W_e and p stand outside every path to the features."""
    without = set()
    messages = variant["graph"] != "none"
    if messages and not variant["edge_weight"]:
        without.add("edge_weight.form")
    sends = messages and variant["absent"] == "linked"
    kept_until_projection = not messages or variant["layer"] == "attention"
    # A tissue that is nowhere has no region, so that it covers no pixel even with soft masks.
    covers = variant["masks"] == "soft" and variant["nodes"] == "class"
    if not sends and not (covers and kept_until_projection):
        without.add("absent")
    if variant["masks"] != "soft":
        without.add("probabilities")
    return without


@pytest.mark.usefixtures("seed")
@pytest.mark.parametrize("variant", COMBINATIONS, ids=lambda variant: "-".join(map(str, variant.values())))
def test_gradients_go_where_the_specification_says(variant):
    _, without = measured(variant)
    assert without == predicted_without(variant)
    module = TissueRelation(4, 5, RelationConfig(dim=6, layers=2, **variant))
    assert module.without_gradient().keys() == without - {"probabilities"}


def test_absent_tissues_alone_receive_gradient():
    # Each row of g is the embedding of one tissue: those that are present leave theirs untouched.
    module = TissueRelation(4, 5, RelationConfig(dim=6, absent="linked")).double()
    refined, graph = module(torch.randn(2, 4, 8, 8, dtype=torch.float64), scene())
    (refined * torch.randn_like(refined)).sum().backward()
    assert module.absent.grad.any(dim=1).tolist() == (~graph.presence[0]).tolist()


# --- the tables of the document ---

GRAPHS = {
    "edges, attention": {"graph": ("adjacency", "complete"), "layer": ("attention",)},
    "edges, sum": {"graph": ("adjacency", "complete"), "layer": ("sum",)},
    "no graph": {"graph": ("none",)},
}
PER_TISSUE = {
    **{
        f"masks {' or '.join(masks)}, absent {absent}": {"masks": masks, "absent": (absent,), "nodes": ("class",)}
        for masks in (("hard", "plain"), ("soft",))
        for absent in VARIANTS["absent"]
    },
    **{f"nodes region, absent {absent}": {"absent": (absent,), "nodes": ("region",)} for absent in VARIANTS["absent"]},
}
WEIGHTS = {f"edge_weight {'on' if on else 'off'}": {"edge_weight": (on,)} for on in VARIANTS["edge_weight"]}
MASKS = {f"masks {masks}": {"masks": (masks,)} for masks in VARIANTS["masks"]}


@pytest.fixture(scope="module")
def outcomes():
    """Each combination with what was measured of it."""
    return [(variant, *measured(variant)) for variant in COMBINATIONS]


def cell(outcomes, name, conditions):
    """``yes`` or ``no`` if all variants that fulfil the conditions agree; ``–`` where there is no such parameter."""
    answers = {
        "yes" if name in received else "no" if name in without else "–"
        for variant, received, without in outcomes
        if all(variant[switch] in allowed for switch, allowed in conditions.items())
    }
    return answers.pop() if len(answers) == 1 else "depends"


def table(outcomes, name, rows):
    lines = [["", *GRAPHS], ["---"] * (len(GRAPHS) + 1)]
    lines += [[row, *(cell(outcomes, name, rows[row] | GRAPHS[graph]) for graph in GRAPHS)] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@pytest.mark.parametrize(
    ("name", "rows"), [("absent", PER_TISSUE), ("edge_weight.form", WEIGHTS), ("probabilities", MASKS)]
)
def test_the_document_shows_the_measured_table(name, rows, outcomes):
    shown = table(outcomes, name, rows)
    assert "depends" not in shown
    assert shown in DOCUMENT.read_text(encoding="utf-8"), f"docs/gradients.md should hold:\n{shown}"


def test_everything_else_receives_gradient_in_every_variant(outcomes):
    for variant, _, without in outcomes:
        assert without <= {"absent", "edge_weight.form", "probabilities"}, variant
