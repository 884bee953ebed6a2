"""Changes to tiles on tensors: geometry, stain, colour, blur, noise, JPEG compression.

Each function takes one parameter per sample and is deterministic; ``ntrm.data.augment`` draws the parameters.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE


def send(small: Tensor, like: Tensor) -> Tensor:
    """``small`` on the device of ``like``, without waiting for that device.

    Torch waits for all earlier work of a GPU before it copies from memory that the system may move: a training step
    whose augmentation has a dozen such copies could never be prepared while the step before is computed.
    """
    if like.device.type == "cuda" and small.device.type == "cpu":
        return small.pin_memory().to(like.device, non_blocking=True)
    return small.to(like.device)


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
    """Images (B, 3, H, W) in [0, 1] as they look after JPEG at ``quality`` (B, 1 to 100), on any device.

    8×8 cosine transform, quantisation and halved chroma follow libjpeg's defaults (JFIF colours, 4:2:0, its quality
    scale), so that an image comes out as it would from a scanner's file; entropy coding, which changes no pixel, is
    left out.
    """
    height, width = images.shape[-2:]
    pad_right, pad_bottom = -width % 16, -height % 16
    padded = functional.pad(images.float() * 255, (0, pad_right, 0, pad_bottom), mode="replicate").round()
    to_ycbcr, from_ycbcr = _colour_matrices(images.device)
    ycbcr = torch.einsum("ij,bjhw->bihw", to_ycbcr, padded).round()  # chroma centred on 0
    luma = _quantise(ycbcr[:, :1] - 128, send(_table(_LUMA, quality), images)) + 128
    halved = functional.avg_pool2d(ycbcr[:, 1:], 2).round()
    chroma = _quantise(halved, send(_table(_CHROMA, quality), images))
    chroma = functional.interpolate(chroma, scale_factor=2, mode="bilinear", align_corners=False)
    merged = torch.cat([luma, chroma], dim=1)
    rgb = torch.einsum("ij,bjhw->bihw", from_ycbcr, merged).round().clamp(0, 255)
    return (rgb[..., :height, :width] / 255).to(images.dtype)


@cache
def _colour_matrices(device: torch.device) -> tuple[Tensor, Tensor]:
    """RGB to YCbCr and back; inverted on the CPU, which then need not wait for a device."""
    to_ycbcr = torch.tensor(_TO_YCBCR)
    return to_ycbcr.to(device), to_ycbcr.inverse().to(device)


def _table(base: tuple[tuple[int, ...], ...], quality: Tensor) -> Tensor:
    """Quantisation steps (B, 8, 8) of libjpeg's quality scale."""
    quality = quality.round().clamp(1, 100)
    percent = torch.where(quality < 50, (5000 / quality).floor(), 200 - 2 * quality)
    steps = torch.tensor(base, device=quality.device, dtype=torch.float32)
    return ((steps * percent[:, None, None] + 50) / 100).floor().clamp(1, 255)


@cache
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


HAEMATOXYLIN = (0.650, 0.704, 0.286)
EOSIN = (0.072, 0.990, 0.105)  # Optical densities of the pure stains in red, green and blue (Ruifrok and Johnston 2001)


