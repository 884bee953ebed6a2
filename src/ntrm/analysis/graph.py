"""The tissue graph of a piece: tissues and, one level down, their connected regions; who borders on whom, how long.

What is background or nothing is *outside*: a node without an area, since where tissue meets it lies the surface or a
margin. Boundary lengths are sums of pixel sides between 4-neighbours, as in ``ntrm.metrics.graph_agreement``. A
*contact* of two tissues is a pair of their regions that share at least one pixel side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.measured import PURPOSE
from ntrm.analysis.outline import check_mask
from ntrm.analysis.regions import RegionTable, scan_mask
from ntrm.analysis.runs import CONNECTIVITY, Floats, Ints
from ntrm.core.errors import DataError
from ntrm.core.labels import CANCERS, SKIN, LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.report.html import area_text

OUTSIDE = "outside"
DIGITS = 6
"""Decimals of mm and mm²: a pixel at 1x is 0.0000004 mm², but no mask is that true."""

NOTE = "what the network used, not biology"
NO_TISSUE = "No tissue was found."


@dataclass(frozen=True, eq=False)
class NetworkRelations:
    """Means over windows; the first index sends, the second receives."""

    names: tuple[str, ...]
    attention: Floats
    """(K, K) mean over layers; over the windows each weighs by the receiver's area, 0 where there was no edge."""
    edge_weight: Floats
    """(K, K) mean over the windows that have the edge, weighted by the receiver's area; 0 where none has."""
    windows: int

    def as_dict(self) -> dict[str, Any]:
        """For ``graph.json``."""
        return {
            "names": list(self.names),
            "attention": self.attention.round(DIGITS).tolist(),
            "edge_weight": self.edge_weight.round(DIGITS).tolist(),
            "windows": self.windows,
            "note": NOTE,
        }


@dataclass(frozen=True, eq=False)
class TissueGraph:
    """Areas and boundaries. Rows and columns are the classes of the schema, then outside."""

    schema: LabelSchema
    resolution: Resolution
    areas_mm2: Floats
    """(K,) 0 for the background."""
    boundary_mm: Floats
    """(K + 1, K + 1) symmetric, empty diagonal; the background's row is empty, as it is outside."""
    contact_counts: Ints
    """(K + 1, K + 1) pairs of regions; with outside, the regions that border on it."""
    regions: RegionTable
    network: NetworkRelations | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of rows and columns."""
        return (*self.schema.names, OUTSIDE)

    @property
    def present(self) -> list[int]:
        """Classes with an area."""
        return [int(tissue) for tissue in np.flatnonzero(self.areas_mm2 > 0)]

    @property
    def fractions(self) -> Floats:
        """(K,) share of the tissue's area; all 0 where there is none."""
        total = float(self.areas_mm2.sum())
        return np.asarray(self.areas_mm2 / total if total else np.zeros_like(self.areas_mm2))

    @cached_property
    def boundary_share(self) -> Floats:
        """(K + 1, K + 1) share of the row's boundary that is with the column."""
        total = self.boundary_mm.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(self.boundary_mm, total, out=np.zeros_like(self.boundary_mm), where=total > 0))

    @property
    def interfaces(self) -> list[tuple[int, int]]:
        """Pairs that share a boundary, the smaller index first."""
        return [(int(i), int(j)) for i, j in np.argwhere(np.triu(self.boundary_mm) > 0)]

    def as_node_link(self) -> dict[str, Any]:
        """NetworkX node-link document: tissues and regions as nodes, shared boundaries as edges."""
        about = {
            "units": {"area": "mm²", "length": "mm", "share": "1", "position": "px"},
            "mpp": {"x": self.resolution.x, "y": self.resolution.y},
            "windows": None if self.network is None else self.network.windows,
            "connectivity": CONNECTIVITY,
            "purpose": PURPOSE,
        }
        nodes = [self._tissue_node(tissue) for tissue in self.present]
        if self.boundary_mm[-1].any():
            nodes.append({"id": OUTSIDE, "kind": OUTSIDE})
        nodes += [self._region_node(region) for region in range(len(self.regions))]
        edges = [self._tissue_edge(i, j) for i, j in self.interfaces]
        edges += [self._region_edge(contact) for contact in range(len(self.regions.contacts))]
        return {"directed": False, "multigraph": False, "graph": about, "nodes": nodes, "edges": edges}

    def _tissue_node(self, tissue: int) -> dict[str, Any]:
        return {
            "id": self.schema.names[tissue],
            "kind": "tissue",
            "title": self.schema.tissues[tissue].title,
            "area_mm2": _round(self.areas_mm2[tissue]),
            "area_share": _round(self.fractions[tissue]),
            "boundary_mm": _round(self.boundary_mm[tissue].sum()),
            "regions": int(self.regions.counts(len(self.schema))[tissue]),
        }

    def _region_node(self, region: int) -> dict[str, Any]:
        table = self.regions
        node = {
            "id": region_name(int(table.number[region])),
            "kind": "region",
            "number": int(table.number[region]),
            "tissue": self.schema.names[table.tissue[region]],
            "area_mm2": _round(table.area_mm2[region]),
            "perimeter_mm": _round(table.perimeter_mm[region]),
            "row_px": round(float(table.centroid[region, 0]), 1),
            "column_px": round(float(table.centroid[region, 1]), 1),
        }
        return node if table.confidence is None else node | {"confidence": _round(table.confidence[region])}

    def _tissue_edge(self, i: int, j: int) -> dict[str, Any]:
        edge: dict[str, Any] = {
            "source": self.names[i],
            "target": self.names[j],
            "kind": "boundary",
            "boundary_mm": _round(self.boundary_mm[i, j]),
            "share_of_source": _round(self.boundary_share[i, j]),
            "share_of_target": _round(self.boundary_share[j, i]),
            "contacts": int(self.contact_counts[i, j]),
        }
        if self.network is None or j >= len(self.schema):
            return edge
        for key, values in (("attention", self.network.attention), ("edge_weight", self.network.edge_weight)):
            edge[f"{key}_source_to_target"] = _round(values[i, j])
            edge[f"{key}_target_to_source"] = _round(values[j, i])
        return edge

    def _region_edge(self, contact: int) -> dict[str, Any]:
        one, other = self.regions.number[self.regions.contacts[contact]].tolist()
        length = _round(self.regions.contact_mm[contact])
        return {"source": region_name(one), "target": region_name(other), "kind": "contact", "boundary_mm": length}

    def sentences(self) -> tuple[str, ...]:
        """A sentence or two in plain words."""
        return graph_sentences(self)


