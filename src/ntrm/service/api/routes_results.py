"""``/v1/slides/{id}/…``: the files of a finished slide, what lies at a point of it, and it and its layers in tiles."""

from __future__ import annotations

import os
import re
from pathlib import Path as FilePath
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from ntrm.results.folder import SlideFolder
from ntrm.results.paths import FAMILIARITY_MAP, GRAPH, MASK, OVERLAY, PICTURE, REGIONS, REPORT, SUMMARY
from ntrm.service.api.routes_slides import Requested, Shared, binary
from ntrm.service.api.schemas import PointDocument, RegionDocument, TileSource
from ntrm.service.core.problems import missing
from ntrm.service.tiles.layers import Look, indexed_png
from ntrm.service.tiles.region_finder import thinned
from ntrm.service.tiles.slide_tiles import TILE, DeepZoom, encode_jpeg

router = APIRouter(prefix="/v1/slides/{id}", tags=["results"])

THUMBNAIL_SIDE = 512
OUTLINE_POINTS = 10_000  # Of a region: more than a screen shows, few enough to be drawn while the slide moves
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
Number = Annotated[int, Path(ge=1, le=2**31)]
Version = Annotated[int | None, Query(ge=0, le=2**31, description="of the corrections; 0: the network's own mask")]
Coordinate = Annotated[float, Query(ge=0, le=2**24, allow_inf_nan=False)]
Layer = Literal["slide", "tissue", "coarse", "confidence", "improvement", "interface", "corrected"]
Level = Annotated[int, Path(ge=0, le=30)]
TileName = Annotated[str, Path(pattern=r"^[0-9]{1,8}_[0-9]{1,8}\.(jpg|png)$", description="column_row.jpg or .png")]

FILES = {
    "summary": (SUMMARY, "application/json"),
    "graph": (GRAPH, "application/json"),
    "regions.geojson": (REGIONS, "application/geo+json"),
    "mask": (MASK, "image/tiff"),
    "report": (REPORT, "text/html"),
    "overlay.png": (OVERLAY, "image/png"),
    "familiarity.jpg": (FAMILIARITY_MAP, "image/jpeg"),
}
"""By the last word of the address: the file and its kind. Only the network's own results have the last."""
FileName = Literal["summary", "graph", "regions.geojson", "mask", "report", "overlay.png", "familiarity.jpg"]