@cache
def _stain_matrices(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Unit colours of haematoxylin, eosin and what neither explains, as rows of (3, 3); the transpose's inverse."""
    haematoxylin, eosin = torch.tensor(HAEMATOXYLIN), torch.tensor(EOSIN)
    stains = torch.stack([haematoxylin, eosin, torch.linalg.cross(haematoxylin, eosin)])
    stains = functional.normalize(stains, dim=1).to(device, dtype)
    return stains, stains.T.inverse()


def optical_density(images: Tensor) -> Tensor:
    """Optical density of images in [0, 1]: 0 for glass, log 256 for black."""
    return -((images * 255 + 1) / 256).log()


def from_optical_density(density: Tensor) -> Tensor:
    """Images in [0, 1] of an optical density; inverse of ``optical_density``."""
    return ((256 * density.clamp(0, math.log(256)).neg().exp() - 1) / 255).clamp(0, 1)


def jitter_stains(images: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Images with every stain's concentration c replaced by ``scale · c + shift``, as another laboratory stains.

    By Beer–Lambert the optical density ``OD = -log((I + 1) / 256)`` of a pixel is the sum over stains of concentration
    times the stain's colour vector: the strengths of a batch are one 3×3 matrix and one offset per image.

    Args:
        images: (B, 3, H, W) in [0, 1].
        scale: (B, 2), haematoxylin and eosin; 1 changes nothing.
        shift: (B, 2); 0 changes nothing.

    """
    stains, unmixing = _stain_matrices(scale.dtype, scale.device)
    scale = torch.cat([scale, torch.ones_like(scale[:, :1])], dim=1)  # the remainder is left alone
    # In row vectors c = od · stains⁻¹ and od' = (c · scale + shift) · stains; below od is a column.
    mixing = stains.T @ (scale[:, :, None] * unmixing)  # (B, 3, 3)
    offset = shift @ stains[:2]  # (B, 3)
    mixing, offset = send(mixing, images).to(images.dtype), send(offset, images).to(images.dtype)
    density = torch.einsum("bij,bjhw->bihw", mixing, optical_density(images)) + offset[:, :, None, None]
    return from_optical_density(density)


def mix_colours(images: Tensor, mixing: Tensor) -> Tensor:
    """Images (B, 3, H, W) with the optical densities of their channels mixed by ``mixing`` (B, 3, 3)."""
    mixing = send(mixing, images).to(images.dtype)
    return from_optical_density(torch.einsum("bij,bjhw->bihw", mixing, optical_density(images)))


def sharpen(images: Tensor, amount: Tensor) -> Tensor:
    """Images (B, 3, H, W) with ``amount`` (B) times their difference from the 3×3 mean added, as scanners do."""
    mean = functional.avg_pool2d(images, 3, stride=1, padding=1, count_include_pad=False)
    return (images + _per_sample(amount.to(images.dtype), images) * (images - mean)).clamp(0, 1)


def add_noise(images: Tensor, sigma: Tensor, seeds: Tensor) -> Tensor:
    """Images (B, 3, H, W) with normal noise of ``sigma`` (B), full scale being 1; each from its own seed (B)."""
    noise = torch.empty_like(images)
    for sample, seed in zip(noise, seeds.tolist(), strict=True):
        sample.normal_(generator=torch.Generator(images.device).manual_seed(int(seed)))
    return (images + _per_sample(sigma.to(images.dtype), images) * noise).clamp(0, 1)


def fill_glass(images: Tensor, masks: Tensor, others: Tensor, other_masks: Tensor, glass: int) -> tuple[Tensor, Tensor]:
    """Images (B, 3, H, W) and masks (B, H, W) with those of ``others`` wherever the mask is of the class ``glass``.

    So epithelium comes to lie at no surface: a network that tells epidermis by the glass beside it is wrong there.
    """
    here = masks == glass
    return torch.where(here.unsqueeze(1), others, images), torch.where(here, other_masks, masks)


def flip(batch: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Images or masks (B, …, H, W), mirrored left–right where ``across`` (B, bool) and top–bottom where ``down``."""
    batch = torch.where(_per_sample(across, batch), batch.flip(-1), batch)
    return torch.where(_per_sample(down, batch), batch.flip(-2), batch)


def turn(batch: Tensor, quarters: Tensor) -> Tensor:
    """Images or masks (B, …, H, W), turned anticlockwise by ``quarters`` (B, whole numbers) right angles."""
    half, odd = quarters % 4 >= 2, quarters % 2 == 1
    if half.any():
        batch = torch.where(_per_sample(half, batch), batch.flip((-2, -1)), batch)
    if not odd.any():
        return batch
    if batch.shape[-1] != batch.shape[-2]:
        raise UsageError(
            "only square tiles can be turned by 90 degrees", got=f"{tuple(batch.shape[-2:])} (height, width)"
        )
    return torch.where(_per_sample(odd, batch), batch.transpose(-2, -1).flip(-2), batch)


def rotate_images(images: Tensor, degrees: Tensor) -> Tensor:
    """Images (B, 3, H, W) in [0, 1], rotated anticlockwise by ``degrees`` (B); glass where nothing is known."""
    grid = _rotation_grid(images, degrees)
    # Sampling continues with zeros, so the image is inverted for what comes in to be white.
    return 1 - functional.grid_sample(1 - images, grid, mode="bilinear", align_corners=False)


def rotate_masks(masks: Tensor, degrees: Tensor) -> Tensor:
    """Masks (B, H, W), rotated like the images; the nearest label, and ignore where nothing is known."""
    offset = (masks.float() - IGNORE)[:, None]  # ignore becomes the zero that sampling continues with
    grid = _rotation_grid(offset, degrees)
    rotated = functional.grid_sample(offset, grid, mode="nearest", align_corners=False)
    return (rotated[:, 0] + IGNORE).to(masks.dtype)


def _rotation_grid(batch: Tensor, degrees: Tensor) -> Tensor:
    """Where each output pixel comes from, (B, H, W, 2), in the coordinates of ``grid_sample``."""
    height, width = batch.shape[-2:]
    angle = send(degrees, batch).to(batch.dtype) * (math.pi / 180)
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # Coordinates run from -1 to 1 along both axes; the ratio of the sides keeps angles true.
    rows = [cosine, -sine * height / width, zero, sine * width / height, cosine, zero]
    matrix = torch.stack(rows, dim=1).reshape(-1, 2, 3)
    return functional.affine_grid(matrix, [len(batch), 1, height, width], align_corners=False)


def brighten(images: Tensor, factor: Tensor) -> Tensor:
    """Images (B, 3, H, W) in [0, 1] under a lamp ``factor`` (B) times as bright; what is too bright is white."""
    return (images * _per_sample(factor.to(images.dtype), images)).clamp(max=1)


def gaussian_blur(images: Tensor, sigma: Tensor, widest: float | None = None) -> Tensor:
    """Images (B, 3, H, W) blurred with standard deviation ``sigma`` (B) in pixels; the border pixel is continued.

    The kernel is cut at four deviations of the ``widest`` blur, or of the widest in the batch where none is given: with
    it, what becomes of an image does not depend on the others.
    """
    batch, channels, height, _ = images.shape
    radius = max(1, math.ceil(4 * (float(sigma.max()) if widest is None else widest)))
    offsets = torch.arange(-radius, radius + 1, device=images.device)
    kernel = torch.exp(-0.5 * (offsets / send(sigma, images).to(images.dtype).clamp(min=1e-3)[:, None]) ** 2)
    kernel = (kernel / kernel.sum(dim=1, keepdim=True)).repeat_interleave(channels, dim=0)[:, None]  # (3B, 1, taps)
    padded = functional.pad(images, (radius,) * 4, mode="replicate")
    padded = padded.reshape(1, batch * channels, height + 2 * radius, -1)
    blurred = functional.conv2d(padded, kernel[:, :, None, :], groups=batch * channels)
    blurred = functional.conv2d(blurred, kernel[:, :, :, None], groups=batch * channels)
    return blurred.reshape(images.shape)


def _per_sample(flags: Tensor, batch: Tensor) -> Tensor:
    return send(flags, batch).reshape(-1, *[1] * (batch.ndim - 1))
