"""Does the graph's attention mean anything? Edges of a trained network are cut one by one, to see what moves.

Nothing is trained anew: in some sections the network predicts with all edges, without one of them, and without any. If
attention told what matters, pixels would move most where attention was highest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from research.relation_scores import Mask, predicted
from research.section_networks.inference import in_section, load
from research.section_networks.networks import SectionModel
from scipy import stats

from ntrm.core.devices import choose_device
from ntrm.core.io import write_json
from ntrm.core.labels import IGNORE
from ntrm.data.cache import SectionCache
from ntrm.data.split import few_sections, open_splits
from ntrm.data.tiles import GLASS, Window, cut
from ntrm.evaluation.loaded_model import class_table
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import A_QUARTER, Stitching
from ntrm.metrics.confusion import confusion_tensor
from ntrm.metrics.significance import macro_iou

EDGES = "edges.json"
SECTIONS, CUTS = 8, 12


class Study:
    """Some sections of a part, predicted again and again."""

    def __init__(
        self, network: SectionModel, images: list[Mask], truths: list[Mask], stitching: Stitching, device: str
    ) -> None:
        self.network, self.images, self.truths, self.stitching, self.device = network, images, truths, stitching, device

    def masks(self) -> list[Mask]:
        pairs = zip(self.images, self.truths, strict=True)
        return [predicted(self.network, image, truth, self.stitching, self.device)[0] for image, truth in pairs]

    def attention(self) -> NDArray[np.float64]:
        """(K, K) [sender, receiver], the mean over sections and layers; NaN where a tissue is nowhere."""
        found = []
        for image, truth in zip(self.images, self.truths, strict=True):
            inside, window = in_section(self.network, image, self.stitching, truth, self.device), self._first(truth)
            inside.upcoming.append(window)
            # The graph is the section's, whichever window asks.
            pixels = cut(image, window, GLASS)[None]
            last = Predictor(inside, self.device).probabilities(pixels, graph=True).graph
            if last is None:
                raise ValueError("a network without a graph")
            there = (last.presence[0].unsqueeze(0) & last.presence[0].unsqueeze(1)).cpu().numpy()
            mean = last.attention[0].mean(dim=0).double().cpu().numpy()
            found.append(np.where(there, mean, np.nan))
        stack = np.stack(found)
        counted = (~np.isnan(stack)).sum(axis=0)
        means: NDArray[np.float64] = np.divide(
            np.nansum(stack, axis=0), counted, out=np.full(counted.shape, np.nan), where=counted > 0
        )
        return means

    def _first(self, truth: Mask) -> Window:
        return self.stitching.windows(*truth.shape)[0]

    @contextmanager
    def without(self, edges: NDArray[np.bool_]) -> Iterator[None]:
        """Nothing is heard along ``edges`` (K, K) [sender, receiver]."""
        self.network.relation.cut = torch.from_numpy(np.ascontiguousarray(edges.T)).to(choose_device(self.device))
        try:
            yield
        finally:
            self.network.relation.cut = None


def cut_edges(
    model: Path, data: Path, out: Path, *, split: str, split_file: Path | None, device: str, aligned: bool = False
) -> dict[str, Any] | None:
    """Write ``edges.json`` to ``out``; None for a network that has no edges between tissues."""
    network, parts = load(model), open_splits(data, splits=split_file)
    if not isinstance(network, SectionModel) or not network.sees_section or network.relation.config.maps == 0:
        return None
    config = network.config
    table, part = class_table(config, parts), parts[split]
    opened = [SectionCache().open(case, parts.schema) for case in few_sections(part, min(SECTIONS, len(part)))]
    truths = [table[each.mask] for each in opened]
    stitching = Stitching(config.window, 0 if aligned else A_QUARTER)
    study = Study(network, [np.asarray(each.image) for each in opened], truths, stitching, device)
    whole, attention = study.masks(), study.attention()
    count = config.classes
    cuts = []
    for sender, receiver in chosen_edges(attention):
        edge = np.zeros((count, count), dtype=bool)
        edge[sender, receiver] = True
        names = {"sender": config.schema.names[sender], "receiver": config.schema.names[receiver]}
        with study.without(edge):
            cuts.append(
                {
                    **names,
                    "attention": attention[sender, receiver],
                    **_moved(whole, study.masks(), truths, count, receiver),
                }
            )
    with study.without(~np.eye(count, dtype=bool)):
        none = _moved(whole, study.masks(), truths, count, None)
    found = {
        "sections": len(truths),
        "cuts": cuts,
        "all": none,
        "rank_correlation": rank_correlation([(each["attention"], each["moved"]) for each in cuts]),
    }
    write_json(out / EDGES, found)
    return found


def chosen_edges(attention: NDArray[np.float64], most: int = CUTS) -> list[tuple[int, int]]:
    """(sender, receiver) of different tissues, spread evenly over the ranking by attention, the strongest first."""
    known = [(i, j) for i, j in np.argwhere(~np.isnan(attention)).tolist() if i != j]
    ranked = sorted(known, key=lambda edge: -attention[edge])
    places = np.unique(np.linspace(0, len(ranked) - 1, min(most, len(ranked))).round().astype(int)) if ranked else []
    return [ranked[place] for place in places]


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's; None of fewer than three pairs, or where all are alike."""
    if len(pairs) < 3 or any(len(set(values)) < 2 for values in zip(*pairs, strict=True)):
        return None
    return float(stats.spearmanr(*zip(*pairs, strict=True)).statistic)


def _moved(
    before: list[Mask], after: list[Mask], truths: list[Mask], classes: int, receiver: int | None
) -> dict[str, float | None]:
    """Share of known pixels whose class changed, the receiver's part in it, and what it did to the mean IoU."""
    pixels = changed = own = 0
    tables = [np.zeros((classes, classes)) for _ in range(2)]
    for old, new, truth in zip(before, after, truths, strict=True):
        known = truth != IGNORE
        other = (old != new) & known
        pixels, changed = pixels + int(known.sum()), changed + int(other.sum())
        own += int((other & ((old == receiver) | (new == receiver))).sum()) if receiver is not None else 0
        for number, mask in enumerate((old, new)):
            tables[number] += confusion_tensor(torch.from_numpy(truth), torch.from_numpy(mask), classes).numpy()
    return {
        "moved": changed / max(pixels, 1),
        "receivers_part": own / changed if changed and receiver is not None else None,
        "iou_change": float(macro_iou(tables[1]) - macro_iou(tables[0])),
    }
