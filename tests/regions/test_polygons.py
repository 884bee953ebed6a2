from dataclasses import replace

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import Delaunay
from tests.helpers import star

from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.regions import polygons as module
from ntrm.regions import regions as engine
from ntrm.regions import runs
from ntrm.regions.polygons import fill, outlines_of
from ntrm.regions.regions import scan_mask

MPP = Resolution.square(1.0)


def noise(random, *, classes=4, block=1):
    """A small mask full of corners that touch, with ignored pixels in it."""
    height, width = random.integers(1, 14, 2)
    mask = random.integers(0, classes + 1, (height, width)).astype(np.uint8)
    mask[mask == classes] = IGNORE
    return np.kron(mask, np.ones((block, block), np.uint8))


def outlined(mask, background=None):
    """The table of the regions, and a polygon for each."""
    regions = scan_mask(mask, replace(SKIN, background=background), MPP)
    found = []
    for outlines in outlines_of(regions):
        for spans in outlines.spans():
            outline, *holes = (outlines.points[begin:end] for begin, end in spans)
            found.append(shapely.Polygon(outline, holes))
    assert len(found) == len(regions.table)
    return regions.table, found


def painted(mask, table, found):
    """What shapely finds inside the polygons, pixel centre by pixel centre; nowhere twice."""
    rows, columns = np.mgrid[: mask.shape[0], : mask.shape[1]] + 0.5
    out = np.full(mask.shape, IGNORE, np.uint8)
    for tissue, polygon in zip(table.tissue, found, strict=True):
        inside = shapely.contains_xy(polygon, columns, rows)
        assert (out[inside] == IGNORE).all()
        out[inside] = tissue
    return out


@pytest.mark.parametrize("block", [1, 2])
def test_noise_comes_back_pixel_by_pixel_however_it_is_cut(random, monkeypatch, block):
    for _ in range(30):
        monkeypatch.setattr(engine, "STRIP_PIXELS", int(random.integers(1, 100)))
        monkeypatch.setattr(runs, "STRIP_RUNS", int(random.integers(1, 100)))
        monkeypatch.setattr(module, "CORNERS", int(random.integers(1, 100)))
        mask = noise(random, classes=int(random.integers(1, 5)), block=block)
        assert np.array_equal(painted(mask, *outlined(mask)), mask)


def test_polygons_are_valid_and_their_measures_are_shapelys(random):
    for _ in range(30):
        mask = noise(random, classes=2)
        table, found = outlined(mask)
        for region, polygon in enumerate(found):
            assert polygon.is_valid, shapely.is_valid_reason(polygon)
            assert polygon.area == table.pixels[region]
            assert polygon.length == pytest.approx(1e3 * table.perimeter_mm[region])
            top, left, height, width = table.box[region]
            assert polygon.bounds == (left, top, left + width, top + height)
            # Shapely's y points up: what is clockwise on the screen is counter-clockwise to it.
            assert polygon.exterior.is_ccw
            assert not any(hole.is_ccw for hole in polygon.interiors)
            for ring in (polygon.exterior, *polygon.interiors):
                corners = shapely.get_coordinates(ring)
                assert np.array_equal(corners[0], corners[-1])
                assert len(np.unique(corners[:-1], axis=0)) == len(corners) - 1


def test_an_outline_that_would_meet_itself_is_split_into_outline_and_hole():
    mask = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]], np.uint8)  # the two 0 touch at a corner inside and outside
    table, (polygon,) = outlined(mask, SKIN.names[0])
    assert [len(polygon.interiors), table.pixels[0]] == [1, 7]
    assert polygon.is_valid


@given(seed=st.integers(0, 2**32 - 1))
def test_random_polygons_with_holes_match_shapely(seed):
    rng = np.random.default_rng(seed)
    width, height = rng.integers(1, 90, 2)
    outer = star(rng, rng.uniform(-10, 100, 2), rng.uniform(1, 80), rng.integers(3, 40))
    solid = shapely.Polygon(outer).buffer(0)
    inner = solid.buffer(-3)
    area = solid.difference(shapely.Polygon(star(rng, outer.mean(axis=0), 20, 9)).buffer(0).intersection(inner))
    rings = [np.array(r.coords) for p in shapely.get_parts(area) for r in (p.exterior, *p.interiors)]
    y, x = np.mgrid[:height, :width] + 0.5
    assert np.array_equal(fill(rings, width, height), shapely.contains_xy(area, x, y))


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), whole=st.booleans())
def test_areas_that_share_edges_neither_overlap_nor_leave_gaps(seed, whole):
    rng = np.random.default_rng(seed)
    corners = np.array([[0, 0], [40, 0], [40, 30], [0, 30]], dtype=float)
    inner = rng.uniform(0, 30, (30, 2))
    # Whole and half numbers put centres exactly on edges and corners.
    points = np.concatenate([corners, np.round(2 * inner) / 2 if whole else inner])
    points = np.unique(points, axis=0)
    times = sum(fill([points[t]], 40, 30).astype(int) for t in Delaunay(points).simplices)
    assert (times == 1).all()
