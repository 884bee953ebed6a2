"""The tissue graph of a piece: tissues and their connected regions as nodes, shared boundaries as edges.

Background and ignored pixels are *outside*: a node without an area, since tissue meets it at the surface or a margin.
Boundary lengths are sums of pixel sides between 4-neighbours, as in ``ntrm.metrics.graph_agreement``. A *contact* of
two tissues is a pair of their regions that share at least one pixel side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints
from ntrm.core.errors import RefusedError
from ntrm.core.labels import CANCERS, SKIN, LabelSchema, as_schema
from ntrm.core.mpp import Resolution, stated_resolution
from ntrm.core.wording import OUTSIDE, PURPOSE, area_text, counted, short_repr
from ntrm.regions.region_table import RegionTable
from ntrm.regions.regions import table_of_mask
from ntrm.regions.runs import CONNECTIVITY

if TYPE_CHECKING:
    import networkx

DIGITS = 6  # Decimals of mm and mm²: a pixel at 1x is 0.0000004 mm², but no mask is that exact

NO_TISSUE = "No tissue was found."


@dataclass(frozen=True, eq=False)
class TissueGraph:
    """Areas and boundaries. Rows and columns are the classes of the schema, then outside."""

    schema: LabelSchema
    resolution: Resolution
    areas_mm2: Floats  # (K,) 0 for the background
    boundary_mm: Floats  # (K + 1, K + 1) symmetric, empty diagonal; the background's row is empty, as it is outside
    contact_counts: Ints  # (K + 1, K + 1) pairs of regions; with outside, the regions that border on it
    regions: RegionTable

    __repr__ = short_repr

    @property
    def names(self) -> tuple[str, ...]:
        """Of rows and columns."""
        return (*self.schema.names, OUTSIDE)

    @property
    def present(self) -> list[int]:
        """Classes with an area."""
        return np.flatnonzero(self.areas_mm2 > 0).tolist()

    @property
    def fractions(self) -> Floats:
        """(K,) of the tissue's area; all 0 where there is none."""
        total = float(self.areas_mm2.sum())
        return np.asarray(self.areas_mm2 / total if total else np.zeros_like(self.areas_mm2))

    @cached_property
    def boundary_share(self) -> Floats:
        """(K + 1, K + 1) fraction of the row's boundary that is with the column."""
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
            "windows": None,
            "connectivity": CONNECTIVITY,
            "purpose": PURPOSE,
        }
        names, share, table = self.names, self.boundary_share, self.regions
        counts = np.bincount(table.tissue, minlength=len(self.schema))
        nodes: list[dict[str, Any]] = [
            {
                "id": names[tissue],
                "kind": "tissue",
                "title": self.schema.tissues[tissue].title,
                "area_mm2": _round(self.areas_mm2[tissue]),
                "area_share": _round(self.fractions[tissue]),
                "boundary_mm": _round(self.boundary_mm[tissue].sum()),
                "regions": int(counts[tissue]),
            }
            for tissue in self.present
        ]
        if self.boundary_mm[-1].any():
            nodes.append({"id": OUTSIDE, "kind": OUTSIDE})
        edges: list[dict[str, Any]] = [
            {
                "source": names[i],
                "target": names[j],
                "kind": "boundary",
                "boundary_mm": _round(self.boundary_mm[i, j]),
                "share_of_source": _round(share[i, j]),
                "share_of_target": _round(share[j, i]),
                "contacts": int(self.contact_counts[i, j]),
            }
            for i, j in self.interfaces
        ]
        edges += [
            {"source": f"region {one}", "target": f"region {other}", "kind": "contact", "boundary_mm": length}
            for (one, other), length in zip(
                table.number[table.contacts].tolist(), _rounded(table.contact_mm), strict=True
            )
        ]
        nodes += self._region_nodes()
        return {"directed": False, "multigraph": False, "graph": about, "nodes": nodes, "edges": edges}

    def to_networkx(self) -> networkx.Graph:
        """The same as a graph of networkx, with what the document says of nodes, edges and the whole as attributes.

        >>> graph = tissue_graph(np.array([[0, 1]]), mpp=10, schema=["stroma", "tumour"])
        >>> graph.to_networkx()["stroma"]["tumour"]["boundary_mm"]
        0.01
        """
        try:
            from networkx import Graph
        except ImportError as error:
            raise RefusedError("no view by networkx", got=error, hint="pip install networkx") from error
        document = self.as_node_link()
        graph: networkx.Graph = Graph(**document["graph"])
        graph.add_nodes_from((node.pop("id"), node) for node in document["nodes"])
        graph.add_edges_from((edge.pop("source"), edge.pop("target"), edge) for edge in document["edges"])
        return graph

    def _region_nodes(self) -> list[dict[str, Any]]:
        table, names = self.regions, self.schema.names
        columns: dict[str, list[Any]] = {
            "number": table.number.tolist(),
            "tissue": [names[tissue] for tissue in table.tissue.tolist()],
            "area_mm2": _rounded(table.area_mm2),
            "perimeter_mm": _rounded(table.perimeter_mm),
            "row_px": _rounded(table.centroid[:, 0], 1),
            "column_px": _rounded(table.centroid[:, 1], 1),
        }
        if table.confidence is not None:
            columns["confidence"] = [None if math.isnan(mean) else mean for mean in _rounded(table.confidence)]
        if table.person is not None:
            columns |= dict(zip(("by_hand", "followed"), map(_rounded, table.person.T), strict=True))
        return [
            {"id": f"region {row[0]}", "kind": "region"}
            | {name: value for name, value in zip(columns, row, strict=True) if value is not None}
            for row in zip(*columns.values(), strict=True)
        ]

    def sentences(self, *, tumours: bool = True) -> tuple[str, ...]:
        """The most frequent tissues, and each tumour with its neighbours, in plain words.

        Without ``tumours`` only how much tissue there is: a tumour may be among the most frequent.
        """
        if not self.present:
            return (NO_TISSUE,)
        if not tumours:
            return (f"{area_text(self.areas_mm2.sum())} mm² of tissue.",)
        order = sorted(self.present, key=lambda tissue: -self.areas_mm2[tissue])
        most = [f"{self._title(tissue)} ({self.fractions[tissue]:.0%})" for tissue in order[:3]]
        first = f"{area_text(self.areas_mm2.sum())} mm² of tissue, most of it {_list(most)}."
        cancers = [tissue for tissue in self.present if self.schema.names[tissue] in CANCERS]
        return (first, *(self._tumour_sentence(tissue) for tissue in cancers))

    def _tumour_sentence(self, tissue: int) -> str:
        fraction, title = self.boundary_share[tissue], self._title(tissue)
        regions = counted(int((self.regions.tissue == tissue).sum()), "region")
        text = f"{title[:1].upper()}{title[1:]}: {area_text(self.areas_mm2[tissue])} mm² in {regions}"
        neighbours = [int(other) for other in np.argsort(-fraction, kind="stable")[:2] if fraction[other] > 0]
        if not neighbours:
            return f"{text}."
        return f"{text}, bordering mostly on {_list([f'{self._title(k)} ({fraction[k]:.0%})' for k in neighbours])}."

    def _title(self, tissue: int) -> str:
        return "the outside" if tissue >= len(self.schema) else self.schema.tissues[tissue].title or self.names[tissue]


