"""A network on a device: RGB images in; probabilities, a mask and the tissue graph out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Image as Picture
from torch import Tensor
from torch.nn import functional

from ntrm.core.arrays import Singles
from ntrm.core.devices import choose_device, choose_layout, choose_precision, keep_freed_memory, ran_out_of_memory
from ntrm.core.errors import NtrmError, RefusedError, UsageError
from ntrm.core.labels import LabelSchema
from ntrm.core.wording import short_repr
from ntrm.data.image_files import over_white
from ntrm.data.tiles import GLASS
from ntrm.data.transforms import mix_colours, send
from ntrm.models.base import NetworkGraph, Segmentation, SegmentationModel, check_described, evaluating
from ntrm.models.config import ModelConfig
from ntrm.models.trm import trains_edge_weights
from ntrm.models.windows import Image, check_image, stitch
from ntrm.slides.grid import SlideGrid
from ntrm.slides.isolated import open_slide
from ntrm.slides.readers.reader import MAX_READ_PIXELS

ImageLike = Image | Tensor | Picture | str | Path  # What ``Predictor`` takes for an image


@dataclass(frozen=True, eq=False)
class TissueRelations:
    """The tissue graph of one image, with its class names. Edges are directed: first index sends, second receives."""

    names: tuple[str, ...]  # Class names, in the order of every axis of length K
    presence: NDArray[np.bool_]  # (K,) the tissue was proposed somewhere
    area: Singles  # (K,) pixels on the 1/8 grid, padding included; proposals may overlap
    adjacency: NDArray[np.bool_]  # (K, K) an edge
    boundary: Singles  # (K, K) fraction of the first tissue's pixels that touch the second
    attention: Singles  # (L, K, K) by layer; over the senders of a receiver it sums to one, or is zero without any
    edge_weights: Singles | None
    """(K, K) in (0, 1), 0 where there is no edge; None for a network that does not train them."""
    nodes: Singles  # (K, d) node states after message passing

    __repr__ = short_repr


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a network says about one image, at the image's own size."""

    probabilities: Singles  # (K, H, W), calibrated by the network's temperature; sums to one at every pixel
    mask: Image  # (H, W) index of the most probable class; ``schema`` says what an index means
    schema: LabelSchema
    coarse: Singles | None = None
    """(K, H, W) of the coarse head, as it came; None unless asked for, or where the network has none."""
    graph: TissueRelations | None = None  # None unless asked for, or where the network has none

    __repr__ = short_repr

    @property
    def confidence(self) -> Singles:
        """(H, W) probability of the class in ``mask``."""
        highest: Singles = self.probabilities.max(axis=0)
        return highest

    @property
    def coarse_mask(self) -> Image | None:
        """(H, W) most probable class of the coarse head, if it was asked for."""
        return None if self.coarse is None else self.coarse.argmax(axis=0).astype(np.uint8)


