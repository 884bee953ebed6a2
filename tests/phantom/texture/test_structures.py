"""Strands and hollow tissues."""

import numpy as np
import pytest

from ntrm.core.labels import SKIN
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.texture.scene import Scene
from ntrm.phantom.texture.structures import HOLLOWS, Spots


def spots(seed, mpp, side_um=600.0, patch=0.0):
    axis = (np.arange(int(side_um / mpp)) + 0.5) * mpp
    y, x = (v.ravel() for v in np.meshgrid(axis, axis, indexing="ij"))
    still = np.zeros(y.size, dtype=np.float32)
    return Spots(seed, y, x, eosin=still + 1, bend=still, patch=still + np.float32(patch))


@pytest.mark.parametrize("patch", [0.0, 1.0], ids=["sweat", "sebaceous"])
@pytest.mark.parametrize("name", HOLLOWS)
def test_coarse_grids_keep_as_much_dye_as_fine_ones(seed, name, patch):
    dye, _ = HOLLOWS[name]
    fine, coarse = (dye(spots(seed, mpp, patch=patch), mpp).mean() for mpp in (0.67, 3.35))
    assert coarse == pytest.approx(fine, rel=0.12)


def test_fat_cells_are_not_cut_in_two(seed):
    mask = np.full((90, 90), SKIN.index("HYP"), dtype=np.uint8)
    mask[:45] = SKIN.index("RET")
    scene = Scene.prepare(mask, 6.7, seed, 0.5)
    window = PhantomGrid((180, 180), 3.35, (0.0, 0.0))
    y, x = (v.ravel() for v in np.meshgrid(window.y_um, window.x_um, indexing="ij"))
    fat = scene.tissue_at(y, x) == SKIN.index("HYP")
    border_um = 45 * 6.7
    assert not fat[y < border_um - 100].any()
    assert fat[y > border_um + 100].all()
    assert (fat != (y > border_um)).any(), "the border follows the cells, not the mask"
    assert fat.mean() == pytest.approx(0.5, abs=0.06)
