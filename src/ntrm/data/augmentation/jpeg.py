"""What JPEG does to an image, on tensors and on any device: 8×8 cosine transform, quantisation, halved chroma.

The lossless half of JPEG (entropy coding) changes no pixel and is left out. The rest follows libjpeg's defaults
(JFIF colours, 4:2:0, its quality scale), so that an image comes out as it would from a scanner's file.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from ntrm.data.augmentation.sending import send

_TO_YCBCR = ((0.299, 0.587, 0.114), (-0.168735892, -0.331264108, 0.5), (0.5, -0.418687589, -0.081312411))

# Annex K of ITU-T T.81.
_LUMA = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
_CHROMA = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8,) * 4,
)


def compress(images: Tensor, quality: Tensor) -> Tensor:
    """Images (B, 3, H, W) in [0, 1] as they look after JPEG at ``quality`` (B, 1 to 100)."""
    height, width = images.shape[-2:]
    pad_right, pad_bottom = -width % 16, -height % 16
    padded = functional.pad(images.float() * 255, (0, pad_right, 0, pad_bottom), mode="replicate").round()
    to_ycbcr = torch.tensor(_TO_YCBCR)  # on the CPU, where inverting it is no reason to wait for a device
    ycbcr = torch.einsum("ij,bjhw->bihw", send(to_ycbcr, images), padded).round()  # chroma centred on 0
    luma = _quantise(ycbcr[:, :1] - 128, send(_table(_LUMA, quality), images)) + 128
    halved = functional.avg_pool2d(ycbcr[:, 1:], 2).round()
    chroma = _quantise(halved, send(_table(_CHROMA, quality), images))
    chroma = functional.interpolate(chroma, scale_factor=2, mode="bilinear", align_corners=False)
    merged = torch.cat([luma, chroma], dim=1)
    rgb = torch.einsum("ij,bjhw->bihw", send(to_ycbcr.inverse(), images), merged).round().clamp(0, 255)
    return (rgb[..., :height, :width] / 255).to(images.dtype)


def _table(base: tuple[tuple[int, ...], ...], quality: Tensor) -> Tensor:
    """Quantisation steps (B, 8, 8) of libjpeg's quality scale."""
    quality = quality.round().clamp(1, 100)
    percent = torch.where(quality < 50, (5000 / quality).floor(), 200 - 2 * quality)
    steps = torch.tensor(base, device=quality.device, dtype=torch.float32)
    return ((steps * percent[:, None, None] + 50) / 100).floor().clamp(1, 255)


def _cosines(device: torch.device) -> Tensor:
    """The orthonormal 8-point cosine transform: rows are frequencies."""
    frequency, position = torch.arange(8.0, device=device)[:, None], torch.arange(8.0, device=device)
    cosines = (math.pi / 8 * (position + 0.5) * frequency).cos() / 2
    return torch.where(frequency == 0, cosines / math.sqrt(2), cosines)


def _quantise(channels: Tensor, table: Tensor) -> Tensor:
    """Channels (B, C, H, W) with the cosine coefficients of each 8×8 block rounded to multiples of ``table``."""
    batch, count, height, width = channels.shape
    cosines = _cosines(channels.device)
    blocks = channels.reshape(batch, count, height // 8, 8, width // 8, 8).transpose(3, 4)  # (B, C, H/8, W/8, 8, 8)
    table = table[:, None, None, None]
    coefficients = ((cosines @ blocks @ cosines.T) / table).round() * table
    blocks = (cosines.T @ coefficients @ cosines).round()
    return blocks.transpose(3, 4).reshape(batch, count, height, width).clamp(-128, 127)
