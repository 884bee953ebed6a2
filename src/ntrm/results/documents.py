"""What a slide's folder says: ``summary.json`` and ``graph.json``, written from dataclasses and read back into them.

The names of fields are the keys of the files, in their order. Whatever is damaged is an error that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.core.io import STRICT, Document, Kind, parsed, write_json
from ntrm.core.labels import CancerFinding
from ntrm.core.mpp import Resolution
from ntrm.core.wording import NO_TUMOUR, NOTHING_INVADES, PURPOSE, counted
from ntrm.results.familiarity import NOT_ASSESSED, Familiarity, SlideFamiliarity
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import CORRECTED, DONE, GRAPH, HIDDEN, SUMMARY

NOTHING_TO_MEASURE = (NO_TUMOUR, NOTHING_INVADES)  # Reasons for no clearance or depth that leave nothing open
IN_CRUMBS = f"{NOT_ASSESSED}: tumour in crumbs outside all pieces"  # Why a cancer is left open that is in no piece
NAMED_IN_CRUMBS = "named by a person in crumbs outside all pieces"  # Why a cancer is present that is in no piece
# Not the slide's folder: what a person corrected lies there, too.
AGAIN = f"delete {HIDDEN}/{DONE} in the slide's folder, if it is there, and run the same ntrm segment again"

Point = tuple[float, float]
Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Measure:
    """A number with its unit, or the reason why there is none; the ends of its line as (row, column) of the mask."""

    value: float | None
    unit: str
    reason: str
    line_px: tuple[Point, Point] | None
    purpose: str = PURPOSE


@dataclass(frozen=True)
class Cancer:
    """One cancer in all pieces together: present if in any, as sure as the surest."""

    present: bool | None  # None where it was not assessed: area and regions are then what the network has called so
    confidence: float | None
    area_mm2: float
    regions: int
    reason: str = ""  # Why it, or which pieces, were not assessed; or that it is in crumbs alone, by a person's word


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels of the mask."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True)
class PieceSummary:
    """One piece of tissue."""

    number: int
    mask_box_px: Box
    touches_edge: bool
    tissue_area_mm2: float
    areas_mm2: Mapping[str, float]
    tissue_fractions: Mapping[str, float | None]
    measurements: Mapping[str, Measure]
    cancers: tuple[CancerFinding, ...]
    text: tuple[str, ...]
    familiarity: Familiarity


@dataclass(frozen=True)
class Grid:
    """The pixels of the mask over those of the slide."""

    height: int
    width: int
    mpp: Point
    slide_mpp: Point
    slide_mpp_from: str
    level: int
    to_level0: tuple[float, float, float, float]  # sx, sy, ox, oy: x of the mask lies at sx · x + ox of level 0
    bounds: tuple[int, int, int, int] | None
    slide: Document

    def __post_init__(self) -> None:
        size = self.bounds[2:] if self.bounds else (self.slide.get("width"), self.slide.get("height"))
        scales = (*self.mpp, *self.slide_mpp, *self.to_level0[:2], *size)
        if not all(isinstance(value, int | float) and value > 0 for value in scales):
            raise ValueError("impossible scales")

    @property
    def resolution(self) -> Resolution:
        """µm/px of the mask."""
        return Resolution(*self.mpp)

    @property
    def area(self) -> tuple[int, int, int, int]:
        """The scanned area in pixels of the slide's level 0: left, top, width, height."""
        return self.bounds or (0, 0, int(self.slide["width"]), int(self.slide["height"]))


def crumb_warnings(cancers: Mapping[str, Cancer]) -> tuple[str, ...]:
    """One for each cancer that is left open for what crumbs hold."""
    return tuple(f"{name} {each.reason}" for name, each in cancers.items() if each.reason == IN_CRUMBS)


@dataclass(frozen=True)
class Correction:
    """What a person changed in a slide, as its corrected version tells it."""

    steps: int  # That count: neither undone nor undo themselves
    regions: int  # Parts that were named or that followed, and areas that were drawn
    area_mm2: float
    log: str  # Fingerprint of the steps: the same steps give the same files

    @property
    def text(self) -> str:
        """In words."""
        return f"corrected by a person, {counted(self.regions, 'part')}"


