"""What is measured on the pieces of a slide, and when a piece counts as cut off by the scan."""

import numpy as np
import pytest

from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.regions.measure import SCAN_EDGE
from ntrm.results.familiarity import WITHOUT_REFERENCE, SlideFamiliarity
from ntrm.segment.measurements import interface_rows, measure_pieces, scan_slide
from ntrm.slides.pieces import PieceMap

MPP, COARSE = Resolution.square(8.0), Resolution.square(16.0)
BKG, RET, EPI, IEC, SCC = (SKIN.index(name) for name in ("BKG", "RET", "EPI", "IEC", "SCC"))


def skin(bottom):
    """A piece with a tumour that ends at row ``bottom`` of a scan of 200 rows."""
    mask = np.full((200, 260), BKG, dtype=np.uint8)
    mask[50:bottom, 40:220] = RET
    mask[50:58, 40:220] = EPI
    mask[90:120, 90:130] = SCC
    return mask


def measured(mask, confidence=255):
    """The only piece; its tissue seen from afar is larger than its mask."""
    tissue = np.zeros((100, 130), dtype=bool)
    seen = np.argwhere(mask != BKG) // 2
    for row, column in ((-4, 0), (4, 0), (0, -4), (0, 4), (0, 0)):
        at = np.clip(seen + np.array([row, column]), 0, [99, 129])
        tissue[tuple(at.T)] = True
    sure = np.full(mask.shape, confidence, dtype=np.uint8)
    pieces = PieceMap.of(tissue, COARSE)
    return only(mask, sure, pieces).summary


def only(mask, confidence, pieces):
    regions = scan_slide(mask, confidence, pieces, schema=SKIN, resolution=MPP)
    (found,) = measure_pieces(regions, pieces, SlideFamiliarity(WITHOUT_REFERENCE, {}), schema=SKIN)
    return found


@pytest.mark.parametrize(("gap", "cut_off"), [(0, True), (2, True), (4, False)])
def test_a_piece_is_cut_off_if_its_mask_reaches_the_edge(gap, cut_off):
    found = measured(skin(200 - gap))
    assert found.touches_edge == cut_off
    if cut_off:
        assert found.measurements["deep_clearance"].reason == SCAN_EDGE
    else:
        assert found.measurements["deep_clearance"].value == pytest.approx(0.008 * (200 - gap - 120))


def test_a_thin_spur_to_the_edge_cuts_nothing_off():
    mask = skin(185)
    mask[185:, 150:155] = RET
    found = measured(mask)
    assert not found.touches_edge
    assert found.measurements["deep_clearance"].value == pytest.approx(0.008 * (185 - 120))


def test_outside_is_background_what_has_no_name_and_what_belongs_to_no_piece():
    """The network sees a margin of tissue beyond the tissue mask: it has piece 0, and its border counts as outside."""
    mask = skin(200)
    mask[130:150, 60:90] = IGNORE
    tissue = np.zeros((100, 130), dtype=bool)
    tissue[27:, 22:108] = True
    pieces = PieceMap.of(tissue, COARSE)
    graph = only(mask, None, pieces).graph
    outside = [row for row in interface_rows("a", 1, graph) if row["tissue_b"] == "outside"]
    rows = {row["tissue_a"]: row["boundary_mm"] for row in outside}
    own = np.repeat(np.repeat(tissue, 2, axis=0), 2, axis=1) & ~np.isin(mask, (BKG, IGNORE))
    for name, label in (("RET", RET), ("EPI", EPI)):
        sides = 0
        for row, column in np.argwhere(own & (mask == label)):
            beside = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
            sides += sum(not own[at] for at in beside if at[0] < 200)
        assert rows[name] == pytest.approx(sides * 0.008)
    assert set(rows) == {"RET", "EPI"}
