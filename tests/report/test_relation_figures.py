import numpy as np
from PIL import Image
from tests.relations.blocks import BCC, block
from tests.report.looking import shown_texts, stumbles

from ntrm.labels import SKIN
from ntrm.relations.graph import tissue_graph
from ntrm.relations.measure import measure_piece
from ntrm.relations.measured import PURPOSE
from ntrm.report import relation_figures
from ntrm.report.relation_figures import MeasuredLine, draw_margins, draw_tissue_graph, margin_figure
from ntrm.resolution import Resolution

MPP = Resolution.square(6.7)


def parts(mask):
    found = measure_piece(mask, SKIN, MPP)
    lines = [MeasuredLine(str(one), one.line) for one in (found.clearance.deep, found.clearance.lateral, found.depth)]
    around = found.outline
    return found, {"surface": around.surface, "margin": around.outer[~around.is_surface], "lines": lines}


def test_lines_and_outline_lie_where_they_were_measured():
    mask = block()
    mask[40:50, 60:80] = BCC
    found, drawn = parts(mask)
    figure = draw_margins(SKIN.colourise(mask), MPP, **drawn)
    curves = {line.get_gid(): line for line in figure.axes[0].lines}
    assert np.array_equal(np.flip(curves["line 1"].get_xydata(), axis=1), np.array(found.clearance.deep.line))
    assert np.array_equal(np.flip(curves["surface"].get_xydata(), axis=1), found.outline.surface)
    assert len(curves["margin"].get_xydata()) == (~found.outline.is_surface).sum()
    texts = [text for text, _ in shown_texts(figure)]
    assert f"1  {found.clearance.deep}" in texts
    assert PURPOSE in texts
    assert not stumbles(figure)


def test_a_reason_takes_the_place_of_a_line(tmp_path):
    mask = block()
    _, drawn = parts(mask)
    margin_figure(tmp_path / "margins.png", SKIN.colourise(mask), MPP, **drawn)
    with Image.open(tmp_path / "margins.png") as picture:
        assert min(picture.size) > 100
    figure = draw_margins(SKIN.colourise(mask), MPP, **drawn)
    assert not [line for line in figure.axes[0].lines if line.get_gid().startswith("line")]
    assert any("no tumour in the piece" in text for text, _ in shown_texts(figure))


def test_the_graph_shows_the_tissues_that_are_there():
    graph = tissue_graph(block(), SKIN, MPP)
    figure = draw_tissue_graph(SKIN, graph.areas_mm2, graph.boundary_share)
    names = {text for text, _ in shown_texts(figure)} & set(SKIN.names)
    assert names == {"EPI", "RET", "KER"}
    assert not stumbles(figure)
    assert relation_figures.PURPOSE == PURPOSE
