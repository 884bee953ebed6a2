"""Scores of a trained network on a part of a dataset, section by section, with as many passes as the network wants."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.data.cache import TileCache
from ntrm.data.parts import open_parts
from ntrm.data.tiles import GLASS, cut, tile_windows
from ntrm.evaluation.sections import predict_section
from ntrm.evaluation.subject import class_table, open_subject
from ntrm.files import whole_file
from ntrm.metrics.overlap import pooled
from ntrm.models.base import SegmentationModel
from ntrm.models.section.context import InContext, gather_section
from ntrm.models.section.sums import SectionSums
from ntrm.predictor import Predictor
from ntrm.stitching import A_QUARTER, Stitching

CONFUSIONS = "confusions.npz"


class SectionPredictor:
    """A predictor that goes over a section before it predicts it, if its network wants that."""

    def __init__(self, network: SegmentationModel, device: str, precision: str, batch: int = 16) -> None:
        self.network = network
        self.wrapped = InContext(network)
        self.predictor = Predictor(self.wrapped, device, precision=precision, batch=batch)
        config = network.config
        self._mean, self._std = (
            torch.tensor(values, device=self.predictor.device).view(1, 3, 1, 1) for values in (config.mean, config.std)
        )

    def prepare(self, image: NDArray[np.uint8]) -> None:
        """Gather from windows that cover the section once."""
        if self.network.passes:
            self.wrapped.context = self.gather(image)

    def gather(self, image: NDArray[np.uint8]) -> list[SectionSums]:
        windows = tile_windows(*image.shape[:2], size=self.network.config.window)

        def batches() -> Iterator[Tensor]:
            for start in range(0, len(windows), self.predictor.batch):
                some = windows[start : start + self.predictor.batch]
                yield self._normalised(np.stack([cut(image, window, fill=GLASS) for window in some]))

        predictor = self.predictor
        half = predictor.precision != torch.float32
        with torch.inference_mode(), torch.autocast(predictor.device.type, predictor.precision, enabled=half):
            return gather_section(self.network, batches)

    def _normalised(self, pixels: NDArray[np.uint8]) -> Tensor:
        x = torch.from_numpy(pixels).to(self.predictor.device).permute(0, 3, 1, 2).float() / 255
        return ((x - self._mean) / self._std).contiguous(memory_format=torch.channels_last)


def score(
    model: Path,
    data: Path,
    out: Path,
    *,
    split: str,
    split_file: Path | None,
    device: str,
    precision: str = "auto",
    aligned: bool = False,
) -> dict[str, Any]:
    """Write ``confusions.npz`` to ``out``; returns what a row of the study says."""
    begun = time.monotonic()
    subject, parts = open_subject(model), open_parts(data, split_file=split_file)
    config = subject.config
    working = SectionPredictor(subject.network, device, precision)
    stitching = Stitching(config.window, 0 if aligned else A_QUARTER)
    table, counted = class_table(config, parts), []
    for case in parts[split]:
        working.prepare(np.asarray(TileCache().open(case, parts.schema).image))
        counted.append(predict_section(working.predictor, case, parts.schema, table, stitching=stitching).counts())
    arrays = {
        "names": np.array([each.name for each in counted]),
        "patients": np.array([each.patient for each in counted]),
        "final": np.stack([each.confusion for each in counted]),
        "classes": np.array(config.schema.names),
    }
    if all(each.initial is not None for each in counted):
        arrays["initial"] = np.stack([each.initial for each in counted])
    out.mkdir(parents=True, exist_ok=True)
    with whole_file(out / CONFUSIONS) as partial, partial.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    found = pooled([each.confusion for each in counted], config.schema)
    first = pooled(list(arrays["initial"]), config.schema) if "initial" in arrays else None
    return {
        "iou": found.macro["iou"],
        "dice": found.macro["dice"],
        "accuracy": found.pixel_accuracy,
        "initial_iou": None if first is None else first.macro["iou"],
        "parameters": sum(each.numel() for each in subject.network.parameters()),
        "sections": len(counted),
        "patients": len(set(arrays["patients"].tolist())),
        "score_seconds": round(time.monotonic() - begun, 2),
    }
