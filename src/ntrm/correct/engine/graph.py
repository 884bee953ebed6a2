"""The region graph of a section: parts of its regions as nodes, their borders as edges.

A node has what the network saw in it (features of D2, which a relation module refines, and of the last decoder block),
its mean probabilities, its colour, its shape, and its depth below the outline of the tissue. An edge has the length of
the border that two nodes share, and the *boundary ratios*: which share of its whole border each of the two has with the
other, as ``ntrm.regions.graph`` has them of tissues. The edge of the mask is no border.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints
from ntrm.core.errors import DataError
from ntrm.core.io import write_arrays
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.correct.engine.parts import Parts
from ntrm.correct.units import Units
from ntrm.regions.nearest import nearest_of
from ntrm.regions.region_table import RegionTable
from ntrm.regions.runs import RunLengths, sides_of
from ntrm.results.folder import SlideFolder

Features = NDArray[np.float32]
FORMAT = 2


@dataclass(frozen=True, eq=False)
class RegionGraph:
    """N nodes and E edges, and where the nodes lie."""

    schema: LabelSchema
    resolution: Resolution
    runs: RunLengths  # Index of the node of each run; -1 where nothing is known
    tissue: Ints  # (N,) class in the mask
    region: Ints  # (N,) index of the undivided region that a node is part of
    pixels: Ints  # (N,)
    centroid: Floats  # (N, 2) row and column
    edges: Ints  # (E, 2) nodes that share a border, the smaller first
    ratios: Floats  # (E, 2) share of that border in the whole border of the first, and of the second
    probabilities: Features  # (N, K) mean
    features: Mapping[str, Features]
    """(N, D) by group: ``related`` (D2) and ``last`` (what the classifier sees), as far as the network has them, then
    ``colour``, ``shape`` and ``depth``."""

    def __len__(self) -> int:
        return len(self.tissue)

    def mask(self, tissue: Ints | None = None) -> Mask:
        """(H, W) with these classes of the nodes, or their own; ignored where there is no node."""
        labels = np.append(self.tissue if tissue is None else tissue, IGNORE).astype(np.uint8)
        return np.asarray(RunLengths(self.runs.shape, self.runs.start, labels[self.runs.value]).dense())

    @cached_property
    def parts(self) -> Units:
        """Its nodes."""
        return Units(self.runs, self.runs.value, self.tissue)

    @cached_property
    def regions(self) -> Units:
        """Its undivided regions."""
        tissue = np.zeros(int(self.region.max(initial=-1)) + 1, dtype=np.int64)
        tissue[self.region] = self.tissue
        return Units(self.runs, np.append(self.region, -1)[self.runs.value], tissue)

    def save(self, path: Path, origin: str = "") -> None:
        """Keep it as arrays; ``read`` gives it back. ``origin`` says what it was made of."""
        arrays: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"features {name}": values for name, values in self.features.items()}
        mpp, shape = np.array([self.resolution.x, self.resolution.y]), np.array(self.runs.shape)
        arrays |= {"mpp": mpp, "shape": shape, "start": self.runs.start, "node": self.runs.value}
        write_arrays(path, {**arrays, "origin": np.array(f"{FORMAT} {self.schema.fingerprint} {origin}")})

    @classmethod
    def read(cls, path: Path, schema: LabelSchema, origin: str = "") -> RegionGraph:
        """Read what ``save`` wrote; refuses a graph of another schema or origin."""
        hint = "remove the file; it is made again from slide and model"
        kept = SlideFolder(path.parent).arrays(path.name, hint=hint)
        try:
            if str(kept["origin"]) != f"{FORMAT} {schema.fingerprint} {origin}":
                raise ValueError("it is of another version or model")
            height, width = kept["shape"].tolist()
            x, y = kept["mpp"].tolist()
            groups = {name.split(" ")[1]: values for name, values in kept.items() if name.startswith("features ")}
            runs = RunLengths((height, width), kept["start"], kept["node"])
            return cls(schema, Resolution(x, y), runs, features=groups, **{name: kept[name] for name in _ARRAYS})
        except (KeyError, ValueError, TypeError) as error:
            raise DataError(f"{path} is not the region graph", got=error, hint=hint) from error


_ARRAYS = ("tissue", "region", "pixels", "centroid", "edges", "ratios", "probabilities")


def region_graph_of(
    parts: Parts, schema: LabelSchema, probabilities: Features, features: Mapping[str, Features]
) -> RegionGraph:
    """The graph of parts, with what was pooled from the network and the pixels; shape and depth are added."""
    table, region = parts.table, parts.regions
    border, whole = table.contact_mm * 1e3, table.outside_mm * 1e3
    for end in (0, 1):
        whole = whole + np.bincount(table.contacts[:, end], border, len(table))
    # Compactness of a part, logarithm of the area of its region, and the region's compactness.
    columns = (_compactness(table), np.log(region.area_mm2)[parts.region], _compactness(region)[parts.region])
    shape = np.stack(columns, axis=1).astype(np.float32)
    return RegionGraph(
        schema,
        table.resolution,
        parts.runs,
        tissue=table.tissue,
        region=parts.region,
        pixels=table.pixels,
        centroid=table.centroid,
        edges=table.contacts,
        ratios=border[:, None] / whole[table.contacts],
        probabilities=probabilities,
        features={**features, "shape": shape, "depth": _depth(parts, schema)},
    )


def _compactness(table: RegionTable) -> Floats:
    """4π · area / perimeter², 1 for a disc."""
    return np.asarray(4 * np.pi * table.area_mm2 / table.perimeter_mm**2)


def _depth(parts: Parts, schema: LabelSchema) -> Features:
    """(N, 1) mm from the middle of a part to the nearest glass; 0 in glass, and where there is none."""
    table, depth = parts.table, np.zeros((len(parts.table), 1), dtype=np.float32)
    if schema.background_index is None:
        return depth
    is_glass = table.tissue == schema.background_index
    within = RunLengths(parts.runs.shape, parts.runs.start, np.append(is_glass, False)[parts.runs.value])
    runs = within.relabelled(within.value)
    rim = np.unique(sides_of(runs, runs.value)[0])
    if rim.size and not is_glass.all():
        step = np.array([table.resolution.y, table.resolution.x]) / 1e3
        places = np.stack(np.divmod(rim, runs.shape[1]), axis=1) * step
        depth[~is_glass, 0] = nearest_of(places, table.centroid[~is_glass] * step)[0]
    return depth
