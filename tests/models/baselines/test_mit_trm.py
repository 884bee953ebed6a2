import pytest
import torch
from torch import nn

from ntrm.models.baselines.mit import make_segformer
from ntrm.models.blocks import upsample
from ntrm.models.mit_trm import MiTTRM

pytest.importorskip("transformers", reason="the extra mit is not installed")

CLASSES = 4


@pytest.fixture
def network() -> MiTTRM:
    network = MiTTRM(CLASSES, width=0.25, drop_path=0.0, dim=16, layers=2)
    # A confident coarse head, so that some tissues pass the threshold.
    nn.init.normal_(network.coarse.classify.weight, std=3.0)
    return network


def test_fused_features_are_what_segformer_classifies(network: MiTTRM) -> None:
    segformer = make_segformer("b0", CLASSES, width=0.25).eval()
    trunk = {key: value for key, value in segformer.state_dict().items() if "classifier" not in key}
    network.body.load_state_dict(trunk)
    x = torch.randn(1, 3, 64, 64)
    fused = network.eval().body(x).logits
    assert fused.shape == (1, 64, 16, 16)
    logits = segformer.get_submodule("decode_head.classifier")(fused)
    torch.testing.assert_close(logits, segformer(x).logits)


def test_relation_refines_what_the_decoder_gets(network: MiTTRM) -> None:
    seen = {}
    for name in ("body", "shrink", "coarse", "relation"):
        network.get_submodule(name).register_forward_hook(lambda _, __, output, name=name: seen.update({name: output}))
    output = network.eval()(torch.randn(2, 3, 64, 96), graph=True)
    refined, tissues = network.relation(seen["shrink"], seen["coarse"].softmax(dim=1))
    expected = upsample(network.classify(network.decoder(refined, seen["body"].logits)), 4)
    torch.testing.assert_close(output.final, expected)
    torch.testing.assert_close(output.coarse, upsample(seen["coarse"], 8))
    assert torch.equal(output.graph.presence, tissues.presence)
    assert seen["shrink"].shape[2:] == seen["coarse"].shape[2:] == (8, 12)
    assert output.graph.nodes.shape == (2, CLASSES, 16)
    assert output.graph.attention.shape == (2, 2, CLASSES, CLASSES)


def test_initial_and_graph_come_on_request_only(network: MiTTRM) -> None:
    output = network.eval()(torch.randn(1, 3, 32, 32), coarse=False)
    assert output.coarse is None
    assert output.graph is None


@pytest.mark.parametrize("variant", [{}, {"masks": "soft", "edge_weight": True}, {"graph": "none"}], ids=str)
def test_parameters_without_gradient_are_the_listed_ones(variant: dict[str, object]) -> None:
    network = MiTTRM(CLASSES, width=0.25, drop_path=0.0, dim=16, layers=1, **variant)
    # Three tissues in stripes and one that is absent, whatever the weights are.
    stripes = torch.zeros(CLASSES, 8, 8)
    stripes[0, :3] = stripes[1, 3:6] = stripes[2, 6:] = 30
    network.coarse.register_forward_hook(lambda _, __, logits: logits + stripes)
    output = network(torch.randn(2, 3, 64, 64))
    (output.final.square().mean() + output.coarse.square().mean()).backward()
    silent = {key for key, value in network.named_parameters() if value.grad is None or not value.grad.any()}
    assert silent == set(network.without_gradient())
