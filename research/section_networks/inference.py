"""A whole section in two passes: sums over its windows, then its windows in the context of these sums.

The second pass is the package's own stitching: ``InSection`` is an ordinary network for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from research.section_networks.networks import NETWORKS, SectionModel
from research.section_networks.networks import load as load_section_network
from research.section_networks.sums import SectionSums
from research.section_networks.training import normalised
from torch import Tensor

from ntrm.core.labels import IGNORE
from ntrm.data.tiles import GLASS, Window, cut, tile_windows
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import Rows, Stitching, blended_rows
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.folders import read_model
from ntrm.models.hub import load as load_network

Pixels = NDArray[np.uint8]


class InSection(SegmentationModel):
    """A section network that knows its section, as a network of single windows.

    ``upcoming`` holds the windows that come next and ``truth`` the section's true mask, for networks that are given it.
    """

    def __init__(self, network: SectionModel, truth: Pixels | None = None) -> None:
        super().__init__()
        self.network, self.config = network, network.config
        self.context: SectionSums | None = None
        self.truth = truth
        self.upcoming: deque[Window] = deque()

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Windows in the context of their section."""
        return self.network(x, coarse=coarse, graph=graph, context=self.context, truth=self.true_masks(x))

    @torch.inference_mode()
    def gather(self, x: Tensor) -> None:
        """Add what windows of the section hold to its context, in double precision."""
        found = self.network.gather(x, self.true_masks(x)).total()
        self.context = found if self.context is None else self.context + found

    def true_masks(self, x: Tensor) -> Tensor | None:
        """(B, H, W) of the windows that were read last."""
        if self.truth is None:
            return None
        windows = [self.upcoming.popleft() for _ in range(len(x))]
        return torch.from_numpy(np.stack([cut(self.truth, window, fill=IGNORE) for window in windows])).to(x.device)


def blended_section(
    network: SegmentationModel,
    image: Pixels,
    *,
    stitching: Stitching | None = None,
    truth: Pixels | None = None,
    device: str = "auto",
    batch: int = 16,
    precision: str = "auto",
) -> Iterator[Rows]:
    """Probabilities of a section (H, W, 3), rows by rows; of any network, in two passes where it sees the section.

    ``truth`` (H, W) is needed for networks that are given the true masks, and used for nothing else.
    """
    if isinstance(network, SectionModel):
        network = in_section(network, image, stitching, truth, device, batch, precision)
    predictor = Predictor(network, device, batch=batch, precision=precision)

    def read(window: Window) -> Pixels:
        if isinstance(network, InSection) and network.truth is not None:
            network.upcoming.append(window)
        return cut(image, window, fill=GLASS)

    return blended_rows(predictor, *image.shape[:2], read, stitching=stitching, coarse=True)


def in_section(
    network: SectionModel,
    image: Pixels,
    stitching: Stitching | None = None,
    truth: Pixels | None = None,
    device: str = "auto",
    batch: int = 16,
    precision: str = "auto",
) -> InSection:
    """The first pass: the network with what the whole section adds up to."""
    inside = InSection(network, truth if network.relation.config.masks == "true" else None)
    predictor = Predictor(inside, device, batch=batch, precision=precision)  # moves the network
    if not network.sees_section:
        return inside
    side = network.config.window if stitching is None else stitching.window
    windows: Sequence[Window] = tile_windows(*image.shape[:2], side)
    half = torch.autocast(predictor.device.type, predictor.precision, enabled=predictor.precision != torch.float32)
    for first in range(0, len(windows), batch):
        some = windows[first : first + batch]
        if inside.truth is not None:
            inside.upcoming.extend(some)
        pixels = torch.from_numpy(np.stack([cut(image, window, fill=GLASS) for window in some])).to(predictor.device)
        with half:
            inside.gather(normalised(pixels.permute(0, 3, 1, 2), network.config))
    if inside.context is not None:
        inside.context = inside.context.cast(torch.float32)
    return inside


def load(folder: Path) -> SegmentationModel:
    """A network of the package or of this study from its folder."""
    arch = read_model(folder)[0].arch
    return load_section_network(folder) if arch in NETWORKS else load_network(folder)
