"""SegFormer as transformers has it."""

import pytest
import torch
import torch.nn.functional as F

from ntrm.models.segformer import SegFormer

transformers = pytest.importorskip("transformers", reason="the extra mit is not installed")

PUBLISHED = {
    "b0": {"hidden_sizes": [32, 64, 160, 256], "depths": [2, 2, 2, 2], "decoder_hidden_size": 256},
    "b2": {"hidden_sizes": [64, 128, 320, 512], "depths": [3, 4, 6, 3], "decoder_hidden_size": 768},
}
"""As the authors' own checkpoints (nvidia/mit-b0, nvidia/mit-b2) have it."""


@pytest.fixture(autouse=True)
def seeded(seed):
    torch.manual_seed(seed)


def of_transformers(classes, **sizes):
    return transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(num_labels=classes, **sizes))


@pytest.mark.parametrize("size", PUBLISHED)
def test_sizes_are_the_published_ones(size):
    with torch.device("meta"):
        published = of_transformers(12, **PUBLISHED[size]).state_dict()
        ours = SegFormer(12, size=size).body.state_dict()
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in published.items()}


def test_logits_are_those_of_transformers_at_input_size():
    network = SegFormer(5, width=0.25).eval()
    theirs = of_transformers(5, hidden_sizes=[8, 16, 40, 64], decoder_hidden_size=64).eval()
    theirs.load_state_dict(network.body.state_dict())
    x = torch.randn(2, 3, 64, 96)
    expected = F.interpolate(theirs(x).logits, size=(64, 96), mode="bilinear", align_corners=False)
    torch.testing.assert_close(network(x).final, expected)
