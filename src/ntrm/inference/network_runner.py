"""A network on a device: batches of images in, probabilities out, smaller batches where memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from functools import cached_property
from typing import Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ntrm.core.devices import choose_device, choose_layout, choose_precision, keep_freed_memory, ran_out_of_memory
from ntrm.core.errors import NtrmError, UsageError
from ntrm.data.transforms import mix_colours, send
from ntrm.models.base import Segmentation, SegmentationModel, TissueGraph, check_described, evaluating
from ntrm.models.config import ModelConfig

GLASS = 255
"""Padding: empty glass is white, and a network has seen plenty of it. Mirrored tissue would join the graph."""

Image = NDArray[np.uint8]
Images = TypeVar("Images", Sequence[Image], Tensor)
Result = TypeVar("Result")


class NetworkRunner:
    """Runs a network on batches; ``Predictor`` adds images of any size.

    The arguments are those of ``Predictor``. ``batch`` is halved when memory runs out, and stays so.
    """

    def __init__(
        self,
        network: SegmentationModel,
        device: str | torch.device = "auto",
        *,
        precision: str = "auto",
        batch: int = 16,
        compile: bool = False,  # noqa: A002 (torch's own word for it)
    ) -> None:
        check_described(network)
        if batch < 1:
            raise UsageError("wrong batch size", got=batch, expected="1 or more")
        self.device = choose_device(device)
        keep_freed_memory(self.device)
        self.precision = choose_precision(precision, self.device)
        self.batch = batch
        self._layout = choose_layout(self.device)
        self._multiple = network.multiple
        network = network.eval().to(self.device, memory_format=self._layout)  # type: ignore[call-overload]
        self._network = torch.compile(network) if compile else network
        self._uncompiled: SegmentationModel = getattr(network, "_orig_mod", network)
        self._colours: tuple[ModelConfig, Tensor, Tensor] | None = None
        self.mixing: Tensor | None = None
        """Of the optical densities of an image before the network sees it, see ``recolouring``."""

    def recolouring(self, mixing: Sequence[Sequence[float]]) -> Self:
        """The same network, which sees every image with its optical densities mixed by a (3, 3) matrix.

        Whoever else is given the pixels, such as an observer of windows, sees them as they are.
        """
        other = copy(self)
        other.mixing = torch.tensor(mixing, dtype=torch.float32, device=self.device)
        return other

    @property
    def config(self) -> ModelConfig:
        """What the network says of itself, as it is now: its temperature may be set after the predictor was made."""
        return self._uncompiled.config

    @property
    def network(self) -> SegmentationModel:
        """The network itself, for those who look inside it; a compiled one shows nothing of its inside."""
        if not isinstance(self._network, SegmentationModel):
            raise UsageError("a compiled network cannot be looked into", hint="give it as it was before compiling")
        return self._network

    @cached_property
    def has_coarse(self) -> bool:
        """Whether the network has a coarse head."""
        return self.probabilities(self._glass, coarse=True).coarse is not None

    @cached_property
    def has_graph(self) -> bool:
        """Whether the network has a relation module, and so a tissue graph."""
        return self.probabilities(self._glass, graph=True).graph is not None

    @property
    def _glass(self) -> Image:
        return np.full((1, self._multiple, self._multiple, 3), GLASS, dtype=np.uint8)

    @torch.inference_mode()
    def probabilities(self, pixels: Tensor | Image, *, coarse: bool = False, graph: bool = False) -> Segmentation:
        """(B, H, W, 3) uint8 of one size → probabilities in place of logits, float32 (B, K, H, W), on the device.

        For callers that go on working on the device, such as stitching. Nothing has been copied from there, so nothing
        waits for it; the caller has to refuse values that are not finite (``broken_network``). Images are padded with
        white glass on the right and at the bottom to the size the network needs, and the result is cut to theirs.
        """
        batch = _as_tensor(pixels) if isinstance(pixels, np.ndarray) else pixels
        _check_batch(batch)
        height, width = batch.shape[1:3]
        tall, wide = self._padded_size(height, width)
        if (tall, wide) != (height, width):
            batch = functional.pad(batch, (0, 0, 0, wide - width, 0, tall - height), value=GLASS)
        out = _joined([*self._by_halves(batch, lambda chunk: self._run(chunk, coarse=coarse, graph=graph))])
        first = None if out.coarse is None else out.coarse[..., :height, :width]
        return Segmentation(out.final[..., :height, :width], first, out.graph)

    def on_device(self, pixels: Image) -> Tensor:
        """(B, H, W, 3) uint8 where the network is, for callers that need them there, too."""
        return send(_as_tensor(pixels), self._mean_and_std()[0])

    def _padded_size(self, height: int, width: int) -> tuple[int, int]:
        return -(-height // self._multiple) * self._multiple, -(-width // self._multiple) * self._multiple

    def _by_halves(self, images: Images, work: Callable[[Images], Result]) -> Iterator[Result]:
        """``work`` on batch after batch; a batch that does not fit is tried again by halves."""
        start = 0
        while start < len(images):
            chunk = images[start : start + self.batch]
            done = self._attempt(chunk, work)
            if done is None:
                # Only here, outside the handler, is nothing left that holds the failed batch's tensors.
                self.batch = len(chunk) // 2
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                continue
            yield done
            start += len(chunk)

    def _attempt(self, images: Images, work: Callable[[Images], Result]) -> Result | None:
        """The result, or None where memory ran out and a smaller batch may do."""
        try:
            return work(images)
        except (RuntimeError, MemoryError) as error:
            if not ran_out_of_memory(error):
                raise
            if len(images) == 1:
                height, width = images[0].shape[:2]
                raise NtrmError(
                    f"memory of {self.device} ran out with a single image",
                    got=f"{height} × {width} pixels",
                    hint=f"cut it into windows of {self.config.window} pixels, or use a device with more memory",
                ) from error
            return None

    @torch.inference_mode()
    def _run(self, pixels: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """(B, H', W', 3) uint8 → probabilities in place of logits, in float32, on the device."""
        mean, std = self._mean_and_std()
        x = send(pixels, mean).permute(0, 3, 1, 2).float() / 255
        if self.mixing is not None:
            x = mix_colours(x, self.mixing.expand(len(x), 3, 3))
        own = next((values.dtype for values in self._uncompiled.parameters()), torch.float32)
        x = ((x - mean) / std).to(own).contiguous(memory_format=self._layout)
        # In training mode images would depend on each other, and would move the statistics of batch norm.
        mode = evaluating(self._uncompiled) if self._uncompiled.training else nullcontext()
        # A network that is not in float32 itself runs in the numbers it is in.
        automatic = own == torch.float32 != self.precision
        with mode, torch.autocast(self.device.type, self.precision, enabled=automatic):
            out: Segmentation = self._network(x, coarse=coarse, graph=graph)
        first = None if out.coarse is None else out.coarse.float().softmax(dim=1)
        return Segmentation((out.final.float() / self.config.temperature).softmax(dim=1), first, out.graph)

    def _mean_and_std(self) -> tuple[Tensor, Tensor]:
        """Colours that the network expects, (1, 3, 1, 1) each, on the device: copied there when they change."""
        config = self.config
        if self._colours is None or self._colours[0] is not config:
            rows = torch.tensor([config.mean, config.std], device=self.device).view(2, 1, 3, 1, 1)
            self._colours = config, rows[0], rows[1]
        return self._colours[1:]

    def broken_network(self) -> NtrmError:
        """The error for values that are not finite."""
        return NtrmError(
            "the network returned values that are not numbers",
            got=f"{self.config.arch} in {self.precision}",
            hint="use precision='float32'; if that gives the same, its weights are broken",
        )


def _as_tensor(pixels: Image) -> Tensor:
    # A memory map may be read-only, which torch cannot represent.
    return torch.from_numpy(np.require(pixels, requirements=("C", "W")))


def check_image(image: object) -> None:
    """Refuse what is no (H, W, 3) RGB array of bytes."""
    if not isinstance(image, np.ndarray):
        raise UsageError(
            "not an image",
            got=f"{image.dtype} tensor" if isinstance(image, Tensor) else type(image).__name__,
            expected="a uint8 array (H, W, 3), a uint8 tensor (3, H, W), a Pillow image, a path, or a list of these",
        )
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise UsageError(
            "not an RGB image",
            got=f"{image.dtype} of shape {image.shape}",
            expected="uint8 of shape (H, W, 3), at least one pixel",
            hint="convert it to 8-bit RGB: repeat grey three times, scale floats to 0 … 255",
        )


def _check_batch(batch: object) -> None:
    if (
        not isinstance(batch, Tensor)
        or batch.dtype != torch.uint8
        or batch.ndim != 4
        or batch.shape[3] != 3
        or not batch.numel()
    ):
        got = f"{batch.dtype} of shape {tuple(batch.shape)}" if isinstance(batch, Tensor) else type(batch).__name__
        raise UsageError("not a batch of RGB images", got=got, expected="uint8 of shape (B, H, W, 3), at least one")


def _joined(batches: Sequence[Segmentation]) -> Segmentation:
    """Batches one after the other; a single one is not copied."""
    if len(batches) == 1:
        return batches[0]
    coarse = [batch.coarse for batch in batches if batch.coarse is not None]
    graphs = [batch.graph for batch in batches if batch.graph is not None]
    return Segmentation(
        torch.cat([batch.final for batch in batches]),
        torch.cat(coarse) if coarse else None,
        TissueGraph(*(torch.cat(values) for values in zip(*graphs, strict=True))) if graphs else None,
    )
