"""``/v1/slides/{id}/tiles``: a deep-zoom pyramid of the slide, and of every layer of its results."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request, Response

from ntrm.service.api.app_state import AppState
from ntrm.service.api.routes_slides import Shared, SlideKey, problems
from ntrm.service.api.schemas import TileSource
from ntrm.service.core.problems import missing
from ntrm.service.jobs.database import Slide
from ntrm.service.tiles.geometry import TILE, DeepZoom
from ntrm.service.tiles.layer_colours import LayerLook, colours_of, indexed_png, packed

T = TypeVar("T")
router = APIRouter(prefix="/v1/slides/{id}/tiles", tags=["tiles"], responses=problems(404))

Layer = Literal["slide", "tissue", "coarse", "confidence", "improvement", "interface"]
Level = Annotated[int, Path(ge=0, le=30)]
Place = Annotated[str, Path(pattern=r"^[0-9]{1,8}_[0-9]{1,8}\.(jpg|png)$", description="column_row.jpg or .png")]
Palette = Annotated[Literal["dataset", "safe", "viridis", "grey"] | None, Query()]
Numbers = Annotated[str | None, Query(pattern=r"^[0-9]{1,3}(,[0-9]{1,3})*$", description="indices of classes")]
ClassName = Annotated[str | None, Query(max_length=64, description="name of a class")]
CACHED = "private, max-age=86400"


@router.get("", responses=problems(503))
async def tile_source(app_state: Shared, id: SlideKey) -> TileSource:  # noqa: A002
    """Size, levels and layers."""
    slide = await run_sync(app_state.store.get, id)
    return await run_sync(_source, app_state, slide)


def _source(app_state: AppState, slide: Slide) -> TileSource:
    layers: list[str] = []
    mask: tuple[float, float] | None = None
    facts, info = slide.facts, slide.info or {}
    if slide.status == "done":
        with app_state.masks(slide) as found:
            layers = [*found.names]
            mask, zoom = (found.place.sx, found.place.sy), found.place.zoom
        bounds = app_state.bounds(slide)
    elif info:
        bounds = info.get("bounds") or [0, 0, info["width"], info["height"]]
        zoom = DeepZoom(int(bounds[2]), int(bounds[3]))
    else:
        raise missing("the slide's size is not known yet")
    has_image = slide.source is not None and slide.source.is_file()
    mpp = facts.get("mpp") or slide.mpp or info.get("mpp") or (None, None)
    return TileSource(
        width=zoom.width,
        height=zoom.height,
        tile_size=TILE,
        min_level=0,
        max_level=zoom.top,
        levels=zoom.top + 1,
        mpp=mpp[0],
        mpp_y=mpp[1],
        layers=[*(["slide"] if has_image else []), *layers],
        mask_to_image=None if mask is None else list(mask),
        image_to_level0=[int(bounds[0]), int(bounds[1])],
    )


_IMAGES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "a tile",
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("image/jpeg", "image/png")},
    }
}


@router.get("/{layer}/{level}/{place}", response_class=Response, responses={**_IMAGES, **problems(400, 503)})
async def tile(
    request: Request,
    app_state: Shared,
    id: SlideKey,  # noqa: A002
    layer: Layer,
    level: Level,
    place: Place,
    palette: Palette = None,
    hide: Numbers = None,
    only: Numbers = None,
    a: ClassName = None,
    b: ClassName = None,
) -> Response:
    """One tile: JPEG of the slide, indexed PNG of every other layer.

    ``tissue`` and ``coarse``: pixels are class index + 1, 0 is nothing; ``palette`` dataset or safe; ``hide`` and
    ``only`` make classes transparent, the background always is unless ``only`` names it. ``confidence``: pixels are
    certainty times 255; ``palette`` viridis or grey. ``improvement``: 1 corrected, 2 broken; ``palette`` as for
    ``tissue``. ``interface``: 1 at the border of the classes ``a`` and ``b``.
    """
    column, row, kind = re.split(r"[_.]", place)
    if (kind == "jpg") != (layer == "slide"):
        raise missing("no such tile", "the slide comes as .jpg, every other layer as .png")
    if layer == "slide":
        slide, key = await run_sync(_with, app_state, id, app_state.file_key)
        return await _slide_tile(request, app_state, slide, key, level, int(column), int(row))
    look = LayerLook.of(app_state.model, layer, palette, hide, only, a, b)
    slide, revision = await run_sync(_with, app_state, id, app_state.revision)
    return await _mask_tile(request, app_state, slide, revision, level, int(column), int(row), look)


def _with(app_state: AppState, id: str, more: Callable[[Slide], T]) -> tuple[Slide, T]:  # noqa: A002
    slide = app_state.store.get(id)
    return slide, more(slide)


async def _slide_tile(
    request: Request, app_state: AppState, slide: Slide, key: tuple[str, int, int], level: int, column: int, row: int
) -> Response:
    def make() -> bytes:
        with app_state.slide_tiles(slide) as tiles:
            return tiles.jpeg(level, column, row, app_state.settings.limits.tile_seconds)

    tag = _tag(key, level, column, row)
    if _has(request, tag):
        return _unchanged(tag)
    content = await app_state.tiles.get((key, level, column, row), make)
    return Response(content, media_type="image/jpeg", headers={"etag": tag, "cache-control": CACHED})


async def _mask_tile(
    request: Request,
    app_state: AppState,
    slide: Slide,
    revision: int,
    level: int,
    column: int,
    row: int,
    look: LayerLook,
) -> Response:
    tag = _tag(slide.id, revision, look, level, column, row)
    if _has(request, tag):
        return _unchanged(tag)

    def make() -> bytes:
        with app_state.masks(slide) as layers:
            box = layers.place.zoom.tile(level, column, row)
            content = packed(layers.pixels(look.layer, level, box, look.pair))
            return box.width.to_bytes(4, "big") + box.height.to_bytes(4, "big") + content

    # Colours are no part of the key: the pixels are compressed once for all palettes.
    held = await app_state.tiles.get((slide.id, revision, look.layer, look.pair, level, column, row), make)
    width, height = int.from_bytes(held[:4], "big"), int.from_bytes(held[4:8], "big")
    content = indexed_png(width, height, held[8:], *colours_of(look))
    return Response(content, media_type="image/png", headers={"etag": tag, "cache-control": CACHED})


def _tag(*parts: object) -> str:
    return f'"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"'


def _has(request: Request, tag: str) -> bool:
    return tag in (each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(","))


def _unchanged(tag: str) -> Response:
    return Response(status_code=304, headers={"etag": tag, "cache-control": CACHED})
