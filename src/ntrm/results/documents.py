"""What a finished slide's folder says, read back and checked: ``summary.json`` and ``graph.json`` as plain values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ntrm.core.errors import DataError
from ntrm.results.paths import GRAPH, SUMMARY

OUTSIDE = "outside"
AGAIN = "delete the slide's folder and run the same ntrm segment again"

Point = tuple[float, float]
Document = dict[str, Any]
Value = TypeVar("Value")


@dataclass(frozen=True)
class Measure:
    """A number with its unit, or the reason why there is none."""

    key: str
    value: float | None
    unit: str
    reason: str
    line: tuple[Point, Point] | None
    """Two points as (row, column) in pixels of the mask."""


@dataclass(frozen=True)
class Cancer:
    """Whether one cancer is present."""

    name: str
    present: bool
    confidence: float
    area_mm2: float
    regions: int


@dataclass(frozen=True)
class Node:
    """A tissue of the graph."""

    name: str
    title: str
    area_mm2: float
    regions: int
    confidence: float | None
    """Mean over its regions, weighted by area."""


@dataclass(frozen=True)
class Edge:
    """Two tissues that touch, or a tissue and the outside."""

    source: str
    target: str
    boundary_mm: float
    share_of_source: float
    share_of_target: float
    contacts: int


@dataclass(frozen=True)
class Network:
    """What the network itself used; the first index sends, the second receives."""

    names: tuple[str, ...]
    attention: tuple[tuple[float, ...], ...]
    edge_weight: tuple[tuple[float, ...], ...]
    windows: int
    note: str


@dataclass(frozen=True)
class Piece:
    """One piece of tissue."""

    number: int
    box: tuple[int, int, int, int]
    """Top, left, height and width in pixels of the mask."""
    touches_edge: bool
    tissue_area_mm2: float
    areas_mm2: Mapping[str, float]
    fractions: Mapping[str, float | None]
    measures: tuple[Measure, ...]
    cancers: tuple[Cancer, ...]
    text: tuple[str, ...]
    """The tissue graph in sentences."""
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Slide:
    """Everything about one slide."""

    slide_id: str
    about: Document
    """Program, model, options and grid as they stand in the file."""
    classes: tuple[str, ...]
    shape: tuple[int, int]
    """Height and width of the mask."""
    mpp: Point
    """Of the mask, along x and y."""
    quality: Mapping[str, float | bool]
    warnings: tuple[str, ...]
    tissue_area_mm2: float
    areas_mm2: Mapping[str, float]
    fractions: Mapping[str, float | None]
    """Without the background."""
    cancers: tuple[Cancer, ...]
    pieces: tuple[Piece, ...]
    network: Network | None

    @property
    def titles(self) -> dict[str, str]:
        """What the names of the tissues stand for, where a piece has them."""
        return {node.name: node.title for piece in self.pieces for node in piece.nodes}

    def confidence(self, tissue: str) -> float | None:
        """Mean over all pieces, weighted by area; None where there is no region."""
        nodes = [node for piece in self.pieces for node in piece.nodes if node.name == tissue]
        return _mean([(node.confidence, node.area_mm2) for node in nodes if node.confidence is not None])


@dataclass(frozen=True)
class Summary:
    """The short version of a slide's results: what ``summary.json`` alone says."""

    bounds: tuple[int, int, int, int]
    """The scanned area in pixels of the slide's level 0: left, top, width, height."""
    slide_mpp: Point
    mask_to_slide: Point
    """Pixels of the slide per pixel of the mask, along x and y."""
    classes: tuple[str, ...]
    cancers: tuple[Cancer, ...]
    tissue_area_mm2: float
    areas_mm2: Mapping[str, float]
    fractions: Mapping[str, float | None]
    warnings: tuple[str, ...]
    pieces: int