@dataclass(frozen=True)
class StainNorm:
    """How the network saw a slide whose stains were to be brought to those of the training sections."""

    method: str
    # By which optical densities of red, green and blue were multiplied; None where the slide was left as it is.
    matrix: tuple[tuple[float, float, float], tuple[float, float, float], tuple[float, float, float]] | None
    reason: str = ""  # Why it was left so

    @property
    def warnings(self) -> tuple[str, ...]:
        """In words, where nothing was done."""
        return () if self.matrix is not None else (f"stains are as they were: {self.reason}",)


@dataclass(frozen=True)
class Summary:
    """``summary.json``: the slide first, then its pieces."""

    __pydantic_config__ = STRICT
    slide_id: str
    program: Document
    model: Document | None  # None where a person named tissues from nothing
    options: Document
    classes: tuple[str, ...]
    purpose: str
    grid: Grid
    quality: Mapping[str, float | bool]
    familiarity: Familiarity
    warnings: tuple[str, ...]
    tissue_area_mm2: float
    areas_mm2: Mapping[str, float]
    tissue_fractions: Mapping[str, float | None]  # Without the background
    cancers: Mapping[str, Cancer]  # Each that was looked for; the file also has their names as `cancers_looked_for`
    pieces: tuple[PieceSummary, ...]
    small_regions: Document | None
    stain_norm: StainNorm | None = None  # None, and no key, where nobody asked for it
    corrected: Correction | None = None  # None for what the network said; only the corrected version has the key

    def __post_init__(self) -> None:
        if not self.tissue_fractions.keys() <= {*self.classes} & self.areas_mm2.keys():
            raise ValueError("fractions of unknown classes")

    @property
    def wanted_mpp(self) -> float:
        """µm/px that the mask was to have."""
        return float((self.model or self.options)["mpp"])

    @property
    def familiarities(self) -> SlideFamiliarity:
        """Of the slide and of its pieces."""
        return SlideFamiliarity(self.familiarity, {piece.number: piece.familiarity for piece in self.pieces})

    @property
    def quality_warnings(self) -> tuple[str, ...]:
        """Those that are about the slide itself, whatever the model knows."""
        return tuple(text for text in self.warnings if text not in self.familiarities.warnings)

    @property
    def assessed(self) -> bool:
        """Whether cancers were assessed on any piece."""
        return self.familiarity.assessed and all(
            each.present is not None or each.reason == IN_CRUMBS for each in self.cancers.values()
        )

    def write(self, folder: Path) -> None:
        """Write ``summary.json``."""
        unasked = [key for key in ("stain_norm", "corrected") if getattr(self, key) is None]
        document = {key: value for key, value in vars(self).items() if key not in unasked}
        write_json(folder / SUMMARY, document | {"cancers_looked_for": [*self.cancers]})


@dataclass(frozen=True)
class Edge:
    """Two tissues that touch, or a tissue and the outside; in the file also two regions, with a boundary alone."""

    source: str
    target: str
    boundary_mm: float
    share_of_source: float = 0.0
    share_of_target: float = 0.0
    contacts: int = 0
    kind: str = "boundary"


@dataclass(frozen=True)
class Node:
    """A tissue, a region of one, or the outside."""

    id: str
    kind: str
    title: str = ""
    tissue: str = ""
    area_mm2: float = 0.0
    regions: int = 0
    confidence: float | None = None
    by_hand: float | None = None
    followed: float | None = None

    @property
    def by_person(self) -> float:
        """Fraction that a person named, or that followed."""
        return (self.by_hand or 0.0) + (self.followed or 0.0)


@dataclass(frozen=True)
class NodeLink:
    """A graph of the file."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class PieceGraph:
    """The tissue graph of one piece, also in sentences."""

    piece: int
    text: tuple[str, ...]
    graph: NodeLink

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Of the tissues."""
        return tuple(edge for edge in self.graph.edges if edge.kind == "boundary")


def tissues_in(graphs: Sequence[PieceGraph]) -> dict[str, Node]:
    """The tissues of all these pieces, by name, with the means of their regions, weighted by area.

    What a person named is no part of the network's confidence.
    """
    nodes, tissues = [node for each in graphs for node in each.graph.nodes], {}
    for name in dict.fromkeys(node.id for node in nodes if node.kind == "tissue"):
        here, own = ([node for node in nodes if of(node) == name] for of in (attrgetter("id"), attrgetter("tissue")))
        known = [(each.confidence, each.area_mm2 * (1 - each.by_person)) for each in own if each.confidence is not None]
        tissues[name] = replace(
            here[0],
            title=here[0].title or name,
            area_mm2=sum(node.area_mm2 for node in here),
            regions=sum(node.regions for node in here),
            confidence=_mean(known),
            by_hand=_mean([(each.by_person, each.area_mm2) for each in own]),
        )
    return tissues


