import numpy as np
import pytest
from scipy import ndimage

from ntrm.core.errors import DataError
from ntrm.core.io import write_arrays
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window
from ntrm.slides.pieces import JOINED_UM, LEAST_MM2, PieceMap, reading_order

MPP = 20.0
SQUARE = Resolution.square(MPP)


def blank(height=200, width=300):
    return np.zeros((height, width), dtype=bool)


def test_pieces_are_what_lies_near_each_other(random):
    mpp = Resolution(21.0, 17.0)
    for _ in range(3):
        tissue = ndimage.zoom(random.random((14, 16)), 30, order=1) > 0.7
        near = ndimage.distance_transform_edt(~tissue, sampling=(mpp.y, mpp.x)) <= JOINED_UM / 2
        expected = np.where(tissue, ndimage.label(near, np.ones((3, 3)))[0], 0)
        areas = np.bincount(expected.ravel()) * (mpp.pixel_area_um2 / 1e6)
        boxes = ndimage.find_objects(expected)
        found = PieceMap.of(tissue, mpp)
        pieces, numbers = found.pieces, found.numbers
        large = [region for region in range(1, len(areas)) if areas[region] >= LEAST_MM2]
        assert len(pieces) == len(large) > 1
        for piece in pieces:
            (region,) = np.unique(expected[numbers == piece.number])
            assert ((expected == region) == (numbers == piece.number)).all()
            assert piece.area_mm2 == round(areas[region], 6)
            rows, columns = boxes[region - 1]
            assert piece.bbox == (rows.start, columns.start, rows.stop - rows.start, columns.stop - columns.start)


def test_the_number_does_not_hang_on_a_few_pixels(random):
    rows, columns = (10, 90, 170), (10, 90, 170, 250)
    for _ in range(5):
        tissue = blank(230, 310)
        for top in rows:
            for left in columns:
                y, x = top + random.integers(-6, 7), left + random.integers(-6, 7)
                tissue[y : y + random.integers(34, 42), x : x + random.integers(34, 42)] = True
        found = PieceMap.of(tissue, SQUARE)
        middles = [(top + 19, left + 19) for top in rows for left in columns]
        assert [found.numbers[place] for place in middles] == list(range(1, 13))
        assert [piece.number for piece in found.pieces] == list(range(1, 13))


def test_reading_order_of_a_small_piece_beside_a_tall_one():
    tall, small, below = (0, 100, 100, 50), (60, 0, 20, 50), (120, 0, 50, 50)
    assert reading_order([tall, small, below]) == [1, 0, 2]
    assert reading_order([]) == []


def test_says_which_pieces_touch_the_edge():
    tissue = blank()
    tissue[0:60, 20:80] = True
    tissue[100:160, 20:80] = True
    tissue[100:160, 240:300] = True
    assert [piece.touches_edge for piece in PieceMap.of(tissue, SQUARE).pieces] == [True, False, True]


def test_labels_on_another_grid_are_those_of_the_pixel_under_the_middle(random):
    labels = random.integers(0, 5, (40, 50)).astype(np.uint16)
    window = Window(top=17, left=33, height=60, width=70)
    pieces = PieceMap((), labels, Resolution(13.0, 11.0))
    there = labels[np.ix_(*pieces.cells(Resolution.square(6.7), window))]
    for y, x in random.integers(0, (60, 70), (50, 2)):
        row, column = int((17 + y + 0.5) * 6.7 / 11.0), int((33 + x + 0.5) * 6.7 / 13.0)
        assert there[y, x] == labels[min(row, 39), min(column, 49)]
    assert there.shape == (60, 70)


def test_the_window_of_a_piece_holds_all_its_labels(random):
    tissue = blank(60, 80)
    top, left = random.integers(5, 20, 2)
    tissue[top : top + 30, left : left + 40] = True
    pieces = PieceMap.of(tissue, SQUARE)
    (piece,) = pieces.pieces
    shape = (60 * 20 // 7, 80 * 20 // 7)
    fine = pieces.numbers[np.ix_(*pieces.cells(Resolution.square(7.0), Window(0, 0, *shape)))]
    window = pieces.window(piece, Resolution.square(7.0), shape)
    assert (fine[window.slices] > 0).sum() == (fine > 0).sum()
    assert window.height <= 30 * 20 / 7 + 2


def test_the_window_of_a_piece_at_the_scan_s_end_reaches_the_end_of_a_finer_grid():
    tissue = blank(60, 80)
    tissue[20:, 30:] = True
    pieces = PieceMap.of(tissue, SQUARE)
    # A thumbnail ends up to half a pixel of its own before or behind the scan.
    for shape in ((178, 236), (171, 228), (165, 222)):
        window = pieces.window(pieces.pieces[0], Resolution.square(7.0), shape)
        fine = pieces.numbers[np.ix_(*pieces.cells(Resolution.square(7.0), Window(0, 0, *shape)))]
        assert (fine[window.slices] > 0).sum() == (fine > 0).sum()
        assert (window.top + window.height, window.left + window.width) == shape


def two_pieces():
    tissue = blank()
    tissue[20:80, 20:80] = tissue[20:80, 180:260] = True
    return PieceMap.of(tissue, SQUARE)


def test_pieces_are_kept_and_read_back(tmp_path):
    for pieces in (two_pieces(), PieceMap.of(blank(), SQUARE)):
        pieces.save(tmp_path / "pieces.npz")
        found = PieceMap.read(tmp_path / "pieces.npz", hint="again")
        assert (found.pieces, found.mpp) == (pieces.pieces, pieces.mpp)
        np.testing.assert_array_equal(found.numbers, pieces.numbers)


def test_what_is_no_map_of_pieces_is_damaged(tmp_path):
    path, numbers = tmp_path / "pieces.npz", two_pieces().numbers
    for arrays in ({}, {"numbers": numbers.ravel()}, {"numbers": numbers * 1.0}, {"numbers": numbers * np.uint16(2)}):
        write_arrays(path, {"mpp": np.array([MPP, MPP]), **arrays})
        with pytest.raises(DataError, match="cannot read") as found:
            PieceMap.read(path, hint="segment it again")
        assert found.value.hint == "segment it again"


def test_new_tissue_belongs_to_the_nearest_piece_as_near_as_its_fragments():
    pieces, found = two_pieces(), blank()
    reach = int(JOINED_UM / MPP)
    found[30:40, 80 : 80 + reach + 5] = True  # a row beside the first piece, some pixels too long
    found[150:160, 100:110] = True  # far from both
    grown = pieces.with_tissue(found)
    for row, column in np.argwhere(found):
        away = {each.number: distance(pieces.numbers == each.number, row, column) for each in pieces.pieces}
        nearest = min(away, key=away.get)
        assert grown.numbers[row, column] == (nearest if away[nearest] < JOINED_UM else 0)
    np.testing.assert_array_equal(grown.numbers[~found], pieces.numbers[~found])
    first, second = grown.pieces
    rows, columns = ndimage.find_objects((grown.numbers == 1).astype(int))[0]
    assert first.bbox == (rows.start, columns.start, rows.stop - rows.start, columns.stop - columns.start)
    assert first.area_mm2 == pytest.approx((grown.numbers == 1).sum() * MPP**2 / 1e6)
    assert second == pieces.pieces[1]


def distance(inside, row, column):
    """µm from the middle of a pixel to that of the nearest one inside."""
    return np.hypot(*(np.argwhere(inside) - [row, column]).T).min() * MPP
