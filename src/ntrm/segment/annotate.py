"""Slides without any model: a mask in which all tissue is unnamed, for a person to name from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ntrm.core.arrays import Bytes, new_map
from ntrm.core.errors import RefusedError, UsageError, check_number
from ntrm.core.io import holding
from ntrm.core.labels import UNNAMED, LabelSchema
from ntrm.core.progress import Progress
from ntrm.data.tiles import Window
from ntrm.results.classes import folder_classes, write_classes
from ntrm.results.manifest import Manifest, check_out
from ntrm.results.paths import CLASSES, HIDDEN, RUN_LOCK
from ntrm.results.slide_state import Plan
from ntrm.segment.file_transfer import FileTransfer
from ntrm.segment.options import Options
from ntrm.segment.overview import ROWS, SlideOverview, inspect_slide
from ntrm.segment.predict import IN_MEMORY, Maps
from ntrm.segment.segmenter import SlideMaker
from ntrm.segment.slide import OpenSlide, PredictedSlide, SlideTask
from ntrm.segment.slide_files import SlideFiles
from ntrm.slides.grid import SlideGrid, check_cost
from ntrm.slides.isolated import open_isolated
from ntrm.slides.pieces import cells_under
from ntrm.slides.readers.reader import SlideReader

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
        before = check_out(out)
        mpp, classes, colours = self.mask_mpp, None, ""
        if before is not None and before.model is None:
            mpp, classes, colours = mpp or before.mpp, before.classes, before.options.get("colours", "")
        if self.classes is not None:
            if classes not in (None, self.classes.names):
                raise RefusedError(
                    f"{out} was annotated with other classes",
                    got=", ".join(self.classes.names),
                    expected=", ".join(classes or ()),
                    hint="leave --classes out to go on there, and add classes in the page; or choose another --out",
                )
            classes = self.classes.names
            colours = " ".join(f"#{bytes(tissue.rgb).hex()}" for tissue in self.classes.tissues)
        if classes is None:
            raise UsageError("the classes are missing", hint="name the tissues, such as --classes tumour,stroma,gland")
        chosen = {"mpp": mpp or MASK_MPP, "colours": colours}
        lasting = {key: options.lasting[key] for key in ("simplify_um", "gzip")}
        return Manifest(model=None, options={**chosen, **lasting}, classes=classes)


class BlankMaker(SlideMaker):
    """Finds the tissue of slides, and calls all of it unnamed."""

    def __init__(
        self,
        blank: Blank,
        out: Path,
        options: Options | None = None,
        *,
        open_slide: OpenSlide = open_isolated,
        transfer: FileTransfer | None = None,
    ) -> None:
        options = options or Options()
        super().__init__(blank.run(out, options), out, options, open_slide, transfer)
        self._begun_with = blank.classes

    def check_folder(self, covariates: Sequence[str] = ()) -> None:
        """Make ``out`` a folder to be annotated; classes that people added or renamed there stay."""
        super().check_folder(covariates)
        with holding(self.out / RUN_LOCK, wait=True):
            if self._begun_with is not None and not (self.out / CLASSES).exists():
                write_classes(self.out, self._begun_with)
        folder_classes(self.out)  # refused before any slide is looked at

    def look(
        self, reader: SlideReader, task: SlideTask, plan: Plan, progress: Progress, held: ExitStack
    ) -> PredictedSlide:
        """Where the tissue is."""
        slide, folder, schema = task.slide, self.out / task.slide_id, folder_classes(self.out)
        grid = SlideGrid.no_finer(reader, self.run.mpp, slide.mpp)
        check_cost(reader.info, grid.source, grid.model_mpp, slide.path.stat().st_size)
        overview = inspect_slide(grid, self.options)
        labels = _tissue_alone(overview, grid, schema, folder)
        files = SlideFiles(folder, task.slide_id, grid.record(), schema, self.run)
        maps = Maps(labels, confidence=None)
        return PredictedSlide(task, plan, files, overview, grid, maps, held.pop_all(), None, None, None)


def _tissue_alone(overview: SlideOverview, grid: SlideGrid, schema: LabelSchema, folder: Path) -> Bytes:
    """(H, W) unnamed tissue on background, in a file where it is large."""
    shape, background = (grid.height, grid.width), schema.index(schema.background or "")
    labels = new_map(shape, folder / HIDDEN if grid.height * grid.width > IN_MEMORY else None, background)
    rows, columns = cells_under(Window(0, 0, *shape), grid.resolution, overview.tissue.shape, overview.resolution)
    for top in range(0, grid.height, ROWS):
        tissue = overview.tissue.take(rows[top : top + ROWS], axis=0).take(columns, axis=1)
        labels[top : top + ROWS][tissue] = schema.index(UNNAMED)
    overview.unmark(labels, grid, schema, Options())
    return labels
