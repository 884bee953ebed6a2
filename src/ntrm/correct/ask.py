"""What a person asks for: a click or a lasso, a drawing, undo and redo; the same for the service and the command.

Points are (x, y) in pixels of the full resolution of the scanned area.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from ntrm.correct.log import INITIALS

MOST_POINTS = 10_000
"""Of a lasso or a drawing, and of an outline in an answer."""
FAR = 2**24

Coordinate = Annotated[float, Field(ge=-FAR, le=FAR, allow_inf_nan=False)]
Point = tuple[Coordinate, Coordinate]
Points = Annotated[list[Point], Field(max_length=MOST_POINTS)]
Tissue = Annotated[str, Field(min_length=1, max_length=64, description="name of a class")]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=0, le=2**31, description="the version that was corrected: `version` of the answer")
    by: str | None = Field(default=None, min_length=1, max_length=INITIALS, description="initials of whoever corrects")
    key: str | None = Field(
        default=None, max_length=64, description="chosen anew for each step: sent twice, it is taken once"
    )


class Name(_Asked):
    """Places, or regions around them, and the tissue that they are."""

    action: Literal["name"] = "name"
    points: Points = []
    lasso: Annotated[list[Point] | None, Field(min_length=3, max_length=MOST_POINTS)] = None
    tissue: Tissue
    whole_regions: bool = False
    spread: bool = True
    reach: float = Field(default=1.0, ge=0.25, le=4.0, allow_inf_nan=False, description="how far the name is carried")
    left_out: Points = Field(default=[], description="in pieces that must not follow")
    revise: Literal["none", "clicked", "all"] | None = Field(
        default=None,
        description="what may change of what followed earlier and was accepted: nothing; the followers of the steps "
        "among whose followers a point lies (default); all (default where there is no model)",
    )


class Draw(_Asked):
    """Something drawn, and the tissue that it is."""

    action: Literal["draw"] = "draw"
    kind: Literal["brush", "area", "divide"]
    points: Annotated[list[Point], Field(min_length=1, max_length=MOST_POINTS)]
    width_um: float = Field(default=0.0, ge=0, le=10_000, allow_inf_nan=False, description="of the brush")
    side: Point | None = Field(default=None, description="on the side of the line that gets the name")
    tissue: Tissue


class Undo(_Asked):
    """Takes the last step that counts back."""

    action: Literal["undo"] = "undo"


class Redo(_Asked):
    """Does the step again that was undone last."""

    action: Literal["redo"] = "redo"


Ask = Annotated[Name | Draw | Undo | Redo, Field(discriminator="action")]
