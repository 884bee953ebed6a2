"""An RGB array in, probabilities, a mask and the tissue graph out: the one place where networks meet images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from ntrm.core.devices import choose_device, choose_layout, choose_precision
from ntrm.core.errors import NtrmError, UsageError
from ntrm.core.labels import LabelSchema
from ntrm.data.image_files import over_white
from ntrm.models.base import Segmentation, SegmentationModel, TissueGraph
from ntrm.models.config import ModelConfig

GLASS = 255
"""Padding: empty glass is white, and a network has seen plenty of it. Mirrored tissue would join the graph."""

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUDNN_STATUS_ALLOC_FAILED")
"""How allocators other than CUDA's, which has an error of its own, say that memory has run out."""

Image = NDArray[np.uint8]
Floats = NDArray[np.float32]
Several = TypeVar("Several", Sequence[Image], Tensor)
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class TissueRelations:
    """The tissue graph of one image, with its class names. Edges are directed: first index sends, second receives."""

    names: tuple[str, ...]
    """Class names, in the order of every axis of length K."""
    presence: NDArray[np.bool_]
    """(K,) the tissue was proposed somewhere."""
    area: Floats
    """(K,) pixels on the 1/8 grid, padding included; proposals may overlap."""
    adjacency: NDArray[np.bool_]
    """(K, K) an edge."""
    boundary: Floats
    """(K, K) share of the first tissue's pixels that touch the second."""
    attention: Floats
    """(L, K, K) by layer; over the senders of a receiver it sums to one, or is zero without any."""
    edge_weights: Floats
    """(K, K) in (0, 1), 0 where there is no edge."""
    nodes: Floats
    """(K, d) node states after message passing."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: ``names``, and every array as nested lists in that order."""
        arrays = {field.name: getattr(self, field.name).tolist() for field in fields(self)[1:]}
        return {"names": list(self.names), **arrays}


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a network says about one image, at the image's own size."""

    probabilities: Floats
    """(K, H, W), calibrated by the network's temperature; sums to one at every pixel."""
    mask: Image
    """(H, W) index of the most probable class; ``schema`` says what an index means."""
    schema: LabelSchema
    coarse: Floats | None = None
    """(K, H, W) of the coarse head, as it came; None unless asked for, or where the network has none."""
    graph: TissueRelations | None = None
    """None unless asked for, or where the network has none."""

    @property
    def confidence(self) -> Floats:
        """(H, W) probability of the class in ``mask``."""
        highest: Floats = self.probabilities.max(axis=0)
        return highest

    @property
    def coarse_mask(self) -> Image | None:
        """(H, W) most probable class of the coarse head, if it was asked for."""
        return None if self.coarse is None else self.coarse.argmax(axis=0).astype(np.uint8)


