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

from ntrm.core.errors import DataError
from ntrm.core.labels import LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.relations.measured import PURPOSE
from ntrm.relations.network import NetworkRelations
from ntrm.relations.outline import check_mask
from ntrm.relations.regions import RegionTable
from ntrm.relations.survey import Survey, survey_mask

OUTSIDE = "outside"
DIGITS = 6
"""Decimals of mm and mm²: a pixel at 1x is 0.0000004 mm², but no mask is that true."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TissueGraph:
    """Areas and boundaries. Rows and columns are the classes of the schema, then outside."""

    schema: LabelSchema
    resolution: Resolution
    areas_mm2: Floats
    """(K,) 0 for the background."""
    boundary_mm: Floats
    """(K + 1, K + 1) symmetric, empty diagonal; the background's row is empty, as it is outside."""
    contact_counts: NDArray[np.int64]
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
            "id": region_name(region),
            "kind": "region",
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
        one, other = self.regions.contacts[contact].tolist()
        length = _round(self.regions.contact_mm[contact])
        return {"source": region_name(one), "target": region_name(other), "kind": "contact", "boundary_mm": length}

    def sentences(self) -> tuple[str, ...]:
        """A sentence or two in plain words."""
        from ntrm.relations.sentences import graph_sentences

        return graph_sentences(self)


def region_name(region: int) -> str:
    """Id of a region among the nodes: numbered from 1.

    >>> region_name(0)
    'region 1'
    """
    return f"region {region + 1}"


def tissue_graph(
    mask: Mask,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    confidence: NDArray[np.number[Any]] | None = None,
    full: float = 1.0,
    network: NetworkRelations | None = None,
) -> TissueGraph:
    """The graph of one piece, 255 meaning outside; a confidence of ``full`` is certainty.

    >>> from ntrm.core.labels import SKIN
    >>> graph = tissue_graph(np.array([[7, 0, 5, 255]], dtype=np.uint8), SKIN, Resolution.square(10))
    >>> [(graph.names[i], graph.names[j]) for i, j in graph.interfaces]
    [('EPI', 'PAP'), ('EPI', 'KER'), ('PAP', 'outside')]
    """
    check_mask(mask, schema)
    if confidence is not None and confidence.shape != mask.shape:
        raise DataError("confidence of another piece", got=confidence.shape, expected=mask.shape)
    return graph_of(survey_mask(mask, schema, resolution, confidence, full), network)


def graph_of(survey: Survey, network: NetworkRelations | None = None) -> TissueGraph:
    """The graph of one piece that was surveyed."""
    schema, resolution, regions = survey.schema, survey.resolution, survey.regions
    if network is not None and network.names != schema.names:
        raise DataError("relations of other classes", got=network.names, expected=schema.names)
    pixels = survey.pixels[: len(schema)].astype(np.float64)
    if schema.background_index is not None:
        pixels[schema.background_index] = 0
    return TissueGraph(
        schema,
        resolution,
        pixels * (resolution.pixel_area_um2 / 1e6),
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


def _contact_counts(regions: RegionTable, outside: int) -> NDArray[np.int64]:
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
