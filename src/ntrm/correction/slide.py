"""The mask of a segmented slide, ready to be corrected: the network's mask, the log of corrections, the region graph.

The region graph is made from slide and model once, as long as the segmentation itself took, and kept beside the
results. It is needed to propose what follows from a click; the corrected mask follows from mask and log alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntrm.analysis.regions import Regions, scan_mask
from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.locks import holding
from ntrm.core.mpp import Resolution
from ntrm.core.progress import SILENT, Progress
from ntrm.correction.engine.graph import FORMAT, RegionGraph
from ntrm.correction.log import Log, MaskRecord, check_mask, read_log
from ntrm.correction.state import Corrections, corrections_of
from ntrm.data.tiles import Window
from ntrm.results.documents import AGAIN, Summary, read_summary
from ntrm.results.folder import SlideFolder
from ntrm.results.mask_file import colours_in, labels_in, mask_sha256, opened_mask, schema_of, titles_in
from ntrm.results.paths import HIDDEN, REGION_GRAPH, REGION_GRAPH_LOCK
from ntrm.results.slide_state import Plan, finished
from ntrm.slides.inputs import SlideInput, source_fingerprint

if TYPE_CHECKING:
    from ntrm.inference.predictor import Predictor
    from ntrm.wsi.grid import SlideGrid

SAME_MODEL = ("name", "arch", "version", "mpp", "window", "temperature")
"""What a network says of itself, and a run of its model."""


@dataclass(frozen=True, eq=False)
class SlideMask:
    """The network's mask in a slide's folder of results."""

    folder: Path
    summary: Summary
    schema: LabelSchema
    record: MaskRecord
    """What a log of corrections says about its mask."""

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.summary.grid.height, self.summary.grid.width

    @property
    def resolution(self) -> Resolution:
        """µm/px."""
        return Resolution(*self.summary.grid.mpp)

    @property
    def origin(self) -> dict[str, str]:
        """What its region graph is made of."""
        return {"mask": self.record.mask, "model": str(self.summary.model["sha256"]), "engine": str(FORMAT)}

    def labels(self) -> Mask:
        """(H, W) classes, 255 where nothing is known."""
        with opened_mask(self.folder) as stored:
            return labels_in(stored, self.shape)

    def regions(self) -> Regions:
        """Its connected regions, glass included."""
        return scan_mask(self.labels(), replace(self.schema, background=None), self.resolution)


def open_mask(folder: Path) -> SlideMask:
    """The mask of a slide's folder, which ``ntrm segment`` has finished."""
    summary = read_summary(folder)
    with opened_mask(folder) as stored:
        schema = schema_of(folder, summary, colours_in(stored), titles_in(stored))
        digest = mask_sha256(folder)
    record = MaskRecord(
        slide_id=summary.slide_id,
        mask=digest,
        height=summary.grid.height,
        width=summary.grid.width,
        classes=summary.classes,
    )
    return SlideMask(folder, summary, schema, record)


def corrections_in(mask: SlideMask, known: Iterable[Corrections] = ()) -> tuple[Log, Corrections]:
    """The log beside a mask, and its corrections; refuses a log about another mask.

    Steps that ``known`` corrections cover are not replayed.
    """
    log = read_log(mask.folder)
    if log.record is not None and log.record.mask != mask.record.mask:
        check_mask(mask.folder, log.record)
    return log, corrections_of(log, mask.schema, mask.shape, known)


def region_graph_in(mask: SlideMask) -> RegionGraph | None:
    """The region graph that was kept; None where there is none of this mask, model and version, or a damaged one."""
    try:
        graph = RegionGraph.read(mask.folder / HIDDEN / REGION_GRAPH, mask.schema, mask.origin)
    except DataError:
        return None
    return graph if graph.runs.shape == mask.shape else None


def make_region_graph(
    mask: SlideMask, slide: SlideInput, predictor: Predictor, progress: Progress = SILENT
) -> RegionGraph:
    """Make the region graph and keep it; one that is there is taken as it is.

    Interrupted, it goes on where it stopped. Memory is that of the mask, the sums over the parts and some windows.
    Where another process makes it already, this waits for it.

    Args:
        mask: the slide's mask.
        slide: the file that was segmented; another one is refused.
        predictor: with the model of the results. That it says so of itself is checked, its weights are not: see
            ``same_model``.
        progress: over the windows.

    """
    check_source(mask, slide)
    _check_model(mask, predictor)
    # The network must see the slide as it did when it was segmented.
    stained = mask.summary.stain_norm
    if stained is not None and stained.matrix is not None:
        predictor = predictor.recolouring(stained.matrix)
    SlideFolder(mask.folder).check()
    with holding(mask.folder / HIDDEN / REGION_GRAPH_LOCK, wait=True):
        graph = region_graph_in(mask)
        if graph is None:
            graph = _made(mask, slide, predictor, progress)
            graph.save(mask.folder / HIDDEN / REGION_GRAPH, mask.origin)
        return graph


