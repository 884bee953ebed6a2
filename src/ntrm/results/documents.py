"""What a finished slide's folder says, read back and checked: ``summary.json`` and ``graph.json`` as plain values."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ntrm.core.errors import DataError
from ntrm.results.paths import GRAPH, SUMMARY

OUTSIDE = "outside"
AGAIN = "delete the slide's folder and run the same ntrm segment again"

Point = tuple[float, float]
Document = dict[str, Any]


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
    """What is said about one cancer."""

    name: str
    present: bool
    confidence: float
    area_mm2: float
    regions: int
    reason: str = ""


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

    one: str
    other: str
    boundary_mm: float
    share_of_one: float
    share_of_other: float
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
    sentences: tuple[str, ...]
    """The tissue graph in plain words."""
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
        """What the names of the tissues stand for, where a piece tells it."""
        return {node.name: node.title for piece in self.pieces for node in piece.nodes}

    def confidence(self, tissue: str) -> float | None:
        """Mean over all pieces, weighted by area; None where there is no region."""
        nodes = [node for piece in self.pieces for node in piece.nodes if node.name == tissue]
        known = [(node.confidence, node.area_mm2) for node in nodes if node.confidence is not None]
        return _mean(known)


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
        slide = _slide(summary, graph)
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
    """A JSON object from a file; numbers that are none are refused."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except FileNotFoundError as error:
        raise DataError(f"{path.parent.name} has no {path.name}", got="no such file", hint=AGAIN) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path.parent.name}: cannot read {path.name}", got=error, hint=AGAIN) from error
    if not isinstance(document, dict):
        raise DataError(f"{path.parent.name}: {path.name} is no document of a slide", hint=AGAIN)
    return document


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def measures_of(piece: Document) -> tuple[Measure, ...]:
    """The measurements of a piece as ``summary.json`` holds them."""
    return tuple(_measure(key, each) for key, each in piece["measurements"].items())


def _slide(summary: Document, graph: Document) -> Slide:
    grid = summary["grid"]
    graphs = {each["piece"]: each for each in graph["pieces"]}
    return Slide(
        slide_id=str(summary["slide_id"]),
        about={key: dict(summary[key]) for key in ("program", "model", "options", "grid")},
        classes=tuple(map(str, summary["classes"])),
        shape=(int(grid["height"]), int(grid["width"])),
        mpp=(_positive(grid["mpp"][0]), _positive(grid["mpp"][1])),
        quality={
            str(key): value if isinstance(value, bool) else _number(value) for key, value in summary["quality"].items()
        },
        warnings=tuple(map(str, summary["warnings"])),
        tissue_area_mm2=_number(summary["tissue_area_mm2"]),
        areas_mm2=_numbers(summary["areas_mm2"]),
        fractions=_shares(summary["tissue_fractions"]),
        cancers=tuple(_cancer({"name": name, **each}) for name, each in summary["cancers"].items()),
        pieces=tuple(_piece(each, graphs[each["number"]]) for each in summary["pieces"]),
        network=_network(graph.get("network")),
    )


def _piece(piece: Document, of_graph: Document) -> Piece:
    box = piece["mask_box_px"]
    nodes, edges = of_graph["graph"]["nodes"], of_graph["graph"]["edges"]
    return Piece(
        number=int(piece["number"]),
        box=(int(box["top"]), int(box["left"]), int(box["height"]), int(box["width"])),
        touches_edge=bool(piece["touches_edge"]),
        tissue_area_mm2=_number(piece["tissue_area_mm2"]),
        areas_mm2=_numbers(piece["areas_mm2"]),
        fractions=_shares(piece["tissue_fractions"]),
        measures=measures_of(piece),
        cancers=tuple(_cancer(each) for each in piece["cancers"]),
        sentences=tuple(map(str, of_graph["text"])),
        nodes=tuple(_node(each, nodes) for each in nodes if each["kind"] == "tissue"),
        edges=tuple(_edge(each) for each in edges if each["kind"] == "boundary"),
    )


def _measure(key: str, document: Document) -> Measure:
    value, line = document["value"], document.get("line_px")
    ends = None if line is None else tuple((float(row), float(column)) for row, column in line)
    if ends is not None and len(ends) != 2:
        raise ValueError(f"the line of {key} has {len(ends)} points")
    return Measure(
        key=str(key),
        value=None if value is None else _number(value),
        unit=str(document["unit"]),
        reason=str(document["reason"]),
        line=None if ends is None else (ends[0], ends[1]),
    )


def _cancer(document: Document) -> Cancer:
    return Cancer(
        name=str(document["name"]),
        present=bool(document["present"]),
        confidence=_number(document["confidence"]),
        area_mm2=_number(document["area_mm2"]),
        regions=int(document["regions"]),
        reason=str(document.get("reason", "")),
    )


def _node(node: Document, every: Sequence[Document]) -> Node:
    own = [each for each in every if each["kind"] == "region" and each["tissue"] == node["id"]]
    known = [(_number(each["confidence"]), _number(each["area_mm2"])) for each in own if "confidence" in each]
    return Node(
        name=str(node["id"]),
        title=str(node.get("title") or node["id"]),
        area_mm2=_number(node["area_mm2"]),
        regions=int(node["regions"]),
        confidence=_mean(known),
    )


def _edge(edge: Document) -> Edge:
    return Edge(
        one=str(edge["source"]),
        other=str(edge["target"]),
        boundary_mm=_number(edge["boundary_mm"]),
        share_of_one=_number(edge["share_of_source"]),
        share_of_other=_number(edge["share_of_target"]),
        contacts=int(edge["contacts"]),
    )


def _network(document: Document | None) -> Network | None:
    if document is None:
        return None
    names = tuple(map(str, document["names"]))
    attention, weight = (
        tuple(tuple(_number(cell) for cell in row) for row in document[key]) for key in ("attention", "edge_weight")
    )
    for values in (attention, weight):
        if {len(values), *map(len, values)} != {len(names)}:
            raise ValueError("relations of the network do not fit their names")
    return Network(names, attention, weight, int(document["windows"]), str(document.get("note", "")))


def _mean(known: Sequence[tuple[float, float]]) -> float | None:
    whole = sum(area for _, area in known)
    return sum(value * area for value, area in known) / whole if whole > 0 else None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _positive(value: Any) -> float:
    number = _number(value)
    if number <= 0:
        raise ValueError(f"{value!r} is no µm/px")
    return number


def _numbers(document: Document) -> dict[str, float]:
    return {str(key): _number(value) for key, value in document.items()}


def _shares(document: Document) -> dict[str, float | None]:
    return {str(key): None if value is None else _number(value) for key, value in document.items()}
