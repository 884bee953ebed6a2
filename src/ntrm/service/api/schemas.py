"""The JSON documents of the service, as its OpenAPI description shows them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from ntrm.service.core.model_info import ModelFacts
from ntrm.service.jobs.slide_record import SlideRow


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
    """A class of the model."""

    index: int
    name: str
    title: str
    colour: str = Field(description="#rrggbb, the dataset's own")
    safe_colour: str = Field(description="#rrggbb, told apart by colour-blind readers")
    background: bool


class Limits(BaseModel, from_attributes=True):
    """What may be sent."""

    upload_bytes: int
    pixels: int
    queue: int
    uploads: int


class Model(BaseModel, from_attributes=True):
    """The network that segments."""

    name: str
    version: str
    sha256: str | None
    mpp: float | None


class About(BaseModel):
    """The service."""

    program: str
    version: str
    model: Model | None = Field(description="null while it is being fetched")
    notice: str
    classes: list[TissueClass]
    limits: Limits
    server_paths: bool = Field(description="whether slides may be named by path")
    worker: Literal["off", "starting", "ready", "refused"]
    worker_error: ErrorBody | None
    queue: dict[str, int] = Field(description="how many slides are in each state")


Reason = Literal["ok", "no_worker", "disk_low", "disk_full", "disk_missing", "housekeeping"]


class Health(BaseModel):
    """Whether the service answers."""

    status: Literal["ok", "degraded"]
    reason: Reason = Field(
        description="disk_low: no uploads are taken; disk_full: nothing can be written, but slides can be deleted; "
        "housekeeping: work beside the requests fails, the log says which and why"
    )
    version: str


class Cancer(BaseModel):
    """Whether a cancer was found."""

    name: str
    present: bool | None = Field(description="null where the slide is unlike what the model knows: not assessed")
    confidence: float | None


class Familiarity(BaseModel):
    """Whether a slide is like the sections that the model was trained on."""

    verdict: Literal["familiar", "unfamiliar", "too small to judge", "no reference"]
    p_value: float | None = Field(description="share of held-out training sections that look as unlike; about likeness")
    aspects: dict[str, float] = Field(description="p-values of colours, texture and anatomy; empty if not judged")
    reasons: list[str] = Field(description="why it is unfamiliar, the strongest first, or why it was not judged")
    unfamiliar_pieces: list[int] = Field(description="numbers of pieces that are unlike what the model knows")
    has_map: bool = Field(description="whether familiarity.jpg shows where")


class TissueShare(BaseModel):
    """How much of a tissue there is."""

    index: int
    name: str
    area_mm2: float
    share: float | None = Field(description="of all tissue; null where there is none")


class SlideDocument(BaseModel):
    """A slide: its job, and the short version of its results."""

    id: str
    slide_id: str
    name: str
    status: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: float
    stage: str
    error: ErrorBody | None
    created: str
    started: str | None
    finished: str | None
    queue_position: int | None = Field(description="1 is next")
    has_image: bool = Field(description="whether the original can be looked at")
    width: int | None
    height: int | None
    mpp: float | None
    mpp_y: float | None
    cancers: list[Cancer] = []
    cancers_looked_for: list[str] | None = Field(
        None, description="empty: the model has no class of a cancer; null before the slide is done"
    )
    tissue: list[TissueShare] = []
    familiarity: Familiarity | None = Field(None, description="null before the slide is done")
    warnings: list[str] = Field([], description="all: of an unfamiliar slide or piece first, then of its quality")
    quality_warnings: list[str] = []
    tissue_area_mm2: float | None = None
    pieces: int | None = None
    layers: list[str]
    corrections: int | None = Field(
        description="steps of people's corrections that count; null where they cannot be read"
    )


class SlideList(BaseModel):
    """The newest first."""

    slides: list[SlideDocument]


class RetryRequest(BaseModel, extra="forbid"):
    """What to do otherwise."""

    mpp: float | None = Field(None, ge=0.05, le=100, allow_inf_nan=False)


class PathRequest(RetryRequest):
    """A slide on the server."""

    path: str = Field(min_length=1, max_length=4096, description="absolute or below an allowed root")
    slide_id: str | None = Field(None, min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$")


class TileSource(BaseModel):
    """Deep-zoom pyramid; coordinates are pixels of the full resolution of the scanned area, as in regions.geojson."""

    width: int
    height: int
    tile_size: int
    min_level: int
    max_level: int
    levels: int
    mpp: float | None
    mpp_y: float | None
    layers: list[str]
    mask_to_image: list[float] | None = Field(
        description="pixels of the image per pixel of the mask: x, y", min_length=2, max_length=2
    )
    image_to_level0: list[int] = Field(
        description="added to x and y gives pixels of the file's level 0", min_length=2, max_length=2
    )
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
    """One connected region, as in regions.csv."""

    region: int
    tissue: str
    piece: int
    area_mm2: float
    perimeter_mm: float
    mean_confidence: float | None
    left_px: float
    top_px: float
    width_px: float
    height_px: float
    outline: list[list[list[float]]] | None = Field(
        description="rings of [x, y] in pixels of the full resolution, holes too; null where the polygon cannot be read"
    )
    outline_exact: bool = Field(description="false where points were left out to keep the answer small")


class Link(BaseModel):
    """Lets one browser in, once."""

    path: str
    expires: str


def classes_of(model: ModelFacts) -> list[TissueClass]:
    """The classes of a model with their colours."""
    return [
        TissueClass(
            index=tissue.index,
            name=tissue.name,
            title=tissue.title,
            colour="#" + bytes(tissue.rgb).hex(),
            safe_colour="#" + bytes(safe).hex(),
            background=tissue.name == model.schema.background,
        )
        for tissue, safe in zip(model.schema.tissues, model.safe_colours, strict=True)
    ]


def known_mpp(slide: SlideRow, facts: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """µm/px along x and y: of the results, as stated, or of the file; None where unknown."""
    x, y = facts.get("mpp") or slide.mpp or slide.info.get("mpp") or (None, None)
    return x, y


def slide_document(
    slide: SlideRow, facts: Mapping[str, Any], waiting: list[str], corrections: int | None
) -> SlideDocument:
    """A slide as others see it; ``facts`` are of its results, ``waiting`` the ids of the queue in order."""
    _, _, width, height = slide.info.get("bounds") or (0, 0, slide.info.get("width"), slide.info.get("height"))
    mpp_x, mpp_y = known_mpp(slide, facts)
    plain = ("id", "slide_id", "name", "status", "stage", "has_image", "error")
    shown = {"width": width, "height": height, **facts, **{key: getattr(slide, key) for key in plain}}
    shown |= {key: iso(getattr(slide, key)) for key in ("created", "started", "finished")}
    shown |= {"progress": round(slide.progress, 4), "mpp": mpp_x, "mpp_y": mpp_y, "corrections": corrections}
    shown["queue_position"] = waiting.index(slide.id) + 1 if slide.status == "queued" and slide.id in waiting else None
    shown["layers"] = [*(["slide"] if slide.has_image else []), *facts.get("layers", [])]
    return SlideDocument.model_validate(shown)


def iso(seconds: float | None) -> str | None:
    """A time as text.

    >>> iso(0)
    '1970-01-01T00:00:00Z'
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