def check_source(mask: SlideMask, slide: SlideInput) -> Plan:
    """What the slide was segmented from; refuses another file."""
    state = finished(mask.folder)
    if state is None or state.plan is None:
        raise DataError(f"{mask.folder.name} was not segmented completely", hint=AGAIN)
    own = source_fingerprint(slide.path)
    if own is None or own != state.plan.source:
        raise RefusedError(
            f"{mask.folder.name} was made from another file",
            got="a slide that cannot be read" if own is None else f"a slide with other content ({own[:12]})",
            expected=f"the slide that was segmented ({str(state.plan.source)[:12]})",
            hint="give the slide as it was when it was segmented",
        )
    return state.plan


def same_model(mask: SlideMask, sha256: str) -> None:
    """Refuse weights that are not those of the results."""
    if sha256 != mask.summary.model["sha256"]:
        raise _other_model(mask, f"weights {sha256[:12]}", f"weights {str(mask.summary.model['sha256'])[:12]}")


def _check_model(mask: SlideMask, predictor: Predictor) -> None:
    """Refuse a network whose description or tissues differ from those of the results."""
    config, model = predictor.config, mask.summary.model
    differing = [key for key in SAME_MODEL if getattr(config, key) != model[key]]
    if differing:
        got = ", ".join(f"{key} {getattr(config, key)}" for key in differing)
        raise _other_model(mask, got, ", ".join(f"{key} {model[key]}" for key in differing))
    if config.schema.names != mask.schema.names:
        raise _other_model(mask, ", ".join(config.schema.names), ", ".join(mask.schema.names))


def _other_model(mask: SlideMask, got: str, expected: str) -> RefusedError:
    model = mask.summary.model
    known = f"named {model['name'] or model['arch']}, weights {str(model['sha256'])[:12]}"
    hint = f"give the folder of the model that the results were made with: --model ({known})"
    return RefusedError(f"{mask.folder.name} was made with another model", got=got, expected=expected, hint=hint)


def _made(mask: SlideMask, slide: SlideInput, predictor: Predictor, progress: Progress) -> RegionGraph:
    from ntrm.correction.engine.graph import region_graph_of
    from ntrm.correction.engine.parts import parts_of
    from ntrm.correction.engine.pool import smooth_density
    from ntrm.inference.predict import read_tile
    from ntrm.wsi.isolated import open_in_children

    labels = mask.labels()
    with closing(open_in_children(slide.path, alone=slide.alone)) as reader:
        grid = _slide_grid(mask, slide, reader)
        density = smooth_density(lambda window: read_tile(grid, window), *mask.shape)
        parts = parts_of(labels, mask.schema, mask.resolution, density)
        pooled = _pooled(mask, grid, parts, labels, predictor, progress)
    return region_graph_of(parts, mask.schema, pooled.pop("probabilities"), pooled)


def _slide_grid(mask: SlideMask, slide: SlideInput, reader: Any) -> SlideGrid:
    """The slide on the grid of the mask."""
    from ntrm.correction.mask_grid import mask_grid

    stated = check_source(mask, slide).mpp
    mpp = slide.mpp or (None if stated is None else Resolution(*stated))
    return mask_grid(reader, mask.summary, mpp, hint="give the µm/px that the slide was segmented with")


def _pooled(
    mask: SlideMask, grid: SlideGrid, parts: Any, labels: Mask, predictor: Predictor, progress: Progress
) -> dict[str, Any]:
    """What the network saw in each part."""
    from ntrm.correction.engine.pool import Pooling
    from ntrm.inference.predict import tiles_ahead
    from ntrm.inference.sliding_window import Stitching

    stitching = Stitching(predictor.config.window, int(mask.summary.options["overlap"]))
    windows, batch = _known(labels, stitching.windows(*mask.shape)), predictor.batch
    pooling = Pooling(predictor, parts, stitching)
    for these, tiles in progress.track(tiles_ahead(grid, windows, batch), -(-len(windows) // batch), mask.folder.name):
        pooling.add(these, tiles)
    return pooling.means()


def _known(labels: Mask, windows: Sequence[Window]) -> list[Window]:
    """Windows that the network has seen: all their pixels have a name."""
    return [window for window in windows if not (labels[window.slices] == IGNORE).any()]
