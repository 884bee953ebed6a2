import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ntrm.models.baselines.deeplab import ASPP, RATES, DeepLabV3Plus, PooledBatchNorm
from ntrm.models.encoders import ResNetEncoder


def atrous(x: Tensor, weight: Tensor, rate: int) -> Tensor:
    """Dilated convolution as a sum of shifted 1×1 convolutions."""
    _, _, height, width = x.shape
    reach = rate * (weight.shape[2] // 2)
    padded = F.pad(x, (reach, reach, reach, reach))
    total = x.new_zeros(x.shape[0], weight.shape[0], height, width)
    for i in range(weight.shape[2]):
        for j in range(weight.shape[3]):
            shifted = padded[:, :, i * rate : i * rate + height, j * rate : j * rate + width]
            total += torch.einsum("oc,bchw->bohw", weight[:, :, i, j], shifted)
    return total


def norm_relu(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    mean, var, weight, bias = (
        value.view(-1, 1, 1) for value in (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    )
    return ((x - mean) / (var + 1e-5).sqrt() * weight + bias).clamp(min=0)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32), height=st.integers(1, 24), width=st.integers(1, 24))
def test_aspp_equals_the_sum_over_taps(seed: int, height: int, width: int) -> None:
    torch.manual_seed(seed)
    aspp = ASPP(inputs=6, outputs=4).double().eval()
    for part in aspp.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.normal_(part.bias)
    x = torch.randn(2, 6, height, width, dtype=torch.float64)
    branches = [
        norm_relu(atrous(x, aspp.convs[n][0].weight, rate), aspp.convs[n][1]) for n, rate in enumerate((1, *RATES))
    ]
    whole = x.mean(dim=(2, 3), keepdim=True) + torch.zeros_like(x)
    branches.append(norm_relu(atrous(whole, aspp.convs[4][1].weight, 1), aspp.convs[4][2]))
    expected = norm_relu(atrous(torch.cat(branches, dim=1), aspp.project[0].weight, 1), aspp.project[1])
    torch.testing.assert_close(aspp(x), expected)


def test_a_training_batch_of_one_uses_the_running_statistics() -> None:
    norm = PooledBatchNorm(5)
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    x = torch.randn(1, 5, 1, 1, requires_grad=True)
    trained = norm(x)
    trained.sum().backward()
    assert x.grad is not None
    assert all(torch.equal(value, before[key]) for key, value in norm.state_dict().items())
    torch.testing.assert_close(trained, norm.eval()(x))


def test_a_larger_batch_is_normalised_as_usual() -> None:
    ours, usual = PooledBatchNorm(5), nn.BatchNorm2d(5)
    x = torch.randn(3, 5, 1, 1)
    torch.testing.assert_close(ours(x), usual(x))
    torch.testing.assert_close(ours.state_dict(), usual.state_dict())


def test_a_single_image_can_be_trained_on() -> None:
    network = DeepLabV3Plus(classes=3, width=0.125)
    network(torch.randn(1, 3, 64, 64)).final.mean().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("stride", [16, 8])
def test_dilation_computes_the_strided_encoder_on_a_denser_grid(name: str, stride: int) -> None:
    strided = ResNetEncoder(name, width=0.125).double().eval()
    dilated = ResNetEncoder(name, width=0.125, output_stride=stride).double().eval()
    dilated.load_state_dict(strided.state_dict())
    x = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    for ours, expected, scale in zip(dilated(x), strided(x), (2, 4, 8, 16, 32), strict=True):
        assert ours.shape[2:] == (64 // min(scale, stride), 96 // min(scale, stride))
        step = max(scale // stride, 1)
        torch.testing.assert_close(ours[:, :, ::step, ::step], expected)


def test_stages_have_the_published_channels_and_scales() -> None:
    with torch.device("meta"):
        network = DeepLabV3Plus(classes=12)
        shapes = {}
        for name in ("aspp", "reduce", "merge", "classify"):
            network.get_submodule(name).register_forward_hook(
                lambda _, __, output, name=name: shapes.update({name: tuple(output.shape[1:])})
            )
        output = network(torch.empty(2, 3, 64, 96))
    assert shapes == {"aspp": (256, 4, 6), "reduce": (48, 16, 24), "merge": (256, 16, 24), "classify": (12, 16, 24)}
    assert output.final.shape == (2, 12, 64, 96)
    assert output.coarse is None
    assert output.graph is None
