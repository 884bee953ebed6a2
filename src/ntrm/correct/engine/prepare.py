"""The region graph of a slide: made from slide and model once, as long as the segmentation itself took, and kept.

It is needed to propose what follows from a click; the corrected mask follows from mask and log alone.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import IGNORE
from ntrm.core.locks import holding
from ntrm.core.mpp import Resolution
from ntrm.core.progress import SILENT, Progress
from ntrm.correct.engine.graph import RegionGraph, region_graph_of
from ntrm.correct.mask import SlideMask, mask_grid, segmented
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import HIDDEN, REGION_GRAPH, REGION_GRAPH_LOCK
from ntrm.slides.inputs import SlideInput, source_fingerprint

if TYPE_CHECKING:
    from ntrm.models.predictor import Predictor


def origin_of(mask: SlideMask) -> str:
    """What the region graph of a mask is made of."""
    return f"mask {mask.record.mask}, model {mask.summary.model['sha256']}"


def region_graph_in(mask: SlideMask) -> RegionGraph | None:
    """The region graph that was kept; None where there is none of this mask, model and version, or a damaged one."""
    try:
        graph = RegionGraph.read(mask.folder / HIDDEN / REGION_GRAPH, mask.schema, origin_of(mask))
    except DataError:
        return None
    return graph if graph.runs.shape == mask.shape else None


def make_region_graph(
    mask: SlideMask, slide: SlideInput, predictor: Predictor, progress: Progress = SILENT
) -> RegionGraph:
    """Make the region graph and keep it; one that is there is taken as it is.

    ``slide`` is the file that was segmented, another one is refused; ``predictor`` has the model of the results, see
    ``same_model``. Where another process makes the graph already, this waits for it.
    """
    own, source = source_fingerprint(slide.path), segmented(mask.folder)[1].source
    if own is None or own != source:
        raise RefusedError(
            f"{mask.folder.name} was made from another file",
            got="a slide that cannot be read" if own is None else f"a slide with other content ({own[:12]})",
            expected=f"the slide that was segmented ({str(source)[:12]})",
            hint="give the slide as it was when it was segmented",
        )
    # The network must see the slide as it did when it was segmented.
    stained = mask.summary.stain_norm
    if stained is not None and stained.matrix is not None:
        predictor = predictor.recolouring(stained.matrix)
    SlideFolder(mask.folder).check()
    with holding(mask.folder / HIDDEN / REGION_GRAPH_LOCK, wait=True):
        graph = region_graph_in(mask)
        if graph is None:
            graph = _made(mask, slide, predictor, progress)
            graph.save(mask.folder / HIDDEN / REGION_GRAPH, origin_of(mask))
        return graph


def same_model(mask: SlideMask, sha256: str) -> None:
    """Refuse weights that are not those of the results."""
    model = mask.summary.model
    if sha256 != model["sha256"]:
        known = f"named {model['name'] or model['arch']}, weights {str(model['sha256'])[:12]}"
        raise RefusedError(
            f"{mask.folder.name} was made with another model",
            got=f"weights {sha256[:12]}",
            hint=f"give the folder of the model that the results were made with: --model ({known})",
        )


def _made(mask: SlideMask, slide: SlideInput, predictor: Predictor, progress: Progress) -> RegionGraph:
    """Memory is that of the mask, the sums over the parts and some windows."""
    from ntrm.correct.engine.parts import parts_of
    from ntrm.correct.engine.pool import Pooling, smooth_density
    from ntrm.models.windows import Stitching
    from ntrm.segment.predict import tiles_ahead
    from ntrm.slides.isolated import open_isolated

    labels, stated = mask.labels(), segmented(mask.folder)[1].mpp
    stitching = Stitching(predictor.config.window, int(mask.summary.options["overlap"]))
    # The network has seen windows all of whose pixels have a name.
    windows = [each for each in stitching.windows(*mask.shape) if not (labels[each.slices] == IGNORE).any()]
    with closing(open_isolated(slide.path, alone=slide.alone)) as reader:
        mpp = slide.mpp or (None if stated is None else Resolution(*stated))
        grid = mask_grid(reader, mask.summary, mpp, hint="give the µm/px that the slide was segmented with")
        density = smooth_density(lambda w: grid.read(w.top, w.left, *w.tile_shape), *mask.shape)
        parts = parts_of(labels, mask.schema, mask.resolution, density)
        pooling, batches = Pooling(predictor, parts, stitching), -(-len(windows) // predictor.batch)
        for these, tiles in progress.track(tiles_ahead(grid, windows, predictor.batch), batches, mask.folder.name):
            pooling.add(these, tiles)
    pooled = pooling.means()
    return region_graph_of(parts, mask.schema, pooled.pop("probabilities"), pooled)
