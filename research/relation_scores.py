"""Scores of a trained network on a split, section by section: overall, at borders and inside, of the graph."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from research.section_networks.inference import blended_section, load
from scipy import ndimage
from skimage.measure import label
from torch.nn import functional

from ntrm.core.devices import choose_device
from ntrm.core.io import whole_file
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.data.cache import SectionCache
from ntrm.data.split import open_splits
from ntrm.evaluation.loaded_model import class_table
from ntrm.evaluation.sections import SectionAccumulator
from ntrm.inference.sliding_window import A_QUARTER, Stitching, most_probable
from ntrm.metrics.confusion import confusion_tensor
from ntrm.metrics.graph_agreement import GraphAgreement, graph_agreement
from ntrm.metrics.overlap import pooled
from ntrm.models.base import SegmentationModel

CONFUSIONS = "confusions.npz"
NEAR = 8
"""Pixels from a border between two tissues within which a pixel lies at the border."""
SPECKS = (16, 64, 256)
"""Pixels below which a connected piece of the prediction is taken away: how much of a graph's errors are these?"""
GRAPH = ("found", "missed", "invented", "true_um", "error_um")
"""What is kept of a section's graph."""

Mask = NDArray[np.uint8]


def predicted(
    network: SegmentationModel, image: Mask, truth: Mask, stitching: Stitching, device: str, precision: str = "auto"
) -> tuple[Mask, SectionAccumulator]:
    """Mask and counts of one section; a network that is given the true masks (an upper bound) gets ``truth``."""
    tally = SectionAccumulator(truth, network.config.classes, calibration=False)
    mask = np.empty(truth.shape, dtype=np.uint8)
    for rows in blended_section(network, image, stitching=stitching, truth=truth, device=device, precision=precision):
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
    network, parts = load(model), open_splits(data, splits=split_file)
    config = network.config
    stitching = Stitching(config.window, 0 if aligned else A_QUARTER)
    table, found, spent = class_table(config, parts), [], 0.0
    for case in parts[split]:
        section = SectionCache().open(case, parts.schema)
        truth = table[section.mask]
        start = time.monotonic()
        mask, tally = predicted(network, section.image, truth, stitching, device, precision)
        final = tally.final  # waits for the device
        spent += time.monotonic() - start
        found.append({"names": case.name, "patients": case.group, "final": final, "coarse": tally.coarse})
        found[-1] |= _more(truth, mask, config.schema, parts.resolution, choose_device(device))
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
        "coarse_iou": pooled(list(arrays["coarse"]), config.schema).macro["iou"] if "coarse" in arrays else None,
        "boundary_iou": pooled(list(arrays["boundary"]), config.schema).macro["iou"],
        "inside_iou": pooled(list(arrays["final"] - arrays["boundary"]), config.schema).macro["iou"],
        "graph_f1": f1,
        "length_error": length_error,
        "parameters": sum(each.numel() for each in network.parameters()),
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