def _mean(known: Sequence[tuple[float, float]]) -> float | None:
    """Of values, weighted by areas."""
    total = sum(area for _, area in known)
    return sum(value * area for value, area in known) / total if total > 0 else None


@dataclass(frozen=True)
class EdgeWindow(Box):
    """A window, with the mean attention of the layers along an edge there."""

    attention: float


@dataclass(frozen=True)
class StrongestWindows:
    """The windows where one tissue attended most to another, the strongest first."""

    source: str
    target: str
    windows: tuple[EdgeWindow, ...]


@dataclass(frozen=True)
class Network:
    """What the network itself used, as means over windows; the first index sends, the second receives."""

    names: tuple[str, ...]
    attention: tuple[Matrix, ...]  # By layer; empty for a network without attention
    edge_windows: tuple[tuple[int, ...], ...]  # How many windows have the edge
    edge_weight: Matrix | None  # None for a network that does not train them
    strongest_windows: tuple[StrongestWindows, ...]
    windows: int  # All that were counted
    note: str = "what the network used, not biology"

    def __post_init__(self) -> None:
        matrices = (*self.attention, self.edge_windows, self.edge_weight)
        if any({len(each), *map(len, each)} != {len(self.names)} for each in matrices if each is not None):
            raise ValueError("relations of the network do not fit their names")
        if not {name for edge in self.strongest_windows for name in (edge.source, edge.target)} <= {*self.names}:
            raise ValueError("windows of unknown tissues")

    @property
    def mean_attention(self) -> Matrix:
        """Over the layers; 0 without any."""
        size, layers = range(len(self.names)), self.attention
        return tuple(tuple(sum(m[i][j] for m in layers) / max(len(layers), 1) for j in size) for i in size)


@dataclass(frozen=True)
class _GraphFile:
    __pydantic_config__ = STRICT
    slide_id: str
    pieces: tuple[PieceGraph, ...]
    network: Network | None = None


@dataclass(frozen=True, kw_only=True)
class Slide(Summary):
    """Everything about one slide: its summary, the graph of each piece, and what the network used."""

    graphs: tuple[PieceGraph, ...]
    network: Network | None


def unusable(folder: Path, predicate: str, got: object = None) -> DataError:
    """Error about a file of a slide's folder, or of ``corrected/`` in it, with the command that makes it anew."""
    name, slide = folder.name, folder.parent.name
    if name != CORRECTED or (folder / HIDDEN).is_dir():  # a slide may be called corrected, too
        return DataError(f"{name}{predicate}", got=got, hint=AGAIN)
    hint = f"make it anew with `ntrm correct OUT --undo {slide}`, then `ntrm correct OUT --redo {slide}`"
    return DataError(f"{slide}/{name}{predicate}", got=got, hint=hint)


def read_summary(folder: Path) -> Summary:
    """Read ``summary.json`` of a slide, which is small, without the graph, which may be large."""
    return _read(folder, SUMMARY, Summary)


def read_slide(folder: Path) -> Slide:
    """Read ``summary.json`` and ``graph.json`` of a slide that ``ntrm segment`` has finished."""
    summary, graph = read_summary(folder), _read(folder, GRAPH, _GraphFile)
    numbers = [piece.piece for piece in graph.pieces]
    if (graph.slide_id, numbers) != (summary.slide_id, [piece.number for piece in summary.pieces]):
        raise unusable(folder, f": {SUMMARY} and {GRAPH} are not of one slide")
    return Slide(**vars(summary), graphs=graph.pieces, network=graph.network)


def _read(folder: Path, name: str, kind: type[Kind]) -> Kind:
    try:
        return parsed(kind, SlideFolder(folder).read(name))
    except FileNotFoundError as error:
        raise unusable(folder, f" has no {name}", "no such file") from error
    except (OSError, ValueError) as error:
        raise unusable(folder, f": cannot read {name}", error) from error
