import pytest
import torch
from torch import nn

from ntrm.models.baselines.plain_unet import ResNetUNet
from ntrm.models.blocks import DecoderBlock
from ntrm.models.ntrm import NTRM
from ntrm.models.unet import UNetDecoder


def test_decoder_stages_have_the_channels_and_scales_of_the_specification() -> None:
    with torch.device("meta"):
        network = ResNetUNet(classes=12)
        shapes = []
        for part in network.modules():
            if isinstance(part, DecoderBlock):
                part.register_forward_hook(lambda _, __, output: shapes.append(tuple(output.shape[1:])))
        output = network(torch.empty(1, 3, 64, 96))
    assert shapes == [(256, 4, 6), (128, 8, 12), (96, 16, 24), (64, 32, 48), (32, 64, 96)]
    assert output.final.shape == (1, 12, 64, 96)
    assert output.coarse is None
    assert output.graph is None


@pytest.mark.parametrize("encoder", ["resnet18", "resnet50"])
def test_it_is_ntrm_without_coarse_head_and_relation(encoder: str) -> None:
    control = NTRM(5, encoder=encoder, width=0.125).eval()
    network = ResNetUNet(5, encoder=encoder, width=0.125).eval()
    shared = [value for key, value in control.state_dict().items() if not key.startswith("coarse.")]
    network.load_state_dict(dict(zip(network.state_dict(), shared, strict=True)))
    x = torch.randn(2, 3, 64, 32)
    torch.testing.assert_close(network(x).final, control(x).final)


def test_decoder_takes_no_skip_where_its_size_is_zero() -> None:
    decoder = UNetDecoder(8, skips=(4, 0), outputs=(6, 2)).double().eval()
    x, skip = torch.randn(2, 8, 3, 2, dtype=torch.float64), torch.randn(2, 4, 6, 4, dtype=torch.float64)
    grow = nn.Upsample(scale_factor=2, mode="bilinear")
    first, second = decoder.blocks
    middle = first.second(first.first(torch.cat([grow(x), skip], dim=1)))
    expected = second.second(second.first(grow(middle)))
    assert expected.shape == (2, 2, 12, 8)
    torch.testing.assert_close(decoder(x, (skip, None)), expected)
