"""What a slide's folder says: ``summary.json`` and ``graph.json``, written from dataclasses and read back into them.

The names of fields are the keys of the files, in their order. Whatever is damaged is an error that says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.core.io import write_json
from ntrm.core.mpp import Resolution
from ntrm.core.wording import NO_TUMOUR, NOTHING_INVADES, PURPOSE, counted
from ntrm.results.familiarity import NOT_ASSESSED, Familiarity, SlideFamiliarity
from ntrm.results.folder import SlideFolder
from ntrm.results.graph_document import GraphFile, Network, Node, PieceGraph, weighted_mean
from ntrm.results.json_files import STRICT, Document, Kind, parsed
from ntrm.results.paths import CORRECTED, DONE, GRAPH, HIDDEN, SUMMARY

NOTHING_TO_MEASURE = (NO_TUMOUR, NOTHING_INVADES)
"""Why a piece has no clearance or depth where nothing is left open by that."""
IN_CRUMBS = f"{NOT_ASSESSED}: tumour in crumbs outside all pieces"
"""Why a cancer is left open that is in no piece."""
NAMED_IN_CRUMBS = "named by a person in crumbs outside all pieces"
"""Why a cancer is present that is in no piece."""
AGAIN = f"delete {HIDDEN}/{DONE} in the slide's folder, if it is there, and run the same ntrm segment again"
"""Not the slide's folder: what a person corrected lies there, too."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Measure:
    """A number with its unit, or the reason why there is none."""

    value: float | None
    unit: str
    reason: str
    line_px: tuple[Point, Point] | None
    """Two points as (row, column) in pixels of the mask."""
    purpose: str = PURPOSE


@dataclass(frozen=True)
class Cancer:
    """One cancer in all pieces together: present if in any, as sure as the surest; or why it was not assessed.

    Area and regions of a cancer that was not assessed are what the network has called so.
    """

    present: bool | None
    """None where it was not assessed."""
    confidence: float | None
    area_mm2: float
    regions: int
    reason: str = ""
    """Why it was not assessed, or which pieces were not; or that it is in crumbs alone, by a person's word."""


def crumb_warnings(cancers: Mapping[str, Cancer]) -> tuple[str, ...]:
    """One for each cancer that is left open for what crumbs hold."""
    return tuple(f"{name} {each.reason}" for name, each in cancers.items() if each.reason == IN_CRUMBS)


@dataclass(frozen=True)
class PieceCancer:
    """One cancer in one piece."""

    name: str
    present: bool | None
    """None where it was not assessed."""
    area_mm2: float
    """Of the regions that count."""
    regions: int
    confidence: float | None
    reason: str
    """The finding in plain words, or why it was not assessed."""


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
    cancers: tuple[PieceCancer, ...]
    text: tuple[str, ...]
    """Tissue graph and measurements in sentences."""
    familiarity: Familiarity


@dataclass(frozen=True)
class Grid:
    """The pixels of the mask over those of the slide."""

    height: int
    width: int
    mpp: Point
    """Of the mask, along x and y."""
    slide_mpp: Point
    slide_mpp_from: str
    level: int
    to_level0: tuple[float, float, float, float]
    """sx, sy, ox, oy: pixel x of the mask lies at sx · x + ox of the slide's level 0."""
    bounds: tuple[int, int, int, int] | None
    slide: Document
    """Reader, vendor, size and levels."""

    def __post_init__(self) -> None:
        size = self.bounds[2:] if self.bounds else (self.slide.get("width"), self.slide.get("height"))
        scales = (*self.mpp, *self.slide_mpp, *self.to_level0[:2], *size)
        if not all(isinstance(value, int | float) and value > 0 for value in scales):
            raise ValueError("impossible scales")

    @property
    def resolution(self) -> Resolution:
        """Of the mask."""
        return Resolution(*self.mpp)

    @property
    def area(self) -> tuple[int, int, int, int]:
        """The scanned area in pixels of the slide's level 0: left, top, width, height."""
        return self.bounds or (0, 0, int(self.slide["width"]), int(self.slide["height"]))


@dataclass(frozen=True)
class Correction:
    """What a person changed in a slide, as its corrected version tells it."""

    steps: int
    """That count: neither undone nor undo themselves."""
    regions: int
    """Parts that were named or that followed, and areas that were drawn."""
    area_mm2: float
    log: str
    """Fingerprint of the steps: the same steps give the same files."""

    @property
    def text(self) -> str:
        """In words.

        >>> Correction(2, 1, 0.5, "5eb3").text
        'corrected by a person, 1 part'
        """
        return f"corrected by a person, {counted(self.regions, 'part')}"


