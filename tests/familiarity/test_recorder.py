import numpy as np
import pytest
import torch
from tests.familiarity.small import MPP, reference_of, stained
from tests.reference.familiarity_cells import cells_of, sums_of
from tests.segment.small import paint

from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window, cut
from ntrm.familiarity.judge import Unit, judge, look_p_values
from ntrm.familiarity.recorder import BlockRecorder, SlideBlocks, judge_slide
from ntrm.models.windows import Stitching, stitch
from ntrm.regions.graph import tissue_graph
from ntrm.slides.pieces import PieceMap

CPU = torch.device("cpu")


@pytest.fixture
def schema(predictor):
    return predictor.config.schema


@pytest.fixture
def known(schema):
    """A reference by hand with class means of its own."""
    made = reference_of(schema)
    made.numbers.class_means[:] = np.linspace(-1, 1, made.numbers.class_means.size).reshape(-1, 9)
    return made


def test_a_slide_is_the_sums_of_its_windows(predictor, known, schema, random):
    image = stained(paint(random), random)
    stitching = Stitching(64, 16)
    windows = stitching.windows(*image.shape[:2])
    recorder = BlockRecorder(known, schema, CPU)
    stitch(predictor, image, stitching=stitching, observe=recorder)
    found = recorder.recorded()
    assert found.shape == (len(windows), 1, 1, 19)
    for number in random.choice(len(windows), 4, replace=False):
        tile = cut(image, windows[number], fill=255)
        shares = predictor.probabilities(tile[None]).final[0].numpy()
        expected = sums_of(
            *cells_of(tile, shares, schema.background_index), known.numbers.class_means, known.numbers.class_whitening
        )
        np.testing.assert_allclose(found[number], expected, rtol=1e-3, atol=0.5)
    assert found[..., 0].max() > 50


def test_blocks_lie_where_their_windows_do():
    windows = [Window(0, 0, 128, 128), Window(0, 96, 128, 128), Window(96, 0, 128, 128)]
    blocks = SlideBlocks.of(windows, torch.arange(2 * 4 * 19.0).reshape(2, 2, 2, 19), 128)
    corners = [(0, 0), (0, 64), (64, 0), (64, 64), (0, 96), (0, 160), (64, 96), (64, 160)]
    assert blocks.boxes.tolist() == [[top, left, 64, 64] for top, left in corners]
    np.testing.assert_array_equal(blocks.sums, np.arange(8 * 19.0).reshape(8, 19))
    alone = SlideBlocks.of(windows[:1], torch.zeros(1, 1, 1, 19), 96)
    assert alone.boxes.tolist() == [[0, 0, 96, 96]]
    assert SlideBlocks.of([], torch.zeros(0, 1, 1, 19), 64).boxes.shape == (0, 4)


def test_a_block_belongs_to_the_piece_that_most_of_it_shows():
    tissue = np.zeros((80, 200), dtype=bool)
    tissue[:, 10:80] = tissue[:, 120:190] = True
    pieces = PieceMap.of(tissue, Resolution.square(20.0))
    assert len(pieces.pieces) == 2
    # On the grid of the mask, twice as fine, the first piece ends at 160 and the second begins at 240.
    boxes = {(0, 0): 1, (0, 130): 1, (0, 200): 2, (0, 165): 0, (0, 150): 1, (140, 300): 2, (500, 900): 0}
    sums = np.ones((len(boxes), 19))
    blocks = SlideBlocks(np.array([[*corner, 64, 64] for corner in boxes]), sums)
    assert blocks.pieces(pieces, Resolution.square(10.0)).tolist() == [*boxes.values()]
    sums[0, 0] = 0  # no cell counts
    assert blocks.pieces(pieces, Resolution.square(10.0)).tolist() == [0, *[*boxes.values()][1:]]


@pytest.mark.failed_once(1826895931)
def test_pieces_are_judged_by_their_blocks_and_graphs(known, schema, random):
    tissue = np.zeros((128, 320), dtype=bool)
    tissue[:, :128] = tissue[:, 192:] = True
    resolution = Resolution.square(MPP)
    pieces = PieceMap.of(tissue, resolution)
    graphs = {number: tissue_graph(paint(random, 180, 130), resolution, schema) for number in (1, 2)}
    boxes = np.array([[top, left, 64, 64] for top in (0, 64) for left in (0, 64, 128, 192, 256)])
    sums = np.abs(random.normal(20, 3, (10, 19))).round()
    sums[:, 0] = 20
    sums[3, 0] = 5  # too few to have a place on the map
    blocks = SlideBlocks(boxes, sums)
    found = judge_slide(blocks, pieces, graphs, known, schema, resolution)
    of = {1: [0, 1, 5, 6], 2: [3, 4, 8, 9]}
    for number, members in of.items():
        unit = Unit.of(sums[members].sum(axis=0), graphs[number])
        assert found.pieces[number] == judge(unit, known, schema)
    shown = [number for number in range(10) if number != 3]
    expected = look_p_values(sums[shown], 64 * (MPP / 1000) ** 2, known)
    assert [window[:4] for window in found.windows] == [tuple(box) for box in boxes[shown].tolist()]
    np.testing.assert_allclose([window[4] for window in found.windows], expected)
