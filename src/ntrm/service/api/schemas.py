"""The JSON documents of the service, as its OpenAPI description shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from ntrm.core.labels import LabelSchema
from ntrm.results.familiarity import Familiarity
from ntrm.service.jobs.rows import SlideRow, Status
from ntrm.service.tiles.layers import colours_of


class ErrorBody(BaseModel):
    """What went wrong, and how to fix it."""

    what: str
    got: str | None = None
    expected: str | None = None
    hint: str | None = None
    code: str = Field(description="a fixed word for programs")
    slide: str | None = Field(None, description="id of a slide that is kept nevertheless, such as one without µm/px")


class ErrorDocument(BaseModel):
    """Every refusal."""

    error: ErrorBody


class TissueClass(BaseModel):
    """A class of the model, or a tissue that a person names."""

    index: int
    name: str
    title: str
    colour: str = Field(description="#rrggbb, the dataset's own")
    safe_colour: str = Field(description="#rrggbb, told apart by colour-blind readers")
    background: bool
    unnamed: bool = Field(description="tissue that nobody has named yet: no name to give")


class About(BaseModel):
    """The service."""

    program: str = "ntrm"
    version: str
    model: dict[Literal["name", "version", "sha256", "mpp"], str | float | None]
    notice: str
    classes: list[TissueClass]
    classes_open: bool = Field(description="whether classes may be added and renamed: tissues are named from nothing")
    limits: dict[str, int]
    server_paths: bool = Field(description="whether slides may be named by path")
    worker: Literal["off", "starting", "ready", "refused"]
    worker_error: ErrorBody | None
    queue: dict[str, int] = Field(description="how many slides are in each state")


Reason = Literal["ok", "no_worker", "disk_low", "disk_full", "disk_missing", "housekeeping"]


class Health(BaseModel):
    """Whether the service answers.

    ``disk_low``: no uploads are taken; ``disk_full``: nothing can be written, but slides can be deleted;
    ``housekeeping``: work beside the requests fails, the log says which and why.
    """

    status: Literal["ok", "degraded"]
    reason: Reason
    version: str


class Cancer(BaseModel):
    """Whether a cancer was found."""

    name: str
    present: bool | None = Field(description="null where the slide is unlike what the model knows: not assessed")
    confidence: float | None


@dataclass(frozen=True)
class ShownFamiliarity(Familiarity):
    """Whether a slide is like the sections that the model was trained on."""

    unfamiliar_pieces: list[int]  # Their numbers
    has_map: bool  # Whether familiarity.jpg shows where


class TissueShare(BaseModel):
    """How much of a tissue there is."""

    index: int
    name: str
    area_mm2: float
    share: float | None = Field(description="of all tissue; null where there is none")


class Results(BaseModel):
    """The short version of a slide's results; nothing of it is known before the slide is done."""

    width: int | None = None
    height: int | None = None
    mpp: float | None = None
    mpp_y: float | None = None
    cancers: list[Cancer] = []
    cancers_looked_for: list[str] | None = Field(default=None, description="empty: the model has no class of a cancer")
    tissue: list[TissueShare] = []
    familiarity: ShownFamiliarity | None = None
    warnings: list[str] = Field(
        default=[], description="all: of an unfamiliar slide or piece first, then of its quality"
    )
    quality_warnings: list[str] = []
    tissue_area_mm2: float | None = None
    pieces: int | None = None
    layers: list[str] = []


class SlideDocument(Results):
    """A slide: its job, and the short version of its results."""

    id: str
    slide_id: str
    name: str
    status: Status
    progress: float
    stage: str
    error: ErrorBody | None
    created: str
    started: str | None
    finished: str | None
    queue_position: int | None = Field(description="1 is next")
    has_image: bool = Field(description="whether the original can be looked at")
    corrections: int | None = Field(description="steps of people that count; null where they cannot be read")


class SlideList(BaseModel):
    """The newest first."""

    slides: list[SlideDocument]


class RetryRequest(BaseModel, extra="forbid"):
    """What to do otherwise."""

    mpp: float | None = Field(None, ge=0.05, le=100, allow_inf_nan=False, description="µm/px, where the file lacks it")


class SlideRequest(RetryRequest):
    """A new slide."""

    slide_id: str | None = Field(None, min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")


class PathRequest(SlideRequest):
    """A slide on the server."""

    path: str = Field(min_length=1, max_length=4096, description="absolute or below an allowed root")


class UploadRequest(SlideRequest, extra="ignore"):
    """A slide that is sent."""

    name: str = Field("slide", max_length=255, description="of the file, for its slide_id")


Pair = Annotated[list[float], Field(min_length=2, max_length=2)]


class TileSource(BaseModel):
    """Deep-zoom pyramid; coordinates are pixels of the full resolution of the scanned area, as in regions.geojson."""

    width: int
    height: int
    tile_size: int
    min_level: int = 0
    max_level: int
    levels: int
    mpp: float | None
    mpp_y: float | None
    layers: list[str]
    mask_to_image: Pair | None = Field(description="pixels of the image per pixel of the mask: x, y")
    image_to_level0: Pair = Field(description="added to x and y gives pixels of the file's level 0")
    revision: str = Field(description="for the addresses of tiles: another one whenever original or results are")


class PointDocument(BaseModel):
    """What lies at a point."""

    x: float
    y: float
    tissue: str | None
    tissue_index: int | None
    network_tissue: str | None = Field(description="what the network said, also where a person named it otherwise")
    confidence: float | None = Field(description="of the network; null where a person named it otherwise")
    coarse_tissue: str | None
    coarse_index: int | None
    piece: int | None
    region: int | None


class RegionDocument(BaseModel, extra="allow"):
    """One connected region: its row of regions.csv, and its outline."""

    outline: list[list[list[float]]] | None = Field(
        description="rings of [x, y] in pixels of the full resolution, holes too; null where the polygon cannot be read"
    )
    outline_exact: bool = Field(description="false where points were left out to keep the answer small")


def classes_of(schema: LabelSchema) -> list[TissueClass]:
    """The classes of a model with their colours."""
    classes = []
    for tissue, safe in zip(schema.tissues, colours_of(schema, safe=True), strict=True):
        colours = {"colour": "#" + bytes(tissue.rgb).hex(), "safe_colour": "#" + bytes(safe).hex()}
        roles = {"background": tissue.name == schema.background, "unnamed": tissue.name == schema.unnamed}
        classes.append(TissueClass.model_validate({**vars(tissue), **colours, **roles}))
    return classes


def slide_document(
    slide: SlideRow, results: Results, waiting: Sequence[str] = (), corrections: int | None = None
) -> SlideDocument:
    """A slide as others see it; ``waiting`` are the ids of the queue in order."""
    _, _, width, height = slide.area or (None, None, None, None)
    mpp, mpp_y = slide.mpp or slide.file_mpp or (None, None)
    shown: dict[str, Any] = {"width": width, "height": height, "mpp": mpp, "mpp_y": mpp_y}
    shown |= {key: value for key, value in results if value is not None}
    shown |= {key: getattr(slide, key) for key in ("id", "slide_id", "name", "status", "stage", "has_image", "error")}
    shown |= {key: iso(getattr(slide, key)) for key in ("created", "started", "finished")}
    shown["queue_position"] = waiting.index(slide.id) + 1 if slide.id in waiting else None
    shown["layers"] = [*(["slide"] if slide.has_image else []), *results.layers]
    return SlideDocument(**shown, progress=round(slide.progress, 4), corrections=corrections)


def iso(seconds: float | None) -> str | None:
    """A time as text: 1970-01-01T00:00:00Z is 0."""
    return None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
