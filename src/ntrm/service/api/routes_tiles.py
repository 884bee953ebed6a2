"""``/v1/slides/{id}/tiles``: a deep-zoom pyramid of the slide, and of every layer of its results."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request, Response

from ntrm.service.api.routes_results import binary, is_known
from ntrm.service.api.routes_slides import Requested, Shared, problems
from ntrm.service.api.schemas import TileSource, known_mpp
from ntrm.service.core.problems import missing
from ntrm.service.tiles.geometry import TILE, DeepZoom
from ntrm.service.tiles.layer_colours import LayerLook, indexed_png

router = APIRouter(prefix="/v1/slides/{id}/tiles", tags=["tiles"], responses=problems(404))

Layer = Literal["slide", "tissue", "coarse", "confidence", "improvement", "interface", "corrected"]
Level = Annotated[int, Path(ge=0, le=30)]
TileName = Annotated[str, Path(pattern=r"^[0-9]{1,8}_[0-9]{1,8}\.(jpg|png)$", description="column_row.jpg or .png")]
Palette = Annotated[Literal["dataset", "safe", "viridis", "grey"] | None, Query()]
Numbers = Annotated[str | None, Query(pattern=r"^[0-9]{1,3}(,[0-9]{1,3})*$", description="indices of classes")]
Version = Annotated[int | None, Query(ge=0, le=2**31, description="of the corrections; the newest where none is said")]
Revision = Annotated[
    str | None,
    Query(max_length=64, description="as the source or the corrections name it: tiles that are still of it are cached"),
]
ClassName = Annotated[str | None, Query(max_length=64, description="name of a class")]


@router.get("", responses=problems(503))
def tile_source(app_state: Shared, slide: Requested) -> TileSource:
    """Size, levels and layers."""
    layers, mask_to_image = ["slide"] if slide.has_image else [], None
    if slide.status == "done":
        results = app_state.results(slide)
        grid, (left, top, width, height) = results.layers.grid, results.bounds
        layers, mask_to_image = layers + results.layers.names, [grid.sx, grid.sy]
    elif slide.info:
        area = slide.info.get("bounds") or (0, 0, slide.info["width"], slide.info["height"])
        left, top, width, height = map(int, area)
    else:
        raise missing("the slide's size is not known yet")
    zoom, (mpp_x, mpp_y) = DeepZoom(width, height), known_mpp(slide, app_state.catalogue.facts(slide))
    return TileSource(
        width=width,
        height=height,
        tile_size=TILE,
        min_level=0,
        max_level=zoom.top,
        levels=zoom.top + 1,
        mpp=mpp_x,
        mpp_y=mpp_y,
        layers=layers,
        mask_to_image=mask_to_image,
        image_to_level0=[left, top],
        revision=app_state.tile_revision(slide),
    )


_RESPONSES = {**binary("image/jpeg", "image/png"), **problems(400, 503)}


@router.get("/{layer}/{level}/{place}", response_class=Response, responses=_RESPONSES)
async def tile(
    request: Request,
    app_state: Shared,
    slide: Requested,
    layer: Layer,
    level: Level,
    place: TileName,
    palette: Palette = None,
    hide: Numbers = None,
    only: Numbers = None,
    a: ClassName = None,
    b: ClassName = None,
    v: Version = None,
    r: Revision = None,
) -> Response:
    """One tile: JPEG of the slide, indexed PNG of every other layer.

    ``tissue`` and ``coarse``: pixels are class index + 1, 0 is nothing; ``palette`` dataset or safe; ``hide`` and
    ``only`` make classes transparent, the background always is unless ``only`` names it. ``confidence``: pixels are
    certainty times 255; ``palette`` viridis or grey. ``improvement``: 1 corrected, 2 broken; ``palette`` as for
    ``tissue``. ``interface``: 1 at the border of the classes ``a`` and ``b``, with ``v`` in the corrected mask.
    ``corrected``: as ``tissue``, with the corrections up to step ``v``.
    """
    corrections = None
    column, row, kind = re.split(r"[_.]", place)
    position = level, int(column), int(row)
    if (kind == "jpg") != (layer == "slide"):
        raise missing("no such tile", "the slide comes as .jpg, every other layer as .png")
    if layer == "slide":
        look, (_, file) = None, await run_sync(app_state.original, slide)
        key: tuple[object, ...] = (file, *position)
    else:
        look = LayerLook.of(app_state.model, layer, palette, hide, only, (a, b))
        key = (slide.id, await run_sync(app_state.revision, slide), look, *position)
        if layer == "corrected" or (layer == "interface" and v):
            version, corrections = await run_sync(app_state.corrections_at, slide, v)
            # Two logs may have a step of this number, if somebody moved one of them away.
            key = (*key, version, *(step.when for step in corrections.steps))
    tag = hashlib.sha256(repr(key).encode()).hexdigest()[:32]
    # Without the revision in its address, a tile may be another one at any time.
    lasts = r is not None and r == await run_sync(app_state.tile_revision, slide, corrections)
    headers = {"etag": f'"{tag}"', "cache-control": f"private, {'max-age=86400' if lasts else 'no-cache'}"}
    if is_known(request, headers["etag"]):
        return Response(status_code=304, headers=headers)

    def make() -> bytes:
        if look is None:
            with app_state.slide_tiles(slide) as tiles:
                return tiles.jpeg(*position, app_state.settings.limits.tile_seconds)
        layers = app_state.results(slide).layers
        pixels = layers.pixels(look.layer, level, layers.grid.zoom.tile(*position), look.pair, corrections)
        return indexed_png(pixels, *look.tables())

    content = await app_state.tiles.get(key, make)
    return Response(content, media_type="image/jpeg" if look is None else "image/png", headers=headers)