def read_summary(folder: Path) -> Summary:
    """Read ``summary.json`` of a slide, which is small, without the graph, which may be large."""
    summary = read_document(folder / SUMMARY)
    try:
        return _summary(summary, summary["grid"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DataError(
            f"{folder.name}: {SUMMARY} is damaged", got=type(error).__name__, hint="segment the slide again"
        ) from error


def _summary(summary: Document, grid: Document) -> Summary:
    left, top, width, height = grid["bounds"] or (0, 0, grid["slide"]["width"], grid["slide"]["height"])
    mpp_x, mpp_y, sx, sy = map(_number, (*grid["slide_mpp"], *grid["to_level0"][:2]))
    classes, fractions = tuple(map(str, summary["classes"])), summary["tissue_fractions"]
    if min(mpp_x, mpp_y, sx, sy) <= 0 or not fractions.keys() <= {*classes}:
        raise ValueError("impossible scales, or fractions of unknown classes")
    cancers = [
        Cancer(
            str(name),
            bool(known["present"]),
            _number(known["confidence"]),
            _number(known["area_mm2"]),
            known["regions"],
        )
        for name, known in summary["cancers"].items()
    ]
    return Summary(
        bounds=(int(left), int(top), int(width), int(height)),
        slide_mpp=(mpp_x, mpp_y),
        mask_to_slide=(sx, sy),
        classes=classes,
        cancers=tuple(cancers),
        tissue_area_mm2=_number(summary["tissue_area_mm2"]),
        areas_mm2={name: _number(summary["areas_mm2"][name]) for name in fractions},
        fractions={name: None if value is None else _number(value) for name, value in fractions.items()},
        warnings=tuple(map(str, summary["warnings"])),
        pieces=len(summary["pieces"]),
    )


def read_slide(folder: Path) -> Slide:
    """Read ``summary.json`` and ``graph.json`` of a slide that ``ntrm segment`` has finished."""
    summary, graph = read_document(folder / SUMMARY), read_document(folder / GRAPH)
    try:
        slide = _read_slide(summary, graph)
        of_graph = graph["slide_id"], len(graph["pieces"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DataError(
            f"{folder.name}: {SUMMARY} and {GRAPH} are not what ntrm segment writes",
            got=f"{type(error).__name__}: {error}",
            hint=AGAIN,
        ) from error
    if of_graph != (slide.slide_id, len(slide.pieces)):
        raise DataError(f"{folder.name}: {SUMMARY} and {GRAPH} are not of one slide", hint=AGAIN)
    return slide


def read_document(path: Path) -> Document:
    """A JSON object from a file; NaN and infinities are refused."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_not_a_number)
    except FileNotFoundError as error:
        raise DataError(f"{path.parent.name} has no {path.name}", got="no such file", hint=AGAIN) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path.parent.name}: cannot read {path.name}", got=error, hint=AGAIN) from error
    if not isinstance(document, dict):
        raise DataError(f"{path.parent.name}: {path.name} is no document of a slide", hint=AGAIN)
    return document


def _not_a_number(text: object) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _not_a_number(repr(value))
    return float(value)


def _optional_number(value: Any) -> float | None:
    return None if value is None else _number(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "float": _number,
    "float | None": _optional_number,
    "tuple[str, ...]": lambda texts: tuple(map(str, texts)),
    "tuple[tuple[float, ...], ...]": lambda rows: tuple(tuple(map(_number, row)) for row in rows),
    "Mapping[str, float]": lambda numbers: {str(key): _number(value) for key, value in numbers.items()},
    "Mapping[str, float | None]": lambda numbers: {str(key): _optional_number(v) for key, v in numbers.items()},
}
"""How a value of JSON becomes a field, by the field's annotation."""


def _read(kind: type[Value], document: Mapping[str, Any], **values: Any) -> Value:
    """A dataclass of the ``values``; its other fields come from the document's keys of the same names."""
    own = [field for field in fields(kind) if field.name not in values]  # type: ignore[arg-type]
    return kind(**{field.name: _READERS[str(field.type)](document[field.name]) for field in own}, **values)


def _read_slide(summary: Document, graph: Document) -> Slide:
    grid = summary["grid"]
    graphs = {piece["piece"]: piece for piece in graph["pieces"]}
    mpp_x, mpp_y = map(_number, grid["mpp"])
    if mpp_x <= 0 or mpp_y <= 0:
        raise ValueError(f"{grid['mpp']!r} is no µm/px")
    quality = {key: v if isinstance(v, bool) else _number(v) for key, v in summary["quality"].items()}
    return _read(
        Slide,
        {**summary, "fractions": summary["tissue_fractions"]},
        about={key: dict(summary[key]) for key in ("program", "model", "options", "grid")},
        shape=(int(grid["height"]), int(grid["width"])),
        mpp=(mpp_x, mpp_y),
        quality=quality,
        cancers=tuple(_read(Cancer, cancer, name=name) for name, cancer in summary["cancers"].items()),
        pieces=tuple(_read_piece(piece, graphs[piece["number"]]) for piece in summary["pieces"]),
        network=_read_network(graph.get("network")),
    )


def _read_piece(piece: Document, of_graph: Document) -> Piece:
    nodes, edges = of_graph["graph"]["nodes"], of_graph["graph"]["edges"]
    return _read(
        Piece,
        {**piece, "fractions": piece["tissue_fractions"], "text": of_graph["text"]},
        box=tuple(int(piece["mask_box_px"][side]) for side in ("top", "left", "height", "width")),
        measures=read_measures(piece),
        cancers=tuple(_read(Cancer, cancer) for cancer in piece["cancers"]),
        nodes=tuple(_read_node(node, nodes) for node in nodes if node["kind"] == "tissue"),
        edges=tuple(_read(Edge, edge) for edge in edges if edge["kind"] == "boundary"),
    )


def read_measures(piece: Mapping[str, Any]) -> tuple[Measure, ...]:
    """The measurements of a piece as ``summary.json`` holds them."""
    return tuple(
        _read(Measure, document, key=key, line=_read_line(key, document.get("line_px")))
        for key, document in piece["measurements"].items()
    )


def _read_line(key: str, points: Any) -> tuple[Point, Point] | None:
    if points is None:
        return None
    ends = [(float(row), float(column)) for row, column in points]
    if len(ends) != 2:
        raise ValueError(f"the line of {key} has {len(ends)} points")
    return ends[0], ends[1]


def _read_node(node: Document, nodes: Sequence[Document]) -> Node:
    regions = [other for other in nodes if other["kind"] == "region" and other["tissue"] == node["id"]]
    known = [(_number(r["confidence"]), _number(r["area_mm2"])) for r in regions if "confidence" in r]
    return _read(Node, node, name=str(node["id"]), title=str(node.get("title") or node["id"]), confidence=_mean(known))


def _read_network(document: Document | None) -> Network | None:
    if document is None:
        return None
    network = _read(Network, {"note": "", **document})
    for values in (network.attention, network.edge_weight):
        if {len(values), *map(len, values)} != {len(network.names)}:
            raise ValueError("relations of the network do not fit their names")
    return network


def _mean(known: Sequence[tuple[float, float]]) -> float | None:
    """Of values, weighted by areas."""
    total = sum(area for _, area in known)
    return sum(value * area for value, area in known) / total if total > 0 else None
