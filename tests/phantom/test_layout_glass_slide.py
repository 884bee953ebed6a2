import numpy as np
import pytest
from tests.phantom.small import small

from ntrm.core.labels import SKIN
from ntrm.phantom.layout import GRID_UM, lay_slide, layout

BKG = SKIN.index("BKG")


def test_one_piece_is_the_section_itself(seed):
    slide = lay_slide(seed, 6.7, "BCC")
    section = layout(seed, 6.7, "BCC")
    height, width = section.mask.shape
    assert np.array_equal(slide.mask[:height, :width], section.mask)
    assert slide.pieces[0].truth == section.truth


def test_pieces_lie_apart_and_inside_their_boxes(seed):
    slide = lay_slide(seed, 6.7, "IEC", pieces=3)
    covered = np.zeros(slide.mask.shape, dtype=int)
    for piece in slide.pieces:
        top, left, height, width = (
            round(v / GRID_UM) for v in (piece.top_um, piece.left_um, piece.height_um, piece.width_um)
        )
        covered[top : top + height, left : left + width] += 1
    assert covered.max() == 1
    assert (slide.mask[covered == 0] == BKG).all()
    assert [piece.number for piece in slide.pieces] == [1, 2, 3]
    assert len({piece.truth for piece in slide.pieces}) == 3


@pytest.mark.slow
def test_every_level_shows_the_same_slide(seed):
    seed = small(seed, "SCC")
    coarse, fine = lay_slide(seed, 6.7, "SCC", pieces=2), lay_slide(seed, 3.35, "SCC", pieces=2)
    assert fine.mask.shape == (2 * coarse.mask.shape[0], 2 * coarse.mask.shape[1])
    assert coarse.pieces == fine.pieces
    agree = np.mean([(fine.mask[i::2, j::2] == coarse.mask).mean() for i in (0, 1) for j in (0, 1)])
    assert agree > 0.97
