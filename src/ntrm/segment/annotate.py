"""Slides without any model: a mask in which all tissue is unnamed, for a person to name from nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ntrm.core.arrays import Bytes, new_map
from ntrm.core.errors import RefusedError, UsageError, check_number
from ntrm.core.labels import UNNAMED, LabelSchema
from ntrm.data.tiles import Window
from ntrm.results.classes import folder_classes, write_classes
from ntrm.results.manifest import Manifest, check_out
from ntrm.results.paths import CLASSES
from ntrm.segment.options import Options
from ntrm.segment.overview import ROWS, SlideOverview
from ntrm.slides.grid import SlideGrid
from ntrm.slides.pieces import cells_under

MASK_MPP = 6.7
"""µm/px of masks unless others are asked for: 15 × 20 mm are 7 megapixels, few enough to follow a click."""
FINEST_MPP, COARSEST_MPP = 2.0, 8.0


@dataclass(frozen=True)
class Blank:
    """What stands in place of a model: the tissues to name, and µm/px of the masks; those of the folder where None."""

    classes: LabelSchema | None = None
    mask_mpp: float | None = None

    def __post_init__(self) -> None:
        if self.mask_mpp is not None:
            check_number("µm/px of the masks", self.mask_mpp, FINEST_MPP, COARSEST_MPP)

    def run(self, out: Path, options: Options) -> Manifest:
        """What ``run.json`` says; refuses other classes than those that the folder began with."""
        before, given = check_out(out), self.classes
        mpp, names, colours = self.mask_mpp, None, ""
        if before is not None and before.model is None:
            mpp, names, colours = mpp or before.mpp, before.classes, before.options["colours"]
        if given is not None:
            if names not in (None, given.names):
                raise RefusedError(
                    f"{out} was annotated with other classes",
                    got=", ".join(given.names),
                    expected=", ".join(names or ()),
                    hint="leave --classes out to go on there, and add classes in the page; or choose another --out",
                )
            names, colours = given.names, " ".join(f"#{bytes(tissue.rgb).hex()}" for tissue in given.tissues)
        if names is None:
            raise UsageError("the classes are missing", hint="name the tissues, such as --classes tumour,stroma,gland")
        chosen = {"mpp": mpp or MASK_MPP, "colours": colours, "simplify_um": options.simplify_um, "gzip": options.gzip}
        return Manifest(model=None, options=chosen, classes=names)

    def keep_classes(self, out: Path) -> None:
        """Write the classes where there are none yet: what people added or renamed stays."""
        if self.classes is not None and not (out / CLASSES).exists():
            write_classes(out, self.classes)
        folder_classes(out)  # refused before any slide is looked at


def tissue_alone(overview: SlideOverview, grid: SlideGrid, schema: LabelSchema, place: Path | None) -> Bytes:
    """(H, W) unnamed tissue on background, in a file in the folder ``place``, if one is named."""
    shape, background = (grid.height, grid.width), schema.index(schema.background or "")
    labels = new_map(shape, place, background)
    rows, columns = cells_under(Window(0, 0, *shape), grid.resolution, overview.tissue.shape, overview.resolution)
    for top in range(0, grid.height, ROWS):
        tissue = overview.tissue.take(rows[top : top + ROWS], axis=0).take(columns, axis=1)
        labels[top : top + ROWS][tissue] = schema.index(UNNAMED)
    overview.unmark(labels, grid, schema, Options())
    return labels
