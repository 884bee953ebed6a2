"""``/healthz`` and ``/v1/about``: the service itself."""

from __future__ import annotations

import time

from fastapi import APIRouter

from ntrm.core.labels import RGB
from ntrm.service.api.access import LINK_SECONDS
from ntrm.service.api.routes_slides import Shared
from ntrm.service.api.schemas import About, ErrorBody, Health, Limits, Link, Model, TissueClass, iso
from ntrm.service.core.model_info import BUNDLED, BUNDLED_NOTICE, NOTICE, ModelFacts
from ntrm.version import __version__

router = APIRouter(tags=["service"])


@router.get("/healthz")
def health(app_state: Shared) -> Health:
    """Whether the service answers, has a worker and room on its disk; needs no token."""
    reason = "no_worker" if app_state.supervisor.state == "refused" else app_state.disk
    return Health(status="ok" if reason == "ok" else "degraded", reason=reason, version=__version__)


@router.get("/v1/about")
def about(app_state: Shared) -> About:
    """Version, model, classes with their colours, limits."""
    settings, limits, model = app_state.settings, app_state.settings.limits, app_state.model
    refusal = app_state.supervisor.refusal
    return About(
        program="ntrm",
        version=__version__,
        model=None
        if model is None
        else Model(name=model.name, version=model.version, sha256=model.sha256, mpp=model.mpp),
        notice=f"{NOTICE} {BUNDLED_NOTICE}" if settings.model == BUNDLED else NOTICE,
        classes=[] if model is None else _classes(model),
        limits=Limits(
            upload_bytes=limits.upload_bytes, pixels=limits.pixels, queue=limits.queue, uploads=limits.uploads
        ),
        server_paths=bool(settings.roots),
        worker=app_state.supervisor.state,  # type: ignore[arg-type]
        worker_error=None if refusal is None else ErrorBody(**refusal),
        queue=app_state.store.counts(),
    )


@router.post("/v1/links", status_code=201)
def link(app_state: Shared) -> Link:
    """A link that lets one browser in, once and soon."""
    app_state.audit.note("link")
    return Link(path=f"/open/{app_state.access.new_code()}", expires=iso(time.time() + LINK_SECONDS) or "")


def _classes(model: ModelFacts) -> list[TissueClass]:
    every = zip(model.schema.tissues, model.colours, model.safe_colours, strict=True)
    return [
        TissueClass(
            index=tissue.index,
            name=tissue.name,
            title=tissue.title,
            colour=_hex(colour),
            safe_colour=_hex(safe),
            background=tissue.name == model.schema.background,
        )
        for tissue, colour, safe in every
    ]


def _hex(colour: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
