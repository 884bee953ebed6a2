import numpy as np
import pytest
import tifffile
from scipy.ndimage import maximum_filter
from tests.evaluation.small import MPP, schema_of

from ntrm.core.labels import IGNORE
from ntrm.core.mpp import Resolution
from ntrm.export.ome_tiff import write_mask_ome_tiff
from ntrm.service.tiles.layers import BORDER, MaskLayers


def blobs(random, height, width):
    coarse = random.integers(0, 4, (-(-height // 23), -(-width // 17)))
    mask = np.kron(coarse, np.ones((23, 17), dtype=int))[:height, :width].astype(np.uint8)
    mask[random.random((height, width)) < 0.02] = IGNORE
    return mask


def write(folder, masks):
    for name, mask in masks.items():
        write_mask_ome_tiff(folder / f"{name}.ome.tif", mask, schema_of(), Resolution.square(MPP))


def levels_of(path):
    with tifffile.TiffFile(path) as tif:
        return [level.asarray() for level in tif.series[0].levels]


def sample(levels, grid, level, box):
    """The pixel under the middle of each, straight from the definition."""
    scale = 2 ** (grid.zoom.top - level)
    depth = 0
    while depth + 1 < len(levels) and 2 ** (depth + 1) * min(grid.sx, grid.sy) <= scale:
        depth += 1
    rows = ((box.top + np.arange(box.height) + 0.5) * scale / grid.sy / 2**depth).astype(int)
    columns = ((box.left + np.arange(box.width) + 0.5) * scale / grid.sx / 2**depth).astype(int)
    height, width = levels[depth].shape
    inside = (rows < height)[:, None] & (columns < width)
    return np.where(inside, levels[depth][np.ix_(rows.clip(max=height - 1), columns.clip(max=width - 1))], 0)


@pytest.mark.parametrize("factors", [(1.0, 1.0), (13.4, 13.4), (0.8, 0.8), (3.0, 2.0)])
def test_tiles_are_the_masks_own_pixels_at_every_level(tmp_path, random, factors):
    mask = blobs(random, 530, 610)
    write(tmp_path, {"mask": mask, "confidence": blobs(random, 530, 610)})
    sx, sy = factors
    layers = MaskLayers(tmp_path, (0, 0, round(610 * sx - 0.4 * (sx > 1)), round(530 * sy)), factors)
    zoom = layers.zoom
    assert layers.names == ["tissue", "confidence", "interface"]
    for layer, file in (("tissue", "mask"), ("confidence", "confidence")):
        levels = levels_of(tmp_path / f"{file}.ome.tif")
        for level in {zoom.top, zoom.top - 2, 7, 0}:
            columns, rows = zoom.grid(level)
            for column, row in {(0, 0), (columns - 1, rows - 1)}:
                box = zoom.tile(level, column, row)
                found = layers.pixels(layer, level, box)
                np.testing.assert_array_equal(found, sample(levels, layers, level, box))


def test_borders_of_two_tissues_are_drawn_on_both_sides_across_tiles(tmp_path, random):
    mask = blobs(random, 300, 310)
    write(tmp_path, {"mask": mask})
    layers = MaskLayers(tmp_path, (0, 0, 310, 300), (1.0, 1.0))
    near = np.logical_and(*(maximum_filter(mask == index, 2 * BORDER + 1, mode="constant") for index in (1, 3)))
    found = np.zeros(mask.shape, dtype=bool)
    for column in range(2):
        for row in range(2):
            box = layers.zoom.tile(layers.zoom.top, column, row)
            part = layers.pixels("interface", layers.zoom.top, box, (1, 3))
            found[box.top : box.top + box.height, box.left : box.left + box.width] = part
    np.testing.assert_array_equal(found, near)
    assert near.any()


def test_what_the_second_look_corrected_and_broke(tmp_path, random):
    final, first, truth = (blobs(random, 200, 300) for _ in range(3))
    truth[:30] = IGNORE
    write(tmp_path, {"mask": final, "coarse": first})
    assert "improvement" not in MaskLayers(tmp_path, (0, 0, 300, 200), (1.0, 1.0)).names
    write(tmp_path, {"truth": truth})
    layers = MaskLayers(tmp_path, (0, 0, 300, 200), (1.0, 1.0))
    found = layers.pixels("improvement", layers.zoom.top, layers.zoom.tile(layers.zoom.top, 0, 0))
    known = truth != IGNORE
    np.testing.assert_array_equal(found == 1, (known & (final == truth) & (first != truth))[:, :256])
    np.testing.assert_array_equal(found == 2, (known & (final != truth) & (first == truth))[:, :256])
