"""Scores of a trained network on a part of a dataset, section by section: overall, at borders and inside, of the graph.

A network that is given the true masks (``masks="true"``, an upper bound) is told those of every window here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage
from skimage.measure import label
from torch import Tensor
from torch.nn import functional

from ntrm.core.io import whole_file
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.data.cache import TileCache
from ntrm.data.split import open_parts
from ntrm.data.tiles import GLASS, Window, cut, tile_windows
from ntrm.evaluation.loaded_model import class_table, open_subject
from ntrm.evaluation.sections import Tally
from ntrm.gathering import Context, gather
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import A_QUARTER, Stitching, blended_rows, most_probable
from ntrm.metrics.confusion import confusion_tensor
from ntrm.metrics.graph_agreement import GraphAgreement, graph_agreement
from ntrm.metrics.overlap import pooled
from ntrm.models.base import Segmentation
from ntrm.models.section.sums import SectionSums

CONFUSIONS = "confusions.npz"
NEAR = 8
"""Pixels from a border between two tissues within which a pixel lies at the border."""
SPECKS = (16, 64, 256)
"""Pixels below which a connected piece of the prediction is taken away: how much of a graph's errors are these?"""
GRAPH = ("found", "missed", "invented", "true_um", "error_um")
"""What is kept of a section's graph."""

Mask = NDArray[np.uint8]


