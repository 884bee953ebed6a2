import numpy as np
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import Delaunay
from tests.helpers import star

from ntrm.regions.polygons import fill

seeds = st.integers(0, 2**32 - 1)


def centres(width, height):
    y, x = np.mgrid[:height, :width] + 0.5
    return x, y


@given(seed=seeds)
def test_random_polygons_with_holes_match_shapely(seed):
    rng = np.random.default_rng(seed)
    width, height = rng.integers(1, 90, 2)
    outer = star(rng, rng.uniform(-10, 100, 2), rng.uniform(1, 80), rng.integers(3, 40))
    solid = shapely.Polygon(outer).buffer(0)
    inner = solid.buffer(-3)
    area = solid.difference(shapely.Polygon(star(rng, outer.mean(axis=0), 20, 9)).buffer(0).intersection(inner))
    rings = [np.array(r.coords) for p in shapely.get_parts(area) for r in (p.exterior, *p.interiors)]
    x, y = centres(width, height)
    assert np.array_equal(fill(rings, width, height), shapely.contains_xy(area, x, y))


@settings(max_examples=20)
@given(seed=seeds, whole=st.booleans())
def test_areas_that_share_edges_neither_overlap_nor_leave_gaps(seed, whole):
    rng = np.random.default_rng(seed)
    corners = np.array([[0, 0], [40, 0], [40, 30], [0, 30]], dtype=float)
    inner = rng.uniform(0, 30, (30, 2))
    # Whole and half numbers put centres exactly on edges and corners.
    points = np.concatenate([corners, np.round(2 * inner) / 2 if whole else inner])
    points = np.unique(points, axis=0)
    times = sum(fill([points[t]], 40, 30).astype(int) for t in Delaunay(points).simplices)
    assert (times == 1).all()
