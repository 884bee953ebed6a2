"""``/v1/slides/{id}/tiles``: a deep-zoom pyramid of the slide, and of every layer of its results."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Response

from ntrm.service.api.routes_slides import Requested, Shared, binary
from ntrm.service.api.schemas import TileSource
from ntrm.service.core.problems import missing
from ntrm.service.tiles.layers import LayerLook, indexed_png
from ntrm.service.tiles.slide_tiles import TILE, DeepZoom

router = APIRouter(prefix="/v1/slides/{id}/tiles", tags=["tiles"])

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


@router.get("")
def tile_source(app_state: Shared, slide: Requested) -> TileSource:
    """Size, levels and layers."""
    shown, mask_to_image = app_state.document(slide), None
    left, top, width, height = slide.info.get("bounds") or (0, 0, shown.width, shown.height)
    if slide.status == "done":
        layers = app_state.layers(slide)
        mask_to_image, (left, top, width, height) = [layers.sx, layers.sy], layers.area
    if not width or not height:
        raise missing("the slide's size is not known yet")
    zoom = DeepZoom(width, height)
    return TileSource(
        **{key: getattr(shown, key) for key in ("mpp", "mpp_y", "layers")},
        width=width,
        height=height,
        tile_size=TILE,
        max_level=zoom.top,
        levels=zoom.top + 1,
        mask_to_image=mask_to_image,
        image_to_level0=[left, top],
        revision=app_state.tile_revision(slide),
    )


@router.get(
    "/{layer}/{level}/{place}",
    response_class=Response,
    responses={200: {"content": binary("image/jpeg", "image/png"), "description": "the tile"}},
)
async def tile(
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
    column, row, kind = re.split(r"[_.]", place)
    position, look, corrections = (level, int(column), int(row)), None, None
    if (kind == "jpg") != (layer == "slide"):
        raise missing("no such tile", "the slide comes as .jpg, every other layer as .png")
    if layer != "slide":
        look = LayerLook(app_state.model.schema, layer, palette, hide, only, (a, b))
        if layer == "corrected" or (layer == "interface" and v):
            corrections = await run_sync(app_state.corrections_at, slide, v)
    revision = await run_sync(app_state.tile_revision, slide, corrections)

    def make() -> bytes:
        if look is None:
            with app_state.slide_tiles(slide) as tiles:
                return tiles.jpeg(*position, app_state.settings.limits.tile_seconds)
        layers = app_state.layers(slide)
        pixels = layers.pixels(look.layer, level, layers.zoom.tile(*position), look.pair, corrections)
        return indexed_png(pixels, *look.tables())

    content = await app_state.tiles.get((slide.id, revision, layer, look, *position), make)
    # Without the revision in its address, a tile may be another one at any time.
    headers = {"cache-control": f"private, {'max-age=86400' if r == revision else 'no-store'}"}
    return Response(content, media_type="image/jpeg" if look is None else "image/png", headers=headers)