def answered_with(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: a file of one of these kinds."""
    return {200: {"content": binary(*kinds), "description": "the file"}}


CONTENT = answered_with(*(kind for _, kind in FILES.values()))


class SlideFile(FileResponse):
    """A file that is open already: at its path there may be another one, or a link, when it is sent."""

    def __init__(self, stream: BinaryIO, **options: Any) -> None:
        self._stream = stream
        super().__init__(f"/dev/fd/{stream.fileno()}", stat_result=os.fstat(stream.fileno()), **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it and close it."""
        with self._stream:
            await super().__call__(scope, receive, send)


def slide_file(folder: FilePath, file: FileName, begin: str, *, hint: str, download: bool) -> SlideFile:
    """A file of results, perhaps compressed; ``begin`` is what its name begins with on the user's disk."""
    (name, kind), there = FILES[file], SlideFolder(folder)
    headers = {"cache-control": "private, no-cache"}
    if file == "report":
        headers["content-security-policy"] = REPORT_POLICY
    is_plain = there.has(name)
    try:
        stream = there.open(name if is_plain else f"{name}.gz")
    except OSError as error:
        raise missing(f"the slide has no {name}", hint) from error
    if not is_plain:
        headers["content-encoding"] = "gzip"
    # A slide's id has only characters that are safe in a header and in a file system.
    saved_as = f"{begin}-{name}" if download or file in ("regions.geojson", "mask") else None
    return SlideFile(stream, media_type=kind, headers=headers, filename=saved_as)


@router.get("/thumbnail.jpg", response_class=Response, responses=answered_with("image/jpeg"))
async def thumbnail(app_state: Shared, slide: Requested) -> Response:
    """A small picture of the slide, or of its overlay where the original is not there."""
    there = SlideFolder(app_state.folder(slide))

    def make() -> bytes:
        if slide.has_image and not there.has(PICTURE):
            with app_state.slide_tiles(slide) as tiles:
                return encode_jpeg(tiles.overview(THUMBNAIL_SIDE, app_state.settings.limits.tile_seconds))
        try:
            picture = there.picture(PICTURE if there.has(PICTURE) else OVERLAY)[1]
        except OSError:
            raise missing("there is no picture of this slide") from None
        picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
        return encode_jpeg(np.asarray(picture.convert("RGB")))

    content = await app_state.tiles.get(("thumbnail", slide.id, slide.status, slide.finished), make)
    return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=600"})


@router.get("/at")
def at(app_state: Shared, slide: Requested, x: Coordinate, y: Coordinate, v: Version = None) -> PointDocument:
    """What lies at a point, in pixels of the full resolution of the scanned area.

    With ``v`` in the corrected mask; its region is known once the corrected files are made.
    """
    names = app_state.model.schema.names
    layers = app_state.layers(slide)
    row, column = int(y // layers.sy), int(x // layers.sx)
    network, coarse, confidence = (layers.at(name, row, column) for name in ("tissue", "coarse", "confidence"))
    final = layers.at("tissue", row, column, app_state.corrections_at(slide, v)) if v else network
    # 0 is nothing: class index + 1.
    named: dict[int | None, str] = {
        value: names[value - 1] for value in (network, coarse, final) if value and value <= len(names)
    }
    regions, there = app_state.regions(slide, v), ((column + 0.5) * layers.sx, (row + 0.5) * layers.sy)
    region = (None if regions is None else regions.find(named.get(final), *there)) or {}
    return PointDocument(
        x=x,
        y=y,
        tissue=named.get(final),
        tissue_index=final - 1 if final else None,
        network_tissue=named.get(network),
        confidence=None if confidence is None or not final or final != network else confidence / 255,
        coarse_tissue=named.get(coarse),
        coarse_index=coarse - 1 if coarse else None,
        piece=region.get("piece") or None,
        region=region.get("region"),
    )


@router.get("/regions/{number}")
def region(app_state: Shared, slide: Requested, number: Number, v: Version = None) -> RegionDocument:
    """One region: its row of regions.csv, with bounds and outline in pixels of the full resolution.

    With ``v`` of the corrected mask, whose regions have numbers of their own.
    """
    regions = app_state.regions(slide, v)
    row, outline = (None, None) if regions is None else (regions.rows.get(number), regions.outline(number) or [])
    # The files may have been made anew while they were read.
    if row is None or outline is None or app_state.regions(slide, v) is not regions:
        raise missing("no such region", "ask for the region at a point first")
    shown = thinned(outline, OUTLINE_POINTS)
    return RegionDocument(
        **{key: value for key, value in row.items() if key != "slide_id"},
        outline=[ring.round(2).tolist() for ring in shown] or None,
        outline_exact=bool(outline) and sum(map(len, shown)) == sum(map(len, outline)),
    )


@router.get("/tiles")
def tile_source(app_state: Shared, slide: Requested) -> TileSource:
    """Size, levels and layers."""
    shown, area, mask_to_image, names = app_state.document(slide), slide.area, None, list[str]()
    if slide.status == "done":
        layers = app_state.layers(slide)
        area, mask_to_image, names = layers.area, [layers.sx, layers.sy], layers.names
    if area is None:
        raise missing("the slide's size is not known yet")
    left, top, width, height = area
    zoom = DeepZoom(width, height)
    return TileSource(
        mpp=shown.mpp,
        mpp_y=shown.mpp_y,
        layers=[*(["slide"] if slide.has_image else []), *names],
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
    "/tiles/{layer}/{level}/{place}", response_class=Response, responses=answered_with("image/jpeg", "image/png")
)
async def tile(
    app_state: Shared, slide: Requested, layer: Layer, level: Level, place: TileName, look: Annotated[Look, Query()]
) -> Response:
    """One tile: JPEG of the slide, indexed PNG of every other layer.

    ``tissue`` and ``coarse``: pixels are class index + 1, 0 is nothing; ``palette`` dataset or safe; ``hide`` and
    ``only`` make classes transparent, the background always is unless ``only`` names it. ``confidence``: pixels are
    certainty times 255. ``improvement``: 1 corrected, 2 broken; ``palette`` as for
    ``tissue``. ``interface``: 1 at the border of the classes ``a`` and ``b``, with ``v`` in the corrected mask.
    ``corrected``: as ``tissue``, with the corrections up to step ``v``.
    """
    column, row, kind = re.split(r"[_.]", place)
    position, is_slide, corrections = (level, int(column), int(row)), layer == "slide", None
    if (kind == "jpg") != is_slide:
        raise missing("no such tile", "the slide comes as .jpg, every other layer as .png")
    pair, *tables = ([],) if is_slide else look.of(layer, app_state.model.schema)
    if layer == "corrected" or (layer == "interface" and look.v):
        corrections = await run_sync(app_state.corrections_at, slide, look.v)
    revision = await run_sync(app_state.tile_revision, slide, corrections)

    def make() -> bytes:
        if is_slide:
            with app_state.slide_tiles(slide) as tiles:
                return tiles.jpeg(*position, app_state.settings.limits.tile_seconds)
        layers = app_state.layers(slide)
        pixels = layers.pixels(layer, level, layers.zoom.tile(*position), pair, corrections)
        return indexed_png(pixels, *tables)

    shown = look.model_dump_json(exclude={"v", "r"})
    content = await app_state.tiles.get((slide.id, revision, layer, shown, *position), make)
    # Without the revision in its address, a tile may be another one at any time.
    headers = {"cache-control": f"private, {'max-age=86400' if look.r == revision else 'no-store'}"}
    return Response(content, media_type="image/jpeg" if is_slide else "image/png", headers=headers)


# Last: the addresses above would be names of files.
@router.get("/{file}", response_class=FileResponse, responses=CONTENT)
def results_file(app_state: Shared, slide: Requested, file: FileName, download: bool = False) -> Response:
    """A file of the results: ``regions.geojson`` for QuPath; in ``mask`` class index + 1, 0 is nothing.

    ``familiarity.jpg``, where the slide is like and unlike what the model knows, only where windows were judged.
    """
    hint = "wait until its status is done"
    return slide_file(app_state.folder(slide), file, slide.slide_id, hint=hint, download=download)
