"""Strands and hollow tissues."""

import numpy as np
import pytest

from ntrm.core.labels import SKIN
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.texture.scene import Scene


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
