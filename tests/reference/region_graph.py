"""The region graph of an image in memory, as ``ntrm.correct.slide`` makes that of a slide."""

import numpy as np

from ntrm.correct.engine.graph import region_graph_of
from ntrm.correct.engine.parts import SIDE, parts_of
from ntrm.correct.engine.pool import Pooling, smooth_density
from ntrm.data.tiles import GLASS, cut
from ntrm.models.windows import Stitching


def reader(image):
    """Reads the tile of an image (H, W, 3) under a window."""
    return lambda window: cut(image, window, fill=GLASS)


def pool(predictor, parts, image):
    """Means over each part, as ``Pooling`` has them, of all windows."""
    stitching, read = Stitching(predictor.config.window), reader(image)
    windows, pooling = stitching.windows(*parts.runs.shape), Pooling(predictor, parts, stitching)
    for start in range(0, len(windows), predictor.batch):
        batch = windows[start : start + predictor.batch]
        pooling.add(batch, np.stack([read(window) for window in batch]))
    return pooling.means()


def region_graph(predictor, image, mask, resolution, side=SIDE):
    """Of an image (H, W, 3) and its mask (H, W); cells of ``side`` pixels divide large regions."""
    schema = predictor.config.schema
    parts = parts_of(mask, schema, resolution, smooth_density(reader(image), *mask.shape), side=side)
    pooled = pool(predictor, parts, image)
    return region_graph_of(parts, schema, pooled.pop("probabilities"), pooled)