class Predictor:
    """A network ready for images: ``Predictor(network)(image) → Prediction``.

    Images are RGB of any size at the network's µm/px: a uint8 array (H, W, 3), a uint8 tensor (3, H, W) or (H, W, 3),
    or a Pillow image. A path is a slide or image that states its µm/px, and is read at the network's, as ``ntrm
    segment`` does; one that states none is refused. An image that fits into ``config.window``, the size the network was
    trained with, goes through it as it is, padded on the right and at the bottom with white glass to the size the
    network needs. A larger one is predicted in overlapping windows of that size, which are blended.

    Args:
        network: from ``ntrm.load`` or ``ntrm.create``, or one of those compiled by torch; it is moved to the device.
            If it is trained on, it predicts in evaluation mode all the same, and stays in training mode.
        device: ``auto`` takes cuda, then mps, then cpu.
        precision: ``auto`` is bfloat16 (float16 on older cards) on cuda and float32 elsewhere. A network that is not in
            float32 itself (``network.half()``) runs as it is.
        batch: most images at a time. It is halved when memory runs out, and stays so.
    """

    def __init__(
        self,
        network: SegmentationModel,
        device: str | torch.device = "auto",
        *,
        precision: str = "auto",
        batch: int = 16,
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
        self._network = network.eval().to(self.device, memory_format=self._layout)  # type: ignore[call-overload]
        self._uncompiled: SegmentationModel = getattr(network, "_orig_mod", network)
        self.mixing: Tensor | None = None
        """Of the optical densities of an image before the network sees it, see ``recolouring``."""

    def recolouring(self, mixing: Sequence[Sequence[float]]) -> Self:
        """The same network, which alone sees every image with its optical densities mixed by a (3, 3) matrix."""
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
    def trains_edge_weights(self) -> bool:
        """Whether the network has a relation module whose edge weights are trained."""
        return trains_edge_weights(self._uncompiled)

    @cached_property
    def has_coarse(self) -> bool:
        """Whether the network has a coarse head."""
        return self._of_glass().coarse is not None

    @cached_property
    def has_graph(self) -> bool:
        """Whether the network has a relation module, and so a tissue graph."""
        return self._of_glass().graph is not None

    def _of_glass(self) -> Segmentation:
        glass = np.full((1, self._multiple, self._multiple, 3), GLASS, dtype=np.uint8)
        return self.probabilities(glass, coarse=True, graph=True)

    @torch.inference_mode()
    def probabilities(self, pixels: Tensor | Image, *, coarse: bool = False, graph: bool = False) -> Segmentation:
        """(B, H, W, 3) uint8 of one size → probabilities in place of logits, float32 (B, K, H, W), on the device.

        Nothing has been copied from there, so nothing waits for it; the caller has to refuse values that are not finite
        (``broken_network``).
        """
        batch = _as_tensor(pixels) if isinstance(pixels, np.ndarray) else pixels
        height, width = batch.shape[1:3]
        below, beside = -height % self._multiple, -width % self._multiple
        batch = functional.pad(batch, (0, 0, 0, beside, 0, below), value=GLASS[0]) if below or beside else batch
        out = _joined(self._in_batches(batch, coarse=coarse, graph=graph))
        first = None if out.coarse is None else out.coarse[..., :height, :width]
        return Segmentation(out.final[..., :height, :width], first, out.graph)

    def on_device(self, pixels: Image) -> Tensor:
        """(B, H, W, 3) uint8 where the network is, for callers that need them there, too."""
        return send(_as_tensor(pixels), self._mean_and_std()[0])

    @overload
    def predict(  # type: ignore[overload-overlap]  # a path is a sequence of letters, too
        self, images: ImageLike, *, coarse: bool = ..., graph: bool = ...
    ) -> Prediction: ...
    @overload
    def predict(self, images: Sequence[ImageLike], *, coarse: bool = ..., graph: bool = ...) -> list[Prediction]: ...

    def predict(
        self, images: ImageLike | Sequence[ImageLike], *, coarse: bool = False, graph: bool = False
    ) -> Prediction | list[Prediction]:
        """Predict one image, or several in their order: a list, a stack (N, H, W, 3), or a batch (N, 3, H, W).

        ``coarse`` adds what the coarse head says; ``graph`` adds the relations that the network used, which exist for
        images no larger than its window and for networks with a relation module. ``ntrm.tissue_graph`` gives the graph
        of any mask. Images of one size that follow each other go through the network together.
        """
        stack = isinstance(images, np.ndarray | Tensor) and images.ndim == 4
        single = not (stack or (isinstance(images, Sequence) and not isinstance(images, str)))
        given: Any = [images] if single else images
        several, done = [self._pixels(image) for image in given], list[Prediction]()
        for image in several:
            check_image(image)
            if graph:
                self._check_graph(image)
        for size, equal in groupby(several, key=np.shape):
            if max(size) <= self.config.window:
                done += self._predict_equal([*equal], coarse=coarse, graph=graph)
                continue
            for image in equal:
                found: Any = stitch(self, image, coarse=coarse, probabilities=True)
                done.append(Prediction(found.probabilities, found.mask, self.config.schema, coarse=found.coarse))
        return done[0] if single else done

    __call__ = predict

    def _pixels(self, image: ImageLike) -> Image:
        """What a user gave as an image, as an array where it is one at all; what is transparent is white."""
        if isinstance(image, str | Path):
            return self._read(Path(image))
        pixels: Any = image
        if isinstance(image, Picture):  # channels of I and F have more than 8 bits
            pixels = np.asarray(image if image.mode == "RGB" or image.mode[0] in "IF" else image.convert("RGBA"))
        elif isinstance(image, Tensor) and image.dtype == torch.uint8:
            pixels = (image.permute(1, 2, 0) if image.ndim == 3 and len(image) == 3 else image).cpu().numpy()
        has_alpha = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape[2:] == (4,)
        return over_white(pixels) if has_alpha else pixels

    def _read(self, path: Path) -> Image:
        """A slide or image at the network's µm/px."""
        self.config.check_mpp()
        with open_slide(path) as slide:
            if slide.mpp is None:
                raise RefusedError(
                    f"{path.name} does not state its µm/px",
                    expected=f"a file that does: the network wants {self.config.mpp:g} µm/px",
                    hint="give ntrm.segment_slides(path, mpp=…) its µm/px; or pixels at the network's, as an array",
                )
            grid = SlideGrid(slide, self.config.mpp or 0.0)
            if grid.height * grid.width > MAX_READ_PIXELS:
                raise RefusedError(
                    f"{path.name} is too large to be predicted in memory",
                    got=f"{grid.height:,} × {grid.width:,} pixels at {self.config.mpp:g} µm/px",
                    expected=f"at most {MAX_READ_PIXELS:,} pixels",
                    hint="ntrm.segment_slides streams it to disk",
                )
            return grid.read(0, 0, grid.height, grid.width)

    def _check_graph(self, image: Image) -> None:
        """Refuse to give None, or the graph of a field larger than any the network was trained with."""
        hint = "predict without graph=True; ntrm.tissue_graph(prediction.mask, mpp=…) gives the graph of the mask"
        if not self.has_graph:
            raise UsageError(f"{self.config.arch} has no relation module, so it uses no graph", hint=hint)
        if max(image.shape[:2]) > self.config.window:
            raise UsageError(
                "the network relates tissues window by window",
                got=f"an image of {image.shape[0]} × {image.shape[1]} pixels",
                expected=f"at most {self.config.window} × {self.config.window} for graph=True",
                hint=hint,
            )

    def _predict_equal(self, images: Sequence[Image], *, coarse: bool, graph: bool) -> Iterator[Prediction]:
        """Images of one size, batch by batch."""
        batch = self.batch
        for start in range(0, len(images), batch):
            out = self.probabilities(np.stack(images[start : start + batch]), coarse=coarse, graph=graph)
            final, first = out.final.cpu().numpy(), None if out.coarse is None else out.coarse.cpu().numpy()
            if not np.isfinite(final.sum()):
                raise self.broken_network()
            for index, values in enumerate(final):
                probabilities = values.copy()  # keeps no larger array alive
                yield Prediction(
                    probabilities,
                    probabilities.argmax(axis=0).astype(np.uint8),
                    self.config.schema,
                    coarse=None if first is None else first[index].copy(),
                    graph=None if out.graph is None else self._relations(out.graph, index),
                )

    def _relations(self, graph: NetworkGraph, index: int) -> TissueRelations:
        arrays: dict[str, Any] = {}
        for name, tensor in graph._asdict().items():
            values = tensor[index]
            # numpy does not know bfloat16.
            arrays[name] = (values.float() if values.dtype == torch.bfloat16 else values).contiguous().cpu().numpy()
        if not self.trains_edge_weights:
            arrays["edge_weights"] = None
        return TissueRelations(self.config.schema.names, **arrays)

    def _in_batches(self, images: Tensor, **asked: bool) -> list[Segmentation]:
        """The network on batch after batch; one that does not fit is tried again by halves."""
        if len(images) > self.batch:
            return [part for chunk in torch.split(images, self.batch) for part in self._in_batches(chunk, **asked)]
        try:
            return [self._run(images, **asked)]
        except (RuntimeError, MemoryError) as error:
            if not ran_out_of_memory(error):
                raise
            if len(images) == 1:
                height, width = images.shape[1:3]
                raise NtrmError(
                    f"memory of {self.device} ran out with a single image",
                    got=f"{height} × {width} pixels",
                    hint=f"cut it into windows of {self.config.window} pixels, or use a device with more memory",
                ) from error
        # Only here, outside the handler, is nothing left that holds the failed batch's tensors.
        self.batch = len(images) // 2
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return self._in_batches(images, **asked)

    def _run(self, pixels: Tensor, **asked: bool) -> Segmentation:
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
            out: Segmentation = self._network(x, **asked)
        first = None if out.coarse is None else out.coarse.float().softmax(dim=1)
        return Segmentation((out.final.float() / self.config.temperature).softmax(dim=1), first, out.graph)

    def _mean_and_std(self) -> Tensor:
        """Colours that the network expects, (2, 1, 3, 1, 1), on the device."""
        return torch.tensor([self.config.mean, self.config.std], device=self.device).view(2, 1, 3, 1, 1)

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


def _joined(batches: Sequence[Segmentation]) -> Segmentation:
    """Batches one after the other; a single one is not copied."""
    if len(batches) == 1:
        return batches[0]
    coarse = [batch.coarse for batch in batches if batch.coarse is not None]
    graphs = [batch.graph for batch in batches if batch.graph is not None]
    return Segmentation(
        torch.cat([batch.final for batch in batches]),
        torch.cat(coarse) if coarse else None,
        NetworkGraph(*(torch.cat(values) for values in zip(*graphs, strict=True))) if graphs else None,
    )
