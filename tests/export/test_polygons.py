import numpy as np
import pytest
import shapely
from scipy import ndimage

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE
from ntrm.export import polygons as module
from ntrm.export.polygons import polygons


def noise(random, *, classes=4, block=1):
    """A small mask full of corners that touch, with ignored pixels in it."""
    height, width = random.integers(1, 14, 2)
    mask = random.integers(0, classes + 1, (height, width)).astype(np.uint8)
    mask[mask == classes] = IGNORE
    return np.kron(mask, np.ones((block, block), np.uint8))


def painted(mask, regions):
    """What shapely finds inside the polygons, pixel centre by pixel centre; nowhere twice."""
    rows, columns = np.mgrid[: mask.shape[0], : mask.shape[1]] + 0.5
    out = np.full(mask.shape, IGNORE, np.uint8)
    for region in regions:
        inside = shapely.contains_xy(shapely.Polygon(region.exterior, region.holes), columns, rows)
        assert (out[inside] == IGNORE).all()
        out[inside] = region.class_index
    return out


@pytest.mark.parametrize("block", [1, 2])
def test_noise_comes_back_pixel_by_pixel_whatever_the_bands(random, monkeypatch, block):
    for _ in range(60):
        monkeypatch.setattr(module, "BAND_PIXELS", int(random.integers(1, 100)))
        mask = noise(random, classes=int(random.integers(1, 5)), block=block)
        regions = list(polygons(mask))
        assert np.array_equal(painted(mask, regions), mask)
        # scipy counts the same 4-connected regions, class by class.
        assert len(regions) == sum(ndimage.label(mask == c)[1] for c in range(4))


def test_polygons_are_valid_and_their_measures_are_shapelys(random):
    for _ in range(60):
        mask = noise(random, classes=2)
        for region in polygons(mask):
            polygon = shapely.Polygon(region.exterior, region.holes)
            assert polygon.is_valid, shapely.is_valid_reason(polygon)
            assert polygon.area == region.pixels
            assert polygon.length == region.sides_x + region.sides_y
            assert polygon.bounds == region.bounds
            # Shapely's y points up: what is clockwise on the screen is counter-clockwise to it.
            assert polygon.exterior.is_ccw
            assert not any(hole.is_ccw for hole in polygon.interiors)
            for ring in (region.exterior, *region.holes):
                assert np.array_equal(ring[0], ring[-1])
                assert len(np.unique(ring[:-1], axis=0)) == len(ring) - 1


def test_areas_add_up_to_the_pixel_counts_exactly(random):
    field = ndimage.gaussian_filter(random.standard_normal((5, 300, 400)), (0, 3, 3))
    mask = field.argmax(axis=0).astype(np.uint8)
    mask[mask == 4] = IGNORE
    total = np.zeros(4, int)
    for region in polygons(mask):
        total[region.class_index] += region.pixels
    assert total.tolist() == np.bincount(mask.ravel(), minlength=256)[:4].tolist()


def test_regions_that_touch_at_a_corner_are_two():
    mask = np.array([[1, 2], [2, 1]], np.uint8)
    assert [(r.number, r.class_index, r.pixels) for r in polygons(mask)] == [(1, 1, 1), (2, 2, 1), (3, 2, 1), (4, 1, 1)]


def test_an_outline_that_would_meet_itself_is_split_into_outline_and_hole():
    mask = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]], np.uint8)  # the two 0 touch at a corner inside and outside
    region = next(r for r in polygons(mask, skip=[0]))
    assert [len(region.holes), region.pixels] == [1, 7]
    assert shapely.Polygon(region.exterior, region.holes).is_valid


def test_skipped_classes_have_no_polygon_and_do_not_disturb_the_others(random):
    mask = noise(random, classes=3, block=2)
    kept = [(r.class_index, r.pixels, r.exterior.tolist()) for r in polygons(mask) if r.class_index != 1]
    assert [(r.class_index, r.pixels, r.exterior.tolist()) for r in polygons(mask, skip=[1])] == kept


def test_mean_confidence_is_that_of_the_pixels(random, monkeypatch):
    monkeypatch.setattr(module, "BAND_PIXELS", 30)
    mask = np.kron(random.integers(0, 3, (6, 7)), np.ones((3, 3))).astype(np.uint8)
    confidence = random.integers(0, 256, mask.shape).astype(np.uint8)
    for region in polygons(mask, confidence=confidence):
        x, y = region.exterior[0]  # the first pixel in reading order lies right below
        labels, _ = ndimage.label(mask == region.class_index)
        assert region.confidence == pytest.approx(confidence[labels == labels[y, x]].mean())


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (4, 4)])
def test_nothing_gives_no_polygon(shape):
    assert list(polygons(np.full(shape, IGNORE, np.uint8))) == []


def test_wrong_arrays_are_refused():
    with pytest.raises(DataError, match="two axes"):
        list(polygons(np.zeros((2, 2, 3), np.uint8)))
    with pytest.raises(DataError, match="two axes"):
        list(polygons(np.zeros((2, 2), np.int64)))
    with pytest.raises(DataError, match="differ in size"):
        list(polygons(np.zeros((2, 2), np.uint8), confidence=np.zeros((2, 3))))
