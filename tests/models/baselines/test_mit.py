import sys

import pytest
import torch
import torch.nn.functional as F

from ntrm.core.errors import UsageError
from ntrm.models.baselines.mit import SegFormer, make_segformer

PUBLISHED = {
    "b0": {"hidden_sizes": [32, 64, 160, 256], "depths": [2, 2, 2, 2], "decoder_hidden_size": 256},
    "b2": {"hidden_sizes": [64, 128, 320, 512], "depths": [3, 4, 6, 3], "decoder_hidden_size": 768},
}
"""As the authors' own checkpoints (nvidia/mit-b0, nvidia/mit-b2) have it."""


@pytest.mark.parametrize("size", PUBLISHED)
def test_sizes_are_the_published_ones(size: str) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra mit is not installed")
    config = transformers.SegformerConfig(num_labels=12, **PUBLISHED[size])
    with torch.device("meta"):
        published = transformers.SegformerForSemanticSegmentation(config).state_dict()
        ours = SegFormer(12, size=size).body.state_dict()
    assert {key: value.shape for key, value in ours.items()} == {key: value.shape for key, value in published.items()}


def test_logits_are_those_of_transformers_at_input_size() -> None:
    transformers = pytest.importorskip("transformers", reason="the extra mit is not installed")
    network = SegFormer(5, width=0.25).eval()
    thin = {"hidden_sizes": [8, 16, 40, 64], "decoder_hidden_size": 64}
    theirs = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(num_labels=5, **thin)).eval()
    theirs.load_state_dict(network.body.state_dict())
    x = torch.randn(2, 3, 64, 96)
    expected = F.interpolate(theirs(x).logits, size=(64, 96), mode="bilinear", align_corners=False)
    output = network(x)
    torch.testing.assert_close(output.final, expected)
    assert output.coarse is None
    assert output.graph is None


def test_without_drop_path_training_is_repeatable_up_to_the_last_dropout() -> None:
    pytest.importorskip("transformers", reason="the extra mit is not installed")
    encoder = make_segformer("b0", 3, width=0.25, drop_path=0.0).get_submodule("segformer").train()
    x = torch.randn(4, 3, 64, 64)
    torch.testing.assert_close(encoder(x).last_hidden_state, encoder(x).last_hidden_state)


def test_missing_transformers_is_told_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r'pip install "ntrm\[mit\]"'):
        SegFormer(12)


def test_unknown_size_lists_the_choices() -> None:
    with pytest.raises(UsageError, match="one of b0, b2"):
        SegFormer(12, size="b9")