def region_name(number: int) -> str:
    """Id of a region among the nodes.

    >>> region_name(1)
    'region 1'
    """
    return f"region {number}"


def tissue_graph(
    mask: Mask,
    mpp: float | Resolution,
    schema: LabelSchema = SKIN,
    *,
    confidence: NDArray[np.number[Any]] | None = None,
    full: float = 1.0,
    network: NetworkRelations | None = None,
) -> TissueGraph:
    """The graph of a mask: its tissues and regions, with areas, and the borders between them, with lengths.

    Args:
        mask: (H, W) class indices, 255 meaning outside.
        mpp: µm per pixel, or one for each axis.
        schema: what the indices mean.
        confidence: (H, W) how sure the mask is; ``full`` is certainty.
        full: see there.
        network: the relations that a network used, to be carried along.

    >>> graph = tissue_graph(np.array([[7, 0, 5, 255]], dtype=np.uint8), mpp=10)
    >>> [(graph.names[i], graph.names[j]) for i, j in graph.interfaces]
    [('EPI', 'PAP'), ('EPI', 'KER'), ('PAP', 'outside')]
    """
    resolution = mpp if isinstance(mpp, Resolution) else Resolution.square(mpp)
    check_mask(mask, schema)
    if confidence is not None and confidence.shape != mask.shape:
        raise DataError("confidence of another piece", got=confidence.shape, expected=mask.shape)
    return graph_of(scan_mask(mask, schema, resolution, confidence=confidence, full=full).table, schema, network)


def graph_of(regions: RegionTable, schema: LabelSchema, network: NetworkRelations | None = None) -> TissueGraph:
    """The graph of one piece whose regions were found."""
    if network is not None and network.names != schema.names:
        raise DataError("relations of other classes", got=network.names, expected=schema.names)
    pixels = np.bincount(regions.tissue, regions.pixels, len(schema)).astype(np.float64)
    return TissueGraph(
        schema,
        regions.resolution,
        pixels * (regions.resolution.pixel_area_um2 / 1e6),
        _boundaries(regions, len(schema)),
        _contact_counts(regions, len(schema)),
        regions,
        network,
    )


def _boundaries(regions: RegionTable, outside: int) -> Floats:
    """(K + 1, K + 1) length in mm of the boundary between each two tissues, and with outside."""
    lengths = _by_tissue(regions, outside, regions.contact_mm)
    lengths[outside] = lengths[:, outside] = np.bincount(regions.tissue, regions.outside_mm, outside + 1)
    return lengths


def _contact_counts(regions: RegionTable, outside: int) -> Ints:
    counts = _by_tissue(regions, outside, np.ones(len(regions.contacts))).astype(np.int64)
    bordering = regions.tissue[regions.outside_mm > 0]
    counts[:, outside] = counts[outside] = np.bincount(bordering, minlength=outside + 1)
    return counts


def _by_tissue(regions: RegionTable, outside: int, values: Floats) -> Floats:
    """(K + 1, K + 1) sums of what the contacts have, both ways."""
    size = outside + 1
    tissues = regions.tissue[regions.contacts]  # (C, 2)
    one_way = np.bincount(tissues[:, 0] * size + tissues[:, 1], values, size * size).reshape(size, size)
    return np.asarray(one_way + one_way.T, dtype=np.float64)


def _round(value: float) -> float:
    return round(float(value), DIGITS)


def graph_sentences(graph: TissueGraph) -> tuple[str, ...]:
    """What there is most of, and where the tumours lie."""
    if not graph.present:
        return (NO_TISSUE,)
    order = sorted(graph.present, key=lambda tissue: -graph.areas_mm2[tissue])
    most = [f"{_title(graph, tissue)} ({graph.fractions[tissue]:.0%})" for tissue in order[:3]]
    counts = graph.regions.counts(len(graph.schema))
    first = f"{area_text(graph.areas_mm2.sum())} mm² of tissue, most of it {_list(most)}."
    tumours = [tissue for tissue in graph.present if graph.schema.names[tissue] in CANCERS]
    return (first, *(_tumour(graph, tissue, int(counts[tissue])) for tissue in tumours))


def _tumour(graph: TissueGraph, tissue: int, count: int) -> str:
    text = f"{_title(graph, tissue).capitalize()}: {area_text(graph.areas_mm2[tissue])} mm² in {count} region"
    text += "" if count == 1 else "s"
    share = graph.boundary_share[tissue]
    beside = [at for at in np.argsort(-share, kind="stable")[:2] if share[at] > 0]
    if not beside:
        return f"{text}."
    return f"{text}, bordering mostly on {_list([f'{_title(graph, int(at))} ({share[at]:.0%})' for at in beside])}."


def _title(graph: TissueGraph, at: int) -> str:
    if at >= len(graph.schema):
        return "the outside"
    tissue = graph.schema.tissues[at]
    return tissue.title or tissue.name


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
