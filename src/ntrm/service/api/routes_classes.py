"""``/v1/classes``: the tissues of a folder in which they are named from nothing; added and renamed, never removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from ntrm.core.io import writing
from ntrm.core.labels import rgb_of
from ntrm.results.classes import change_class
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import CORRECTIONS
from ntrm.service.api.routes_corrections import REST_SECONDS
from ntrm.service.api.routes_slides import Shared
from ntrm.service.api.schemas import TissueClass, classes_of

router = APIRouter(prefix="/v1/classes", tags=["classes"])
Name = Annotated[str, Field(min_length=1, max_length=64)]


class ClassRequest(BaseModel):
    """A further tissue, or one with another name or colour."""

    model_config = ConfigDict(extra="forbid")

    name: Name
    colour: str | None = Field(None, pattern=r"^#[0-9a-fA-F]{6}$", description="#rrggbb; a free one, or as it was")
    before: Name | None = Field(None, description="what it is called now; null for a further one")


@router.post("")
def change_classes(app_state: Shared, wanted: ClassRequest) -> list[TissueClass]:
    """Add a class at the end, or rename or recolour one; steps that gave its name follow. Answers with all classes."""
    rgb = None if wanted.colour is None else rgb_of(bytes.fromhex(wanted.colour[1:]))
    with writing("the classes"):
        schema = change_class(app_state.settings.out, wanted.name, rgb, before=wanted.before)
    app_state.audit.note("class")
    for slide in app_state.store.every("done") if wanted.before is not None else ():
        if SlideFolder(app_state.folder(slide)).has(CORRECTIONS):  # its corrected files have the old name
            app_state.store.ask(slide.id, "correct", REST_SECONDS)
    return classes_of(schema)
