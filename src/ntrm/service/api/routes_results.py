"""``/v1/slides/{id}/…``: the files of a finished slide, and what lies at a point of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import FileResponse

from ntrm.core.errors import DataError
from ntrm.core.io import whole_file
from ntrm.results.paths import GRAPH, MASK, OVERLAY, PICTURE, REGIONS, REPORT, SUMMARY
from ntrm.service.api.app_state import AppState
from ntrm.service.api.routes_slides import Shared, SlideKey, problems
from ntrm.service.api.schemas import PointDocument, RegionDocument
from ntrm.service.core.problems import missing
from ntrm.service.core.shared_paths import THUMBNAILS
from ntrm.service.jobs.database import Slide
from ntrm.service.tiles.region_finder import thinned
from ntrm.service.tiles.slide_tiles import encode_jpeg

router = APIRouter(prefix="/v1/slides/{id}", tags=["results"], responses=problems(404))

THUMBNAIL_SIDE = 512
OUTLINE_POINTS = 10_000
"""Of a region: more than a screen shows, and few enough to be drawn while the slide moves."""
REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
Number = Annotated[int, Path(ge=1, le=2**31)]
Coordinate = Annotated[float, Query(ge=0, le=2**24, allow_inf_nan=False)]


def _binary(kind: str) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: a file of this kind."""
    schema = {"type": "object"} if kind.endswith("json") else {"type": "string", "format": "binary"}
    return {200: {"content": {kind: {"schema": schema}}, "description": "the file"}}


def _file(app_state: AppState, id: str, names: tuple[str, ...], kind: str, *, download: bool = False) -> FileResponse:  # noqa: A002
    slide = app_state.store.get(id)
    path = next((each for name in names if (each := app_state.folder(slide) / name).is_file()), None)
    if path is None:
        raise missing(f"the slide has no {names[0]}", "wait until its status is done")
    headers = {"cache-control": "private, no-cache"}
    if path.suffix == ".gz":
        headers["content-encoding"] = "gzip"
    # Safe by itself: the id of a slide has no characters that a header or a file system minds.
    saved = f"{slide.slide_id}-{names[0]}" if download else None
    return FileResponse(path, media_type=kind, headers=headers, filename=saved)


@router.get("/summary", response_class=FileResponse, responses=_binary("application/json"))
def summary(app_state: Shared, id: SlideKey) -> FileResponse:  # noqa: A002
    """Everything that was measured, with model, options and µm/px."""
    return _file(app_state, id, (SUMMARY,), "application/json")


@router.get("/graph", response_class=FileResponse, responses=_binary("application/json"))
def graph(app_state: Shared, id: SlideKey) -> FileResponse:  # noqa: A002
    """The tissue graph, in node-link form."""
    return _file(app_state, id, (GRAPH,), "application/json")


@router.get("/regions.geojson", response_class=FileResponse, responses=_binary("application/geo+json"))
def regions(app_state: Shared, id: SlideKey) -> FileResponse:  # noqa: A002
    """Polygons as QuPath reads them."""
    return _file(app_state, id, (REGIONS, f"{REGIONS}.gz"), "application/geo+json", download=True)


@router.get("/mask", response_class=FileResponse, responses=_binary("image/tiff"))
def mask(app_state: Shared, id: SlideKey) -> FileResponse:  # noqa: A002
    """The mask as OME-TIFF: class index + 1, 0 is nothing."""
    return _file(app_state, id, (MASK,), "image/tiff", download=True)


@router.get("/report", response_class=FileResponse, responses=_binary("text/html"))
def report(app_state: Shared, id: SlideKey, download: bool = False) -> FileResponse:  # noqa: A002
    """The report, one self-contained page."""
    answer = _file(app_state, id, (REPORT,), "text/html", download=download)
    answer.headers["content-security-policy"] = REPORT_POLICY
    return answer


