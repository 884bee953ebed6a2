import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ntrm.models.baselines.attention_unet import AttentionDecoderBlock, AttentionGate, AttentionUNet


def unsettle(module: nn.Module) -> nn.Module:
    """The module in float64 for inference, with batch norms that do something."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return module.double().eval()


def pixel_map(part: nn.Sequential, vector: np.ndarray) -> np.ndarray:
    """1×1 convolution and batch norm of one pixel, in plain arithmetic."""
    conv, norm = part
    mixed = conv.weight.detach().numpy()[:, :, 0, 0] @ vector
    spread = np.sqrt(norm.running_var.numpy() + 1e-5)
    return (mixed - norm.running_mean.numpy()) / spread * norm.weight.detach().numpy() + norm.bias.detach().numpy()


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    skip=st.integers(1, 6),
    gating=st.integers(1, 6),
    inner=st.integers(1, 4),
    height=st.integers(1, 4),
    width=st.integers(1, 4),
)
def test_gate_equals_the_equation_pixel_by_pixel(
    seed: int, skip: int, gating: int, inner: int, height: int, width: int
) -> None:
    torch.manual_seed(seed)
    gate = unsettle(AttentionGate(skip, gating, inner))
    x = torch.randn(2, skip, height, width, dtype=torch.float64)
    g = torch.randn(2, gating, height, width, dtype=torch.float64)
    gated = gate(x, g).detach().numpy()
    for b, i, j in np.ndindex(2, height, width):
        pixel = x[b, :, i, j].numpy()
        inner_sum = pixel_map(gate.from_skip, pixel) + pixel_map(gate.from_gating, g[b, :, i, j].numpy())
        alpha = 1 / (1 + np.exp(-pixel_map(gate.psi, np.maximum(inner_sum, 0))))
        np.testing.assert_allclose(gated[b, :, i, j], alpha * pixel, rtol=1e-10, atol=1e-12)


def test_a_closed_gate_hides_the_skip_and_an_open_one_lets_it_through() -> None:
    block = unsettle(AttentionDecoderBlock(inputs=8, outputs=4))
    norm = block.gate.psi[1]
    nn.init.zeros_(norm.weight)
    x, skip = torch.randn(1, 8, 3, 3, dtype=torch.float64), torch.randn(1, 4, 6, 6, dtype=torch.float64)
    nn.init.constant_(norm.bias, -800)
    torch.testing.assert_close(block(x, skip), block(x, torch.zeros_like(skip)))
    nn.init.constant_(norm.bias, 800)
    torch.testing.assert_close(block.gate(skip, torch.randn_like(skip)), skip)


def test_each_level_is_gated_by_the_coarser_one() -> None:
    with torch.device("meta"):
        network = AttentionUNet(classes=12)
        gated = []
        for part in network.modules():
            if isinstance(part, AttentionGate):
                part.register_forward_hook(
                    lambda gate, given, _: gated.append((*given[0].shape[1:], gate.psi[0].in_channels))
                )
        output = network(torch.empty(1, 3, 32, 64))
    assert gated == [(512, 4, 8, 256), (256, 8, 16, 128), (128, 16, 32, 64), (64, 32, 64, 32)]
    assert output.final.shape == (1, 12, 32, 64)
    assert output.coarse is None
    assert output.graph is None


def test_encoder_has_the_stages_of_the_common_implementation() -> None:
    with torch.device("meta"):
        network = AttentionUNet(classes=2)
        bottom = []
        network.stages[-1].register_forward_hook(lambda _, __, output: bottom.append(tuple(output.shape[1:])))
        network(torch.empty(1, 3, 64, 32))
    assert [stage[1][0].out_channels for stage in network.stages] == [64, 128, 256, 512, 1024]
    assert bottom == [(1024, 4, 2)]
