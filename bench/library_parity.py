"""Our networks against the libraries they follow: equal weights, equal outputs.

    PYTHONPATH=src python bench/library_parity.py

Wants torchvision, timm and transformers beside torch, and no accelerator. Every check gives both networks the same
random weights and statistics, takes the library's state under its own key names, and compares the outputs in float64.
One line per check; leaves with 1 if a difference is above 1e-4 or a library is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn

from ntrm.models.baselines import ASPP, RATES, VGGEncoder
from ntrm.models.blocks import upsample
from ntrm.models.encoders import ResNetEncoder
from ntrm.models.segformer import SegFormer

LIMIT = 1e-4
CLASSES = 12
MIT_HIDDEN = {"b0": (32, 64, 160, 256), "b2": (64, 128, 320, 512)}
MIT_DEPTHS = {"b0": (2, 2, 2, 2), "b2": (3, 4, 6, 3)}
MIT_DECODER = {"b0": 256, "b2": 768}


def main() -> int:
    seed = torch.seed()
    print(f"seed {seed}, torch {torch.__version__}")
    failed = 0
    for name, check in checks():
        try:
            difference = check()
        except ImportError as error:
            print(f"{name:<44} not checked: {error}")
            failed += 1
            continue
        failed += not difference <= LIMIT
        print(f"{name:<44} max abs difference {difference:.2e}  {'ok' if difference <= LIMIT else 'DIFFERS'}")
    return 1 if failed else 0


def checks() -> Iterable[tuple[str, Callable[[], float]]]:
    names = ("resnet18", "resnet34", "resnet50")
    for name in names:
        yield f"{name}, torchvision", partial(resnet_against_torchvision, name, 32)
    for stride in (16, 8):
        for name in names:
            yield f"{name} at stride {stride}, timm", partial(dilated_against_timm, name, stride)
        # torchvision dilates bottleneck blocks only.
        yield f"resnet50 at stride {stride}, torchvision", partial(resnet_against_torchvision, "resnet50", stride)
    yield "vgg16_bn features, torchvision", vgg_against_torchvision
    yield "ASPP, torchvision", aspp_against_torchvision
    for size in MIT_HIDDEN:
        yield f"SegFormer mit-{size}, transformers", partial(segformer_against_transformers, size)


def resnet_against_torchvision(name: str, stride: int) -> float:
    from torchvision import models

    dilated = {} if stride == 32 else {"replace_stride_with_dilation": [False, stride == 8, True]}
    theirs = randomised(models.get_model(name, weights=None, **dilated))
    ours = with_state_of(theirs, ResNetEncoder(name, output_stride=stride))
    x = torch.randn(2, 3, 96, 128, dtype=torch.float64)
    e1 = theirs.relu(theirs.bn1(theirs.conv1(x)))
    stages = [e1]
    features = theirs.maxpool(e1)
    for layer in (theirs.layer1, theirs.layer2, theirs.layer3, theirs.layer4):
        features = layer(features)
        stages.append(features)
    return worst(ours(x), stages)


def dilated_against_timm(name: str, stride: int) -> float:
    import timm

    theirs = randomised(timm.create_model(name, pretrained=False, features_only=True, output_stride=stride))
    ours = with_state_of(theirs, ResNetEncoder(name, output_stride=stride))
    x = torch.randn(2, 3, 96, 128, dtype=torch.float64)
    return worst(ours(x), theirs(x))


def vgg_against_torchvision() -> float:
    from torchvision import models

    theirs = randomised(models.vgg16_bn(weights=None))
    ours = with_state_of(theirs, VGGEncoder())
    x = torch.randn(2, 3, 64, 96, dtype=torch.float64)
    inputs: list[Tensor] = []
    for layer in theirs.features:
        if isinstance(layer, nn.MaxPool2d):
            layer.register_forward_pre_hook(lambda _, given: inputs.append(given[0].clone()))
    bottom = theirs.features(x)
    return worst(ours(x), [*inputs, bottom])


def aspp_against_torchvision() -> float:
    from torchvision.models.segmentation.deeplabv3 import ASPP as TheirASPP  # noqa: N811

    theirs = randomised(TheirASPP(512, list(RATES), 256))
    ours = with_state_of(theirs, ASPP(512, 256))
    x = torch.randn(2, 512, 24, 40, dtype=torch.float64)
    return worst([ours(x)], [theirs(x)])


def segformer_against_transformers(size: str) -> float:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        hidden_sizes=MIT_HIDDEN[size],
        depths=MIT_DEPTHS[size],
        decoder_hidden_size=MIT_DECODER[size],
        num_labels=CLASSES,
    )
    theirs = randomised(SegformerForSemanticSegmentation(config))
    ours = SegFormer(CLASSES, size=size)
    with_state_of(theirs, ours.body)
    x = torch.randn(2, 3, 96, 128, dtype=torch.float64)
    return worst([ours.double().eval()(x).final], [upsample(theirs(x).logits, 4)])


def randomised(network: nn.Module) -> nn.Module:
    """The network in float64 for inference, with norms and their statistics moved off 0 and 1."""
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.2)
            nn.init.normal_(part.running_mean, std=0.2)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
    return network.double().eval()


def with_state_of(theirs: nn.Module, ours: nn.Module) -> nn.Module:
    """Our network under the library's state; only the library's classifier may be left over."""
    missing, left_over = ours.load_state_dict(theirs.state_dict(), strict=False)
    strangers = [key for key in left_over if not key.startswith(("fc.", "classifier."))]
    if missing or strangers:
        raise SystemExit(f"key names differ: ours alone {missing}, theirs alone {strangers}")
    return ours.double().eval()


def worst(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """Largest absolute difference over all outputs; infinite where shapes differ."""
    pairs = list(zip(ours, theirs, strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return max((a - b).abs().max().item() for a, b in pairs)


if __name__ == "__main__":
    with torch.inference_mode():
        sys.exit(main())
