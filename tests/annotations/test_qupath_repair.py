"""Crossing outlines: the same area as a literal count gives, or an error within the limits."""

import json

import numpy as np
import pytest
import shapely

from ntrm.annotations import qupath
from ntrm.annotations.qupath import read_annotations, repair
from ntrm.core.errors import DataError


def scribble(points, seed=3):
    """A ring whose every edge crosses a third of the others."""
    return np.random.default_rng(seed).uniform(0, 1000, (points, 2)).round(1)


def write(path, *rings):
    features = [
        {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring.tolist()]}, "properties": {}}
        for ring in rings
    ]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def assert_same(one, other):
    assert (one.area, one.bounds) == (other.area, other.bounds)
    assert all(np.array_equal(a, b) for a, b in zip(one.rings, other.rings, strict=True))


def test_repaired_areas_are_those_of_geos(random):
    for points in (5, 12, 40):
        ring = random.uniform(0, 100, (points, 2))
        (found,) = repair([[[ring]]])
        expected = shapely.make_valid(shapely.Polygon(ring))
        assert found.area == pytest.approx(expected.area)
        assert found.bounds == pytest.approx(expected.bounds)


def test_holes_are_taken_away_and_parts_put_together():
    square = np.array([[0, 0], [10, 0], [10, 10], [0, 10.0]])
    tie = np.array([[0, 0], [10, 10], [10, 0], [0, 10.0]])
    (found,) = repair([[[square, tie], [square + 5, square * 0.2 + 7], [square / 10 + 20]]])
    # Half of the first square, three quarters of the second less a hole of 4, of which a quarter lies in the first's
    # half and stays; all counted on a fine raster.
    y, x = np.mgrid[0:30:0.05, 0:30:0.05] + 0.0251
    first = (x < 10) & (y < 10) & ((x > y) == (x + y > 10))
    second = (abs(x - 10) < 5) & (abs(y - 10) < 5) & ~((abs(x - 8) < 1) & (abs(y - 8) < 1))
    third = (abs(x - 20.5) < 0.5) & (abs(y - 20.5) < 0.5)
    assert found.area == pytest.approx((first | second | third).sum() * 0.05**2, rel=0.01)


def test_a_process_of_its_own_gives_the_same(tmp_path, monkeypatch):
    areas = [[[scribble(points)]] for points in (5, 30, 20)]
    here = repair(areas)
    monkeypatch.setattr(qupath, "AT_ONCE", 0)
    there = repair(areas)
    assert len(there) == len(areas)
    for one, other in zip(there, here, strict=True):
        assert_same(one, other)


def test_outlines_that_cross_themselves_too_often_are_named_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(qupath, "SECONDS", 0.2)
    path = write(tmp_path / "a.geojson", scribble(5), scribble(60), scribble(3000))
    with pytest.raises(DataError, match=r"a\.geojson, feature 3: the outline crosses itself too often") as caught:
        read_annotations(path)
    assert (caught.value.got, "simplify" in caught.value.hint) == ("3,000 points", True)


def test_memory_is_limited(monkeypatch):
    monkeypatch.setattr(qupath, "MEMORY_MB", 16)
    assert len(repair([[[scribble(120)]], [[scribble(600)]]])) == 1


def test_outlines_of_too_many_points_are_not_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(qupath, "MAX_POINTS", 20)
    with pytest.raises(DataError, match="feature 2"):
        read_annotations(write(tmp_path / "a.geojson", scribble(20), scribble(21)))


def test_sound_outlines_of_any_length_start_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(qupath.subprocess, "run", None)
    angle = np.linspace(0, 2 * np.pi, 50_000, endpoint=False)
    ring = 1e5 + 9e4 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    (found,) = read_annotations(write(tmp_path / "a.geojson", ring)).annotations
    assert found.area == pytest.approx(np.pi * 9e4**2)