@router.get("/overlay.png", response_class=FileResponse, responses=_binary("image/png"))
def overlay(app_state: Shared, id: SlideKey) -> FileResponse:  # noqa: A002
    """The mask over the slide."""
    return _file(app_state, id, (OVERLAY,), "image/png")


@router.get("/thumbnail.jpg", response_class=Response, responses={**_binary("image/jpeg"), **problems(503)})
async def thumbnail(request: Request, app_state: Shared, id: SlideKey) -> Response:  # noqa: A002
    """A small picture of the slide, or of its overlay where the original is not there."""
    slide = await run_sync(app_state.store.get, id)
    content = await app_state.tiles.get(("thumbnail", slide.id, slide.status), lambda: _thumbnail(app_state, slide))
    return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


def _thumbnail(app_state: AppState, slide: Slide) -> bytes:
    """Kept on disk once made: a list of a thousand slides must not open a thousand files."""
    kept = app_state.settings.hidden / THUMBNAILS / f"{slide.id}.jpg"
    if kept.is_file():
        return kept.read_bytes()
    folder = app_state.folder(slide)
    pictures = [path for path in (folder / PICTURE, folder / OVERLAY) if path.is_file()]
    has_image = slide.source is not None and slide.source.is_file()
    if has_image and PICTURE not in (path.name for path in pictures):
        with app_state.slide_tiles(slide) as tiles:
            content = encode_jpeg(tiles.overview(THUMBNAIL_SIDE, app_state.settings.limits.tile_seconds))
    elif pictures:
        content = _small(pictures[0])
    else:
        raise missing("there is no picture of this slide")
    # A full disk keeps nothing, and the picture is there for all that.
    with suppress(DataError), whole_file(kept) as partial:
        partial.write_bytes(content)
    return content


def _small(path: FilePath) -> bytes:
    from PIL import Image

    try:
        with Image.open(path) as picture:
            picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
            return encode_jpeg(np.asarray(picture.convert("RGB")))
    except OSError:
        raise missing("there is no picture of this slide") from None


@router.get("/at")
def at(app_state: Shared, id: SlideKey, x: Coordinate, y: Coordinate) -> PointDocument:  # noqa: A002
    """What lies at a point, in pixels of the full resolution of the scanned part."""
    slide = app_state.store.get(id)
    with app_state.masks(slide) as layers:
        row, column = layers.place.mask_pixel(x, y)
        found = {name: layers.at(name, row, column) for name in ("tissue", "coarse", "confidence")}
        place = layers.place
    names = _names(app_state)
    tissue, first, certain = (found[name] for name in ("tissue", "coarse", "confidence"))
    region = app_state.finder(slide).find(names.get(tissue or 0), (column + 0.5) * place.sx, (row + 0.5) * place.sy)
    return PointDocument(
        x=x,
        y=y,
        tissue=names.get(tissue or 0),
        tissue_index=tissue - 1 if tissue else None,
        confidence=None if certain is None or not tissue else certain / 255,
        coarse_tissue=names.get(first or 0),
        coarse_index=first - 1 if first else None,
        piece=region["piece"] or None if region else None,
        region=region["region"] if region else None,
    )


@router.get("/regions/{number}")
def region(app_state: Shared, id: SlideKey, number: Number) -> RegionDocument:  # noqa: A002
    """One region: its row of regions.csv, with bounds and outline in pixels of the full resolution."""
    finder = app_state.finder(app_state.store.get(id))
    found = finder.row(number)
    if found is None:
        raise missing("no such region", "ask for the region at a point first")
    whole = finder.outline(number) or []
    shown = thinned(whole, OUTLINE_POINTS)
    return RegionDocument(
        **{key: value for key, value in found.items() if key != "slide_id"},
        outline=[ring.round(2).tolist() for ring in shown] or None,
        outline_exact=bool(whole) and sum(map(len, shown)) == sum(map(len, whole)),
    )


def _names(app_state: AppState) -> dict[int, str]:
    """Names by mask value."""
    model = app_state.model
    return {} if model is None else {index + 1: name for index, name in enumerate(model.schema.names)}