class Predictor:
    """A network ready for images: ``Predictor(network).predict(image) → Prediction``.

    Images are (H, W, 3) RGB uint8 arrays of any size at the network's µm/px. One that fits into ``config.window``, the
    size the network was trained with, goes through it as it is, padded on the right and at the bottom with white glass
    to the size the network needs. A larger one is predicted in overlapping windows of that size, which are blended.

    Args:
        network: from ``ntrm.load`` or ``ntrm.create``; it is moved to the device and put in evaluation mode.
        device: ``auto`` takes cuda, then mps, then cpu.
        precision: ``auto`` is bfloat16 (float16 on older cards) on cuda and float32 elsewhere.
        batch: most images at a time. It is halved when memory runs out, and stays so.
        compile: compile the network first; pays off over thousands of images of one size.
    """

    def __init__(
        self,
        network: SegmentationModel,
        device: str = "auto",
        *,
        precision: str = "auto",
        batch: int = 16,
        compile: bool = False,  # noqa: A002 (torch's own word for it)
    ) -> None:
        config = getattr(network, "config", None)
        if not isinstance(config, ModelConfig):
            raise UsageError(
                "the network does not say what it predicts",
                got=f"{type(network).__name__} without a config",
                hint="make it with ntrm.create or ntrm.load",
            )
        if batch < 1:
            raise UsageError("wrong batch size", got=batch, expected="1 or more")
        self.config: ModelConfig = config
        self.device = choose_device(device)
        self.precision = choose_precision(precision, self.device)
        self.batch = batch
        self._layout = choose_layout(self.device)
        self._multiple = network.multiple
        network = network.eval().to(self.device, memory_format=self._layout)  # type: ignore[call-overload]
        self._network = torch.compile(network) if compile else network
        self._mean = torch.tensor(config.mean, device=self.device).view(1, 3, 1, 1)
        self._std = torch.tensor(config.std, device=self.device).view(1, 3, 1, 1)

    @cached_property
    def has_coarse(self) -> bool:
        """Whether the network has a coarse head, whose prediction can be asked for."""
        return self.probabilities(self._glass, coarse=True).coarse is not None

    @cached_property
    def has_graph(self) -> bool:
        """Whether the network has a relation module, whose graph can be asked for."""
        return self.probabilities(self._glass, graph=True).graph is not None

    @property
    def _glass(self) -> Image:
        return np.full((1, self._multiple, self._multiple, 3), GLASS, dtype=np.uint8)

    @overload
    def predict(self, images: Image, *, coarse: bool = ..., graph: bool = ...) -> Prediction: ...
    @overload
    def predict(self, images: Sequence[Image], *, coarse: bool = ..., graph: bool = ...) -> list[Prediction]: ...

    def predict(
        self, images: Image | Sequence[Image], *, coarse: bool = False, graph: bool = False
    ) -> Prediction | list[Prediction]:
        """Predict one image, or several in their order.

        ``coarse`` adds what the coarse head says; ``graph`` adds the relations that the network used, which exist for
        images no larger than its window and for networks with a relation module. ``ntrm.tissue_graph`` gives the graph
        of any mask. Images of one padded size go through the network together; none influences another.
        """
        stack = isinstance(images, np.ndarray) and images.ndim == 4
        single = not (stack or isinstance(images, Sequence))
        given: list[Any] = [images] if single else list(images)
        several = [_without_alpha(image) for image in given]
        for image in several:
            check_image(image)
            if graph:
                self._check_graph(image)
        done = {
            index: self._predict_large(image, coarse=coarse)
            for index, image in enumerate(several)
            if self._is_large(image)
        }
        for indices in self._by_size(several, [index for index in range(len(several)) if index not in done]):
            found = self._predict_equal([several[index] for index in indices], coarse=coarse, graph=graph)
            done.update(zip(indices, found, strict=True))
        ordered = [done[index] for index in range(len(several))]
        return ordered[0] if single else ordered

    def _padded(self, image: Image | Tensor) -> tuple[int, int]:
        height, width = (-(-side // self._multiple) * self._multiple for side in image.shape[:2])
        return height, width

    def _by_size(self, images: Sequence[Image], indices: Sequence[int]) -> list[list[int]]:
        groups: dict[tuple[int, int], list[int]] = {}
        for index in indices:
            groups.setdefault(self._padded(images[index]), []).append(index)
        return list(groups.values())

    def _is_large(self, image: Image) -> bool:
        return bool(max(image.shape[:2]) > self.config.window)

    def _predict_large(self, image: Image, *, coarse: bool) -> Prediction:
        from ntrm.inference.sliding_window import predict_in_windows

        return predict_in_windows(self, image, coarse=coarse)

    def _check_graph(self, image: Image) -> None:
        """Refuse to give None, or the graph of a field larger than any the network was trained with."""
        hint = "predict without graph=True; ntrm.tissue_graph(prediction.mask, mpp=…) gives the graph of the mask"
        if not self.has_graph:
            raise UsageError(f"{self.config.arch} has no relation module, so it uses no graph", hint=hint)
        if self._is_large(image):
            raise UsageError(
                "the network relates tissues window by window",
                got=f"an image of {image.shape[0]} × {image.shape[1]} pixels",
                expected=f"at most {self.config.window} × {self.config.window} for graph=True",
                hint=hint,
            )

    @torch.inference_mode()
    def probabilities(self, pixels: Tensor | Image, *, coarse: bool = False, graph: bool = False) -> Segmentation:
        """(B, H, W, 3) uint8 of one size → probabilities in place of logits, float32 (B, K, H, W), on the device.

        For callers that go on working where the network ran, such as stitching. What comes back has not been read, so
        nothing waits for the device; numbers that are none are for the caller to refuse (``broken_network``). Sizes
        and batches are as in ``predict``.
        """
        batch = self._full_tiles(pixels)
        height, width = pixels.shape[1:3]

        def run(some: Tensor) -> Segmentation:
            return self._run(some, coarse=coarse, graph=graph)

        whole = _joined([*self._by_halves(batch, run)])
        first = None if whole.coarse is None else whole.coarse[..., :height, :width]
        return Segmentation(whole.final[..., :height, :width], first, whole.graph)

    def _full_tiles(self, pixels: Tensor | Image) -> Tensor:
        """(B, H, W, 3) uint8 with glass on the right and at the bottom, where the network needs more."""
        # A memory map may be read-only, which torch has no notion of.
        batch = (
            torch.from_numpy(np.require(pixels, requirements=("C", "W"))) if isinstance(pixels, np.ndarray) else pixels
        )
        _check_batch(batch)
        height, width = batch.shape[1:3]
        padded_height, padded_width = self._padded(batch[0])
        if (padded_height, padded_width) == (height, width):
            return batch
        return functional.pad(batch, (0, 0, 0, padded_width - width, 0, padded_height - height), value=GLASS)

    def _predict_equal(self, images: Sequence[Image], *, coarse: bool, graph: bool) -> Iterator[Prediction]:
        """Images of one padded size, batch by batch."""

        def work(some: Sequence[Image]) -> list[Prediction]:
            return self._unpack(self._run(self._collate(some), coarse=coarse, graph=graph), some)

        for done in self._by_halves(images, work):
            yield from done

    def _by_halves(self, images: Several, work: Callable[[Several], Result]) -> Iterator[Result]:
        """``work`` on batch after batch; a batch that does not fit is tried again by halves."""
        start = 0
        while start < len(images):
            part = images[start : start + self.batch]
            done = self._attempt(part, work)
            if done is None:
                # Only here, outside the handler, is nothing left that holds the failed batch's tensors.
                self.batch = len(part) // 2
                if self.device.type == "cuda":
                    torch.cuda.empty_cache()
                continue
            yield done
            start += len(part)

    def _attempt(self, images: Several, work: Callable[[Several], Result]) -> Result | None:
        """The result, or None where memory ran out and a smaller batch may do."""
        try:
            return work(images)
        except (RuntimeError, MemoryError) as error:
            if not _ran_out_of_memory(error):
                raise
            if len(images) == 1:
                height, width = images[0].shape[:2]
                raise NtrmError(
                    f"memory of {self.device} ran out with a single image",
                    got=f"{height} × {width} pixels",
                    hint=f"cut it into windows of {self.config.window} pixels, or use a device with more memory",
                ) from error
            return None

    def _collate(self, images: Sequence[Image]) -> Tensor:
        """Images of one padded size → (B, H', W', 3) uint8 with glass around them."""
        padded = np.full((len(images), *self._padded(images[0]), 3), GLASS, dtype=np.uint8)
        for place, image in zip(padded, images, strict=True):
            place[: image.shape[0], : image.shape[1]] = image
        return torch.from_numpy(padded)

    @torch.inference_mode()
    def _run(self, pixels: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """(B, H', W', 3) uint8 → probabilities in place of logits, in float32, on the device."""
        x = self._normalised(pixels)
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            out: Segmentation = self._network(x, coarse=coarse, graph=graph)
        first = None if out.coarse is None else out.coarse.float().softmax(dim=1)
        return Segmentation((out.final.float() / self.config.temperature).softmax(dim=1), first, out.graph)

    def _normalised(self, pixels: Tensor) -> Tensor:
        """(B, H', W', 3) uint8 → (B, 3, H', W') as the network takes them, on the device."""
        on_cuda = self.device.type == "cuda"
        # From pinned memory nothing waits for the batches before, which an ordinary copy to the device does.
        source = pixels.pin_memory() if on_cuda and pixels.device.type == "cpu" else pixels
        x = source.to(self.device, non_blocking=on_cuda).permute(0, 3, 1, 2)
        return ((x.float() / 255 - self._mean) / self._std).contiguous(memory_format=self._layout)

    def broken_network(self) -> NtrmError:
        """The error for values that are no numbers."""
        return NtrmError(
            "the network gave values that are no numbers",
            got=f"{self.config.arch} in {self.precision}",
            hint="use precision='float32'; if that gives the same, its weights are broken",
        )

    def _unpack(self, output: Segmentation, images: Sequence[Image]) -> list[Prediction]:
        final = _to_numpy(output.final)
        if not np.isfinite(final.sum()):
            raise self.broken_network()
        arrays = {"probabilities": final, "mask": _to_numpy(output.final.argmax(dim=1).to(torch.uint8))}
        if output.coarse is not None:
            arrays["coarse"] = _to_numpy(output.coarse)
        return [
            Prediction(
                **{name: _crop(array[index], *image.shape[:2]) for name, array in arrays.items()},
                schema=self.config.schema,
                graph=None if output.graph is None else _relations(output.graph, index, self.config.schema),
            )
            for index, image in enumerate(images)
        ]


def _without_alpha(image: Image) -> Image:
    """An RGBA image on white, as ``ntrm segment`` reads it; anything else as it is."""
    has_alpha = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 4
    return over_white(image) if has_alpha else image


def check_image(image: object) -> None:
    """Refuse what is no (H, W, 3) RGB array of bytes."""
    if not isinstance(image, np.ndarray):
        raise UsageError(
            "an image must be an array",
            got=type(image).__name__,
            expected="a numpy array of shape (H, W, 3), or a list of them",
            hint="np.asarray(image) makes one of a Pillow image",
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


def _joined(parts: Sequence[Segmentation]) -> Segmentation:
    """Batches one after the other; a single one is not copied."""
    if len(parts) == 1:
        return parts[0]
    coarse = [part.coarse for part in parts if part.coarse is not None]
    graphs = [part.graph for part in parts if part.graph is not None]
    return Segmentation(
        torch.cat([part.final for part in parts]),
        torch.cat(coarse) if coarse else None,
        TissueGraph(*(torch.cat(each) for each in zip(*graphs, strict=True))) if graphs else None,
    )


def _ran_out_of_memory(error: Exception) -> bool:
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(phrase in str(error) for phrase in _OUT_OF_MEMORY)


def _to_numpy(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.contiguous().cpu().numpy()
    return array


def _crop(array: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Cut the padding off; the result keeps no larger array alive."""
    return array[..., :height, :width].copy()


def _relations(graph: TissueGraph, index: int, schema: LabelSchema) -> TissueRelations:
    parts = {name: _to_numpy(tensor[index]) for name, tensor in graph._asdict().items()}
    return TissueRelations(names=schema.names, **parts)