class ToldPredictor(Predictor):
    """A predictor that lets its network know the true mask of every window, where it wants to be told."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._truth: Mask = np.zeros((0, 0), dtype=np.uint8)
        self._windows: list[Window] = []

    def reader(self, image: Mask, truth: Mask) -> Any:
        """Reads tiles of a section, and remembers which."""
        self._truth, self._windows = truth, []

        def read(window: Window) -> Mask:
            self._windows.append(window)
            return cut(image, window, fill=GLASS)

        return read

    def probabilities(self, pixels: Tensor | Mask, **more: Any) -> Segmentation:
        self._tell(len(pixels))
        return super().probabilities(pixels, **more)

    def gather(self, pixels: Tensor | Mask, context: Sequence[SectionSums] = ()) -> SectionSums:
        self._tell(len(pixels))
        return super().gather(pixels, context)

    def _tell(self, count: int) -> None:
        masks = np.stack([cut(self._truth, window, fill=IGNORE) for window in self._windows[-count:]])
        self._plain.tell(torch.from_numpy(masks).to(self.device))


def predicted(predictor: ToldPredictor, image: Mask, truth: Mask, stitching: Stitching) -> tuple[Mask, Tally]:
    """Mask and counts of one section, after as many passes as the network wants."""
    read, tally = predictor.reader(image, truth), Tally(truth, predictor.config.classes, calibration=False)
    windows = tile_windows(*truth.shape, stitching.window) if predictor.passes else ()
    context: Context | None = gather(predictor, windows, read)
    mask = np.empty(truth.shape, dtype=np.uint8)
    for rows in blended_rows(predictor, *truth.shape, read, stitching=stitching, initial=True, context=context):
        mask[rows.slice] = most_probable(rows.final).cpu().numpy()
        tally(rows)
    return mask, tally


def near_borders(truth: Mask, device: torch.device, near: int = NEAR) -> NDArray[np.bool_]:
    """Pixels with two tissues within ``near`` pixels in either direction; what is ignored is no tissue."""
    plane = torch.from_numpy(truth).to(device).float()[None, None]
    known = plane != IGNORE
    side = {"kernel_size": 2 * near + 1, "stride": 1, "padding": near}
    highest = functional.max_pool2d(torch.where(known, plane, -1.0), **side)
    lowest = -functional.max_pool2d(torch.where(known, -plane, -float(IGNORE)), **side)
    found: NDArray[np.bool_] = (highest > lowest)[0, 0].cpu().numpy() & (truth != IGNORE)
    return found


def without_specks(mask: Mask, smallest: int) -> Mask:
    """Connected pieces (4 neighbours) of fewer pixels than ``smallest`` go to the nearest pixel that is in none."""
    pieces = label(mask, background=-1, connectivity=1)
    small = (np.bincount(pieces.ravel()) < smallest)[pieces]
    if not small.any() or small.all():
        return mask
    rows, columns = ndimage.distance_transform_edt(small, return_distances=False, return_indices=True)
    cleaned: Mask = mask[rows, columns]
    return cleaned


def graph_counts(found: GraphAgreement) -> list[float]:
    """As ``GRAPH`` names them, over all pairs of tissues."""
    return [float(sum(getattr(each, name) for each in found.interfaces)) for name in GRAPH]


def graph_scores(counts: NDArray[np.float64]) -> tuple[float | None, float | None]:
    """F1 of the edges and relative error of the lengths, of (…, 5) added up over sections."""
    hits, missed, invented, true_um, error_um = counts.reshape(-1, len(GRAPH)).sum(axis=0).tolist()
    edges = 2 * hits + missed + invented
    return (2 * hits / edges if edges else None), (error_um / true_um if true_um else None)


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
    torch.manual_seed(0)  # masks that know nothing are drawn
    subject, parts = open_subject(model), open_parts(data, split_file=split_file)
    config = subject.config
    predictor = ToldPredictor(subject.network, device, precision=precision)
    stitching = Stitching(config.window, 0 if aligned else A_QUARTER)
    table, found, spent = class_table(config, parts), [], 0.0
    for case in parts[split]:
        section = TileCache().open(case, parts.schema)
        truth = table[section.mask]
        start = time.monotonic()
        mask, tally = predicted(predictor, section.image, truth, stitching)
        final = tally.final  # waits for the device
        spent += time.monotonic() - start
        found.append({"names": case.name, "patients": case.group, "final": final, "initial": tally.initial})
        found[-1] |= _more(truth, mask, config.schema, parts.resolution, predictor.device)
    arrays = {name: np.array([each[name] for each in found]) for name in found[0] if found[0][name] is not None}
    arrays["classes"] = np.array(config.schema.names)
    out.mkdir(parents=True, exist_ok=True)
    with whole_file(out / CONFUSIONS) as partial, partial.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    overall = pooled(list(arrays["final"]), config.schema)
    f1, length_error = graph_scores(arrays["graph"])
    return {
        "iou": overall.macro["iou"],
        "dice": overall.macro["dice"],
        "accuracy": overall.pixel_accuracy,
        "initial_iou": pooled(list(arrays["initial"]), config.schema).macro["iou"] if "initial" in arrays else None,
        "boundary_iou": pooled(list(arrays["boundary"]), config.schema).macro["iou"],
        "inside_iou": pooled(list(arrays["final"] - arrays["boundary"]), config.schema).macro["iou"],
        "graph_f1": f1,
        "length_error": length_error,
        "parameters": sum(each.numel() for each in subject.network.parameters()),
        "sections": len(found),
        "patients": len(set(arrays["patients"].tolist())),
        "predict_seconds": round(spent, 2),
        "score_seconds": round(time.monotonic() - begun, 2),
    }


def _more(truth: Mask, mask: Mask, schema: LabelSchema, resolution: Resolution, device: torch.device) -> dict[str, Any]:
    near = np.where(near_borders(truth, device), truth, IGNORE).astype(np.uint8)

    def counts(of: Mask, found: Mask) -> NDArray[np.int64]:
        table: NDArray[np.int64] = confusion_tensor(torch.from_numpy(of), torch.from_numpy(found), len(schema)).numpy()
        return table

    def graph(found: Mask) -> list[float]:
        return graph_counts(graph_agreement(truth, found, schema, resolution))

    cleaned = [without_specks(mask, smallest) for smallest in SPECKS]
    return {
        "boundary": counts(near, mask),
        "graph": graph(mask),
        "cleaned": [counts(truth, each) for each in cleaned],
        "cleaned_graph": [graph(each) for each in cleaned],
    }
