"""Encoders: our ResNets with torchvision's key names, or any pyramid of timm's behind the extra ``encoders``."""

from __future__ import annotations

import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.core.errors import UsageError, choices_error
from ntrm.models.blocks import conv7_by_blocks, initialise, scaled

Stages = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""E1 … E5 at 1/2, 1/4, 1/8, 1/16 and 1/32 of the input size (1/32 becomes 1/16 or 1/8 with dilation)."""
STRIDES = [2, 4, 8, 16, 32]
RESNETS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}  # Blocks of each stage


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    padding = dilation * (kernel // 2)
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation=dilation, bias=False)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int, before: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, planes, 3, stride, before)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv(planes, planes, 3, 1, dilation)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, planes, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) → (B, planes, H/stride, W/stride)."""
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        result: Tensor = self.relu(out + (x if self.downsample is None else self.downsample(x)))
        return result


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions and a shortcut; the stride sits on the 3×3 as in torchvision."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int, before: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, planes, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = _conv(planes, planes, 3, stride, before)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = _conv(planes, planes * 4, 1)
        self.bn3 = nn.BatchNorm2d(planes * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, planes * 4, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) → (B, 4·planes, H/stride, W/stride)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(out)))))
        result: Tensor = self.relu(out + (x if self.downsample is None else self.downsample(x)))
        return result


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(Pointwise(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class Pointwise(nn.Conv2d):
    """A 1×1 convolution with a stride.

    On x86 processors oneDNN's gradient of such weights writes beyond its memory below 16 channels (oneDNN issue 6035):
    wrong gradients, or a crash. Narrow ones skip pixels first.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name for it
        """(B, inputs, H, W) → (B, outputs, H/stride, W/stride)."""
        if self.in_channels >= 16 or input.device.type != "cpu":
            return super().forward(input)
        rows, columns = self.stride
        return F.conv2d(input[:, :, ::rows, ::columns], self.weight)


class ResNetEncoder(nn.Module):
    """Features at five scales; ``output_stride`` 16 or 8 trades the last strides for dilation (for DeepLab)."""

    def __init__(self, name: str = "resnet18", width: float = 1.0, output_stride: int = 32) -> None:
        super().__init__()
        if name not in RESNETS:
            raise choices_error("unknown encoder", name, [*RESNETS, "timm:<name>"])
        block = Bottleneck if name == "resnet50" else BasicBlock
        planes = [scaled(64 * 2**k, width) for k in range(4)]
        self.channels = (planes[0], *(p * block.expansion for p in planes))
        self.conv1 = nn.Conv2d(3, planes[0], 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(planes[0])
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        # Where a stride is traded for dilation, what comes after it is dilated: torchvision and timm do the same.
        stages: list[nn.Sequential] = []
        dilation, inputs = 1, planes[0]
        for level, (outputs, count) in enumerate(zip(planes, RESNETS[name], strict=True)):
            before, stride = dilation, 1 if level == 0 else 2
            if 4 * 2**level > output_stride:
                dilation, stride = dilation * stride, 1
            first = block(inputs, outputs, stride, before, dilation)
            inputs = outputs * block.expansion
            rest = [block(inputs, outputs, 1, dilation, dilation) for _ in range(count - 1)]
            stages.append(nn.Sequential(first, *rest))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        initialise(self)

    def forward(self, x: Tensor) -> Stages:
        """(B, 3, H, W) → E1 … E5; E1 is the stem before the max-pool."""
        stem = conv7_by_blocks(x, self.conv1.weight) if x.is_cuda else self.conv1(x)
        e1 = self.relu(self.bn1(stem))
        e2 = self.layer1(self.maxpool(e1))
        e3 = self.layer2(e2)
        e4 = self.layer3(e3)
        return e1, e2, e3, e4, self.layer4(e4)


def make_encoder(name: str, width: float = 1.0) -> ResNetEncoder | TimmEncoder:
    """Encoder by name: ``resnet18``, ``resnet34``, ``resnet50`` or ``timm:<name>``."""
    if not isinstance(name, str):
        raise UsageError("an encoder has a name", got=repr(name), expected=f"{', '.join(RESNETS)} or timm:<name>")
    if name.startswith("timm:"):
        if width != 1.0:
            raise UsageError("timm encoders come in their own width", got=width, expected="width 1")
        return TimmEncoder(name.removeprefix("timm:"))
    return ResNetEncoder(name, width)


class TimmEncoder(nn.Module):
    """A feature pyramid of timm's, without pretrained weights: those are loaded like all others."""

    def __init__(self, name: str) -> None:
        super().__init__()
        if not re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+)?", name):
            # timm fetches names such as hf-hub:owner/model; a config file must not be able to ask for that.
            raise UsageError("unknown timm encoder", got=repr(name), expected="the plain name of a timm model")
        try:
            import timm
        except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision built for another torch
            hint = 'pip install "ntrm[encoders]"'
            raise UsageError(f"the encoder timm:{name} needs timm", got=error, hint=hint) from error
        try:
            with torch.device("cpu"):  # timm computes while it builds, which tensors without memory cannot
                self.body = timm.create_model(name, pretrained=False, features_only=True)
        except RuntimeError as error:
            raise UsageError("timm cannot make this encoder", got=error, hint="see timm.list_models()") from error
        strides = list(self.body.feature_info.reduction())
        if strides != STRIDES:
            raise UsageError(f"timm:{name} is no five-level pyramid", got=strides, expected=STRIDES)
        self.channels = tuple(self.body.feature_info.channels())

    def forward(self, x: Tensor) -> Stages:
        """(B, 3, H, W) → E1 … E5."""
        e1, e2, e3, e4, e5 = self.body(x)
        return e1, e2, e3, e4, e5