@dataclass(frozen=True)
class StainNorm:
    """How the network saw a slide whose stains were to be brought to those of the training sections."""

    method: str
    matrix: tuple[tuple[float, float, float], tuple[float, float, float], tuple[float, float, float]] | None
    """By which the optical densities of red, green and blue were multiplied; None: the slide was left as it is."""
    reason: str = ""
    """Why it was left so."""

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
    model: Document
    options: Document
    classes: tuple[str, ...]
    purpose: str
    grid: Grid
    quality: Mapping[str, float | bool]
    familiarity: Familiarity
    """Whether the slide is like what the model was trained on."""
    warnings: tuple[str, ...]
    """Of an unfamiliar slide or piece first, then of tumour in crumbs, then of the slide's quality."""
    tissue_area_mm2: float
    areas_mm2: Mapping[str, float]
    tissue_fractions: Mapping[str, float | None]
    """Without the background."""
    cancers: Mapping[str, Cancer]
    """Each that was looked for: those among the classes. The file also has their names as ``cancers_looked_for``."""
    pieces: tuple[PieceSummary, ...]
    small_regions: Document | None
    """How many were relabelled as what lies around them, and how much area; None where nobody asked for that."""
    stain_norm: StainNorm | None = None
    """What was done to the slide's stains before the network saw it; None, and no key, where nobody asked for that."""
    corrected: Correction | None = None
    """None for what the network said; only the corrected version has the key."""

    def __post_init__(self) -> None:
        if not self.tissue_fractions.keys() <= {*self.classes} & self.areas_mm2.keys():
            raise ValueError("fractions of unknown classes")

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
        unasked = {key for key in ("stain_norm", "corrected") if getattr(self, key) is None}
        document = {key: value for key, value in vars(self).items() if key not in unasked}
        write_json(folder / SUMMARY, document | {"cancers_looked_for": [*self.cancers]})


@dataclass(frozen=True, kw_only=True)
class Slide(Summary):
    """Everything about one slide: its summary, the graph of each piece, and what the network used."""

    graphs: tuple[PieceGraph, ...]
    network: Network | None

    @property
    def nodes(self) -> list[Node]:
        """Of all pieces."""
        return [node for graph in self.graphs for node in graph.nodes]

    @property
    def titles(self) -> dict[str, str]:
        """What the names of the tissues stand for, where a piece has them."""
        return {node.name: node.title for node in self.nodes}

    def confidence(self, tissue: str) -> float | None:
        """Mean over all pieces, weighted by area; None where there is no region."""
        own = [node for node in self.nodes if node.name == tissue and node.confidence is not None]
        return weighted_mean([(node.confidence or 0.0, node.area_mm2 * (1 - (node.by_person or 0.0))) for node in own])

    def by_person(self, tissue: str) -> float | None:
        """Fraction that a person named or accepted, in all pieces; None where nobody corrected the slide."""
        own = [node for node in self.nodes if node.name == tissue and node.by_person is not None]
        return weighted_mean([(node.by_person or 0.0, node.area_mm2) for node in own])


def unusable(folder: Path, predicate: str, got: object = None) -> DataError:
    """Error about a file of a slide's folder, or of ``corrected/`` in it, with the command that makes it anew."""
    name, slide = folder.name, folder.parent.name
    # A slide may be called corrected, too.
    if name != CORRECTED or (folder / HIDDEN).is_dir():
        return DataError(f"{name}{predicate}", got=got, hint=AGAIN)
    hint = f"make it anew with `ntrm correct OUT --undo {slide}`, then `ntrm correct OUT --redo {slide}`"
    return DataError(f"{slide}/{name}{predicate}", got=got, hint=hint)


def read_summary(folder: Path) -> Summary:
    """Read ``summary.json`` of a slide, which is small, without the graph, which may be large."""
    return _read(folder, SUMMARY, Summary)


def read_slide(folder: Path) -> Slide:
    """Read ``summary.json`` and ``graph.json`` of a slide that ``ntrm segment`` has finished."""
    summary, graph = read_summary(folder), _read(folder, GRAPH, GraphFile)
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