def tissue_graph(
    mask: NDArray[np.integer[Any]],
    mpp: float | Resolution,
    schema: LabelSchema | Sequence[str] = SKIN,
    *,
    confidence: NDArray[np.number[Any]] | None = None,
) -> TissueGraph:
    """The graph of a mask: its tissues and regions, with areas, and the borders between them, with lengths.

    Args:
        mask: (H, W) class indices, whole numbers of any type, 255 meaning outside.
        mpp: µm per pixel, or a ``Resolution`` with one for each axis.
        schema: what the indices mean: class names in index order, or a ``LabelSchema``.
        confidence: (H, W) confidence of each pixel, 0 to 1.

    >>> graph = tissue_graph(np.array([[7, 0, 5, 255]], dtype=np.uint8), mpp=10)
    >>> [(graph.names[i], graph.names[j]) for i, j in graph.interfaces]
    [('EPI', 'PAP'), ('EPI', 'KER'), ('PAP', 'outside')]
    """
    resolution, schema = stated_resolution(mpp), as_schema(schema)
    return tissue_graph_of(table_of_mask(mask, confidence, schema, resolution), schema)


def tissue_graph_of(regions: RegionTable, schema: LabelSchema) -> TissueGraph:
    """The graph of one piece from the table of its regions."""
    pixels = np.bincount(regions.tissue, regions.pixels, len(schema)).astype(np.float64)
    at_outside = regions.outside_mm > 0
    return TissueGraph(
        schema,
        regions.resolution,
        pixels * (regions.resolution.pixel_area_um2 / 1e6),
        _by_tissue(regions, len(schema), regions.contact_mm, regions.outside_mm),
        _by_tissue(regions, len(schema), np.ones(len(regions.contacts)), at_outside.astype(float)).astype(np.int64),
        regions,
    )


def _by_tissue(regions: RegionTable, classes: int, contacts: Floats, outside: Floats) -> Floats:
    """(K + 1, K + 1) sums by tissue, both ways, of the values of contacts (C,) and of regions with outside (R,)."""
    size = classes + 1
    tissues = regions.tissue[regions.contacts]  # (C, 2)
    one_way = np.bincount(tissues[:, 0] * size + tissues[:, 1], contacts, size * size).reshape(size, size)
    sums = np.asarray(one_way + one_way.T, dtype=np.float64)
    sums[classes] = sums[:, classes] = np.bincount(regions.tissue, outside, size)
    return sums


def _round(value: float) -> float:
    return round(float(value), DIGITS)


def _rounded(values: Floats, digits: int = DIGITS) -> list[float]:
    """As Python rounds, which numpy does not in every last digit."""
    return [round(value, digits) for value in values.tolist()]


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
