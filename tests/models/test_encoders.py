"""ResNet encoders: scales, widths, dilation, torchvision's key names, and the encoders that are found by name."""

import sys
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from ntrm.core.errors import UsageError
from ntrm.models.encoders import RESNETS, STRIDES, Pointwise, ResNetEncoder, TimmEncoder
from ntrm.models.registry import create


@pytest.mark.parametrize("channels", [8, 16])
def test_gradients_of_a_narrow_strided_shortcut_are_those_in_double_precision(random, channels):
    # oneDNN wrote beyond its memory here on processors with AVX-512: wrong numbers, or a crash.
    layer = Pointwise(channels, 16, 1, 2, bias=False)
    x, slope = (torch.from_numpy(random.normal(size=size)) for size in ((2, channels, 64, 64), (2, 16, 32, 32)))
    found = []
    for dtype in (torch.float64, torch.float32):
        layer = layer.to(dtype, memory_format=torch.channels_last)
        image = x.to(dtype).contiguous(memory_format=torch.channels_last).requires_grad_()
        out = layer(image)
        found.append([out, *torch.autograd.grad(out, (image, layer.weight), slope.to(dtype))])
    for single, double in zip(*reversed(found), strict=True):
        torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["hf-hub:evil/x", "local-dir:/tmp/x", "../x", "a/b", "", "RESNET"])
def test_timm_is_never_asked_for_anything_but_a_plain_name(name):
    with pytest.raises(UsageError, match="plain name"):
        TimmEncoder(name)


class Pyramid(torch.nn.Module):
    """What timm makes, as far as we ask for it: features at these strides, and what is known of them."""

    def __init__(self, strides):
        super().__init__()
        self.strides, self.proj = strides, torch.nn.Conv2d(3, 8, 1)
        self.feature_info = SimpleNamespace(reduction=lambda: strides, channels=lambda: [8] * len(strides))

    def forward(self, x):
        return [F.avg_pool2d(self.proj(x), stride) for stride in self.strides]


def test_a_pyramid_of_timms_is_an_encoder_and_one_of_other_scales_is_refused(monkeypatch):
    asked, made = [], {"five": Pyramid(STRIDES), "four": Pyramid(STRIDES[1:])}

    def create_model(name, **options):
        asked.append(options)
        return made[name]

    monkeypatch.setitem(sys.modules, "timm", SimpleNamespace(create_model=create_model))
    network = create("ntrm-control", 3, encoder="timm:five")
    assert network(torch.zeros(2, 3, 64, 64)).final.shape == (2, 3, 64, 64)
    assert asked == [{"pretrained": False, "features_only": True}]
    with pytest.raises(UsageError, match="no five-level pyramid"):
        TimmEncoder("four")


def norm(state, name, x):
    statistics = (state[f"{name}.running_mean"], state[f"{name}.running_var"])
    return F.batch_norm(x, *statistics, state[f"{name}.weight"], state[f"{name}.bias"], eps=1e-5)


def residual(state, name, x, stride):
    y = F.relu(norm(state, f"{name}.bn1", F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)))
    y = norm(state, f"{name}.bn2", F.conv2d(y, state[f"{name}.conv2.weight"], padding=1))
    if f"{name}.downsample.0.weight" in state:
        shortcut = F.conv2d(x, state[f"{name}.downsample.0.weight"], stride=stride)
        x = norm(state, f"{name}.downsample.1", shortcut)
    return F.relu(x + y)


def literal_resnet18(state, x):
    """He et al., 2016, with torchvision's key names."""
    e1 = F.relu(norm(state, "bn1", F.conv2d(x, state["conv1.weight"], stride=2, padding=3)))
    stages, x = [e1], F.max_pool2d(e1, 3, stride=2, padding=1)
    for layer in (1, 2, 3, 4):
        x = residual(state, f"layer{layer}.0", x, 1 if layer == 1 else 2)
        x = residual(state, f"layer{layer}.1", x, 1)
        stages.append(x)
    return stages


@torch.no_grad()
def test_resnet18_is_the_published_network(seed):
    torch.manual_seed(seed)
    encoder = ResNetEncoder(width=0.125).double()
    image = torch.randn(2, 3, 64, 96, dtype=torch.float64)
    encoder.train()(image)  # statistics that differ from the initial ones
    for ours, theirs in zip(encoder.eval()(image), literal_resnet18(encoder.state_dict(), image), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", RESNETS)
@torch.no_grad()
def test_equal_weights_give_torchvisions_features(name, seed):
    models = pytest.importorskip("torchvision.models", reason="torchvision is not installed", exc_type=ImportError)
    torch.manual_seed(seed)
    theirs, ours = getattr(models, name)(weights=None).eval(), ResNetEncoder(name).eval()
    ours.load_state_dict({key: value for key, value in theirs.state_dict().items() if not key.startswith("fc.")})
    image = torch.randn(1, 3, 64, 64)
    features = theirs.layer4(theirs.layer3(theirs.layer2(theirs.layer1(
        theirs.maxpool(theirs.relu(theirs.bn1(theirs.conv1(image))))
    ))))  # fmt: skip
    torch.testing.assert_close(ours(image)[4], features)
