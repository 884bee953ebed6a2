"""Blocks that every network is built from. Tensors are (B, C, H, W)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.core.errors import UsageError, check_number


def conv_bn_relu(inputs: int, outputs: int, kernel: int = 3, dilation: int = 1, stride: int = 1) -> nn.Sequential:
    """Convolution that keeps the size, but for its stride, batch norm, ReLU."""
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def upsample(x: Tensor, factor: int = 2, *, align_corners: bool = False) -> Tensor:
    """Bilinear upsampling by a whole factor; corners are aligned in the authors' released network alone."""
    if align_corners:
        return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=True)
    if factor == 2 and x.is_cuda and torch.compiler.is_compiling() and not torch.is_grad_enabled():
        return _lerp(_lerp(x, dim=2), dim=3)
    if x.is_cuda and x.requires_grad and not torch.compiler.is_compiling():
        # Features are doubled as they are. What is enlarged more is mostly logits, which losses want in float32.
        features = x if factor == 2 else x.to(torch.promote_types(x.dtype, torch.float32))
        out: Tensor = Upsampled.apply(features, factor)  # type: ignore[no-untyped-call]
        return out
    return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)


class Upsampled(torch.autograd.Function):
    """Bilinear upsampling for training on a GPU, as two matrix products; so is its gradient.

    Autocast would upsample half-precision features in float32 and store them so; here they stay as they are. Torch's
    backward pass adds up in no fixed order; products have one, and both ways are faster. In single precision, products
    may be rounded to fewer bits than sums: there the values are torch's own.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: int) -> Tensor:
        """(B, C, H, W) → (B, C, fH, fW): along columns, then along rows."""
        ctx.factor = factor
        batch, channels, height, width = x.shape
        with torch.autocast(x.device.type, enabled=False):
            if x.dtype.itemsize > 2:
                return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)
            columns = _spread(x.permute(0, 2, 3, 1).reshape(batch, height, width * channels), factor)
            rows = _spread(columns.view(batch * factor * height, width, channels), factor)
        return rows.view(batch, factor * height, factor * width, channels).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """(B, C, fH, fW) → (B, C, H, W): along rows, then along columns."""
        (gradient,), factor = gradients, ctx.factor
        batch, channels, height, width = gradient.shape
        with torch.autocast(gradient.device.type, enabled=False):
            pixels = gradient.permute(0, 2, 3, 1).reshape(batch * height, width, channels)
            rows = _gathered(pixels, factor).view(batch, height, width // factor * channels)
            columns = _gathered(rows, factor).view(batch, height // factor, width // factor, channels)
        return columns.permute(0, 3, 1, 2), None


def _spread(x: Tensor, factor: int) -> Tensor:
    """Linear upsampling along the middle axis: (N, L, C) → (N, fL, C)."""
    return torch.bmm(_weights(x.shape[1], factor, x).mT, x)


def _gathered(x: Tensor, factor: int) -> Tensor:
    """Its transpose: (N, fL, C) → (N, L, C)."""
    return torch.bmm(_weights(x.shape[1] // factor, factor, x), x)


def _weights(length: int, factor: int, x: Tensor) -> Tensor:
    """(N, L, fL), of the kind of ``x``: with whole factors exact in half precision, too."""
    unit = torch.eye(length, device=x.device).unsqueeze(0)
    weights = F.interpolate(unit, scale_factor=factor, mode="linear", align_corners=False)
    return weights.to(x.dtype).expand(len(x), -1, -1)


def _lerp(x: Tensor, dim: int) -> Tensor:
    """The same sums as bilinear ×2 along one axis, written for the compiler.

    Its own version stores a float32 copy of its input and cannot be fused with the concatenation that follows; this one
    reads the input as it is. Gathering has a slow backward pass, so this is for inference only.
    """
    size = x.shape[dim]
    position = torch.arange(2 * size, device=x.device)
    low = (position - 1).clamp(min=0) // 2  # output 2i lies a quarter below input i, output 2i + 1 a quarter above
    high = (low + 1).clamp(max=size - 1)
    weight = torch.where(position % 2 == 0, 0.75, 0.25).to(x.dtype)
    weight = torch.where(position == 0, torch.zeros_like(weight), weight)
    weight = weight.view(-1, *[1] * (x.ndim - 1 - dim))
    return x.index_select(dim, low) * (1 - weight) + x.index_select(dim, high) * weight


def conv7_by_blocks(x: Tensor, weight: Tensor) -> Tensor:
    """A 7×7 convolution of stride 2 and padding 3 on RGB, as a 4×4 convolution over 2×2 blocks of pixels.

    The same sums in another order. Matrix units starve on three channels; blocks have twelve, filled up to sixteen.
    (B, 3, H, W), (C, 3, 7, 7) → (B, C, H/2, W/2).
    """
    channels = weight.shape[0]
    blocks = F.pad(F.pixel_unshuffle(x, 2), (2, 1, 2, 1, 0, 4))  # (B, 16, H/2 + 3, W/2 + 3)
    weight = F.pad(weight, (1, 0, 1, 0))  # (C, 3, 8, 8): tap k of seven becomes tap k + 1 of eight
    weight = weight.reshape(channels, 3, 4, 2, 4, 2).permute(0, 1, 3, 5, 2, 4).reshape(channels, 12, 4, 4)
    weight = F.pad(weight, (0, 0, 0, 0, 0, 4))
    return F.conv2d(blocks.contiguous(memory_format=torch.channels_last), weight)


class DecoderBlock(nn.Module):
    """``Dec``: upsample ×2, concatenate the skip if there is one, twice 3×3 convolution, BN, ReLU."""

    def __init__(self, inputs: int, skip: int, outputs: int, align_corners: bool = False) -> None:
        super().__init__()
        self.align_corners = align_corners
        self.first = conv_bn_relu(inputs + skip, outputs)
        self.second = conv_bn_relu(outputs, outputs)

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        """(B, inputs, H, W), (B, skip, 2H, 2W) → (B, outputs, 2H, 2W)."""
        x = upsample(x, align_corners=self.align_corners)
        if skip is not None:
            x = torch.cat([x, skip], dim=1)
        out: Tensor = self.second(self.first(x))
        return out


class Classifier(nn.Conv2d):
    """The last layer of a U-Net: a 1×1 convolution from features to classes."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__(features, classes, kernel_size=1)
        initialise(self)


def initialise(module: nn.Module) -> None:
    """Kaiming normal (fan in) for convolutions, ones and zeros for norms; linear layers keep torch's default."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.ones_(layer.weight)
            nn.init.zeros_(layer.bias)


def scaled(channels: int, width: float) -> int:
    """Channels of a thinner or wider network: a multiple of 8, at least 8."""
    check_number("width", width, 0.05, 4)
    return max(8, round(channels * width / 8) * 8)


def check_input(x: Tensor, multiple: int) -> None:
    """Refuse what the network cannot take, and say which size to pad to."""
    if x.ndim != 4 or x.shape[1] != 3:
        raise UsageError("wrong input", got=f"shape {tuple(x.shape)}", expected="(B, 3, H, W): a batch of RGB images")
    height, width = x.shape[-2:]
    if height % multiple or width % multiple:
        padded = [-(-side // multiple) * multiple for side in (height, width)]
        raise UsageError(
            f"height and width must be multiples of {multiple}",
            got=f"{height} × {width}",
            expected=f"{padded[0]} × {padded[1]}",
            hint="pad the image to that size, or let ntrm.Predictor do it",
        )
