"""``/v1/slides/{id}/…``: the files of a finished slide, and what lies at a point of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from ntrm.results.folder import SlideFolder
from ntrm.results.paths import FAMILIARITY_MAP, GRAPH, MASK, OVERLAY, PICTURE, REGIONS, REPORT, SUMMARY
from ntrm.service.api.app_state import AppState
from ntrm.service.api.routes_slides import Requested, Shared, problems
from ntrm.service.api.schemas import PointDocument, RegionDocument
from ntrm.service.core.problems import missing
from ntrm.service.jobs.slide_record import SlideRow
from ntrm.service.tiles.region_finder import thinned
from ntrm.service.tiles.slide_tiles import encode_jpeg

router = APIRouter(prefix="/v1/slides/{id}", tags=["results"], responses=problems(404))

THUMBNAIL_SIDE = 512
OUTLINE_POINTS = 10_000  # Of a region: more than a screen shows, few enough to be drawn while the slide moves
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
Number = Annotated[int, Path(ge=1, le=2**31)]
Version = Annotated[int | None, Query(ge=0, le=2**31, description="of the corrections; 0: the network's own mask")]
Coordinate = Annotated[float, Query(ge=0, le=2**24, allow_inf_nan=False)]


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
DOWNLOADED = ("regions.geojson", "mask")
FileName = Literal["summary", "graph", "regions.geojson", "mask", "report", "overlay.png", "familiarity.jpg"]


def binary(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: a file of one of these kinds."""
    content = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}
    return {200: {"content": content, "description": "the file"}}


CONTENT = binary(*(kind for _, kind in FILES.values()))


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
    saved_as = f"{begin}-{name}" if download or file in DOWNLOADED else None
    return SlideFile(stream, media_type=kind, headers=headers, filename=saved_as)


@router.get("/thumbnail.jpg", response_class=Response, responses={**binary("image/jpeg"), **problems(503)})
async def thumbnail(request: Request, app_state: Shared, slide: Requested) -> Response:
    """A small picture of the slide, or of its overlay where the original is not there."""
    key = ("thumbnail", slide.id, slide.status, slide.finished)
    content = await app_state.tiles.get(key, lambda: _thumbnail(app_state, slide))
    headers = {"etag": f'"{hashlib.sha256(content).hexdigest()[:32]}"', "cache-control": "private, no-cache"}
    if is_known(request, headers["etag"]):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="image/jpeg", headers=headers)


def is_known(request: Request, etag: str) -> bool:
    """Whether the client has the answer already."""
    known = request.headers.get("if-none-match", "").split(",")
    return etag in (tag.strip().removeprefix("W/") for tag in known)


def _thumbnail(app_state: AppState, slide: SlideRow) -> bytes:
    there = SlideFolder(app_state.folder(slide))
    if slide.has_image and not there.has(PICTURE):
        with app_state.slide_tiles(slide) as tiles:
            return encode_jpeg(tiles.overview(THUMBNAIL_SIDE, app_state.settings.limits.tile_seconds))
    try:
        picture = there.picture(PICTURE if there.has(PICTURE) else OVERLAY)[1]
    except OSError:
        raise missing("there is no picture of this slide") from None
    picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    return encode_jpeg(np.asarray(picture.convert("RGB")))


@router.get("/at")
def at(app_state: Shared, slide: Requested, x: Coordinate, y: Coordinate, v: Version = None) -> PointDocument:
    """What lies at a point, in pixels of the full resolution of the scanned area.

    With ``v`` in the corrected mask; its region is known once the corrected files are made.
    """
    names = () if app_state.model is None else app_state.model.schema.names
    results = app_state.results(slide)
    grid = results.layers.grid
    row, column = int(y // grid.sy), int(x // grid.sx)
    network, coarse, confidence = (results.layers.at(name, row, column) for name in ("tissue", "coarse", "confidence"))
    final = app_state.corrected_value(slide, v, row, column, network) if v else network
    tissue, regions = _name(names, final), app_state.corrected_regions(slide, v) if v else results.regions
    there = (column + 0.5) * grid.sx, (row + 0.5) * grid.sy
    region = None if regions is None else regions.find(tissue, *there)
    return PointDocument(
        x=x,
        y=y,
        tissue=tissue,
        tissue_index=final - 1 if final else None,
        network_tissue=_name(names, network),
        confidence=None if confidence is None or not final or final != network else confidence / 255,
        coarse_tissue=_name(names, coarse),
        coarse_index=coarse - 1 if coarse else None,
        piece=region["piece"] or None if region else None,
        region=region["region"] if region else None,
    )


def _name(names: Sequence[str], value: int | None) -> str | None:
    """Of the class with this value in the mask."""
    return names[value - 1] if value and value <= len(names) else None


@router.get("/regions/{number}")
def region(app_state: Shared, slide: Requested, number: Number, v: Version = None) -> RegionDocument:
    """One region: its row of regions.csv, with bounds and outline in pixels of the full resolution.

    With ``v`` of the corrected mask, whose regions have numbers of their own.
    """
    regions = app_state.corrected_regions(slide, v) if v else app_state.results(slide).regions
    row = None if regions is None else regions.row(number)
    outline = (None if regions is None else regions.outline(number)) or []
    # The files may have been made anew while they were read.
    if row is None or (v and app_state.corrected_regions(slide, v) is not regions):
        raise missing("no such region", "ask for the region at a point first")
    shown = thinned(outline, OUTLINE_POINTS)
    return RegionDocument(
        **{key: value for key, value in row.items() if key != "slide_id"},
        outline=[ring.round(2).tolist() for ring in shown] or None,
        outline_exact=bool(outline) and sum(map(len, shown)) == sum(map(len, outline)),
    )


# Last: the addresses above would be names of files.
@router.get("/{file}", response_class=FileResponse, responses=CONTENT)
def results_file(app_state: Shared, slide: Requested, file: FileName, download: bool = False) -> Response:
    """A file of the results: ``regions.geojson`` for QuPath; in ``mask`` class index + 1, 0 is nothing.

    ``familiarity.jpg``, where the slide is like and unlike what the model knows, only where windows were judged.
    """
    hint = "wait until its status is done"
    return slide_file(app_state.folder(slide), file, slide.slide_id, hint=hint, download=download)
