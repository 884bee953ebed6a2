"""Crossing outlines: the same area as a literal count gives, or an error within the limits."""

import gzip
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.annotations import qupath
from ntrm.annotations.pairing import pair_files
from ntrm.annotations.qupath import AnnotationFile, read_annotations, repaired
from ntrm.core.errors import DataError

SQUARE = [[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]
HOLE = [[2, 2], [2, 4], [4, 4], [4, 2], [2, 2]]
EPI = {"objectType": "annotation", "classification": {"name": "EPI", "color": [1, 2, 3]}}


def feature(coordinates, kind="Polygon", properties=EPI):
    return {"type": "Feature", "geometry": {"type": kind, "coordinates": coordinates}, "properties": properties}


def collection(*features):
    return {"type": "FeatureCollection", "features": list(features)}


def read(folder: Path, document) -> AnnotationFile:
    path = folder / "a.geojson"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return read_annotations(path)


def region(annotation) -> shapely.Geometry:
    """The annotation's even-odd inside, built ring by ring."""
    area = shapely.Polygon()
    for ring in annotation.rings:
        area = area.symmetric_difference(shapely.Polygon(ring))
    return area


@pytest.mark.parametrize(
    "document",
    [
        collection(feature([SQUARE, HOLE])),
        feature([SQUARE, HOLE]),
        [feature([SQUARE, HOLE])],
        feature([SQUARE[:-1], HOLE[:-1]]),
        feature([[[*point, 7.5] for point in SQUARE], HOLE]),
        feature([[SQUARE, HOLE]], "MultiPolygon"),
        feature([SQUARE, HOLE], properties={"classification": "EPI"}),
        feature([SQUARE, HOLE], properties={"objectType": "annotation", "classification": {"names": ["EPI"]}}),
        "\ufeff" + json.dumps(feature([SQUARE, HOLE])),
        {
            **feature(None),
            "geometry": {
                "type": "GeometryCollection",
                "geometries": [
                    {"type": "Point", "coordinates": [1, 1]},
                    {"type": "Polygon", "coordinates": [SQUARE, HOLE]},
                ],
            },
        },
    ],
    ids=["collection", "feature", "list", "unclosed", "3d", "multi", "string", "names", "bom", "geometry-collection"],
)
def test_the_forms_qupath_and_others_write(tmp_path, document):
    (annotation,) = read(tmp_path, document).annotations
    assert annotation.name == "EPI"
    assert annotation.area == 96
    assert annotation.bounds == (0, 0, 10, 10)
    assert region(annotation).equals(shapely.Polygon(SQUARE, [HOLE]))


def test_what_is_no_area_is_counted(tmp_path):
    found = read(
        tmp_path,
        collection(
            feature([1, 2], "Point"),
            feature([[1, 2], [3, 4]], "LineString"),
            {"type": "Feature", "geometry": None, "properties": {}},
            feature([SQUARE], properties={**EPI, "objectType": "cell"}),
            feature([[[1, 1], [2, 2]]]),
            feature([[[1, 1], [2, 2], [3, 3], [1, 1]]]),
            feature([SQUARE], properties={}),
            feature([SQUARE], properties=None),
        ),
    )
    assert found.counts == {"not_annotations": 1, "not_areas": 3, "degenerate": 2, "repaired": 1}
    assert [a.name for a in found.annotations] == ["", ""]


@given(seed=st.integers(0, 2**32 - 1))
def test_scribbles_keep_their_even_odd_inside(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    ring = rng.uniform(0, 100, (rng.integers(4, 12), 2))
    (annotation,) = read(tmp_path_factory.mktemp("scribble"), feature([ring.tolist()])).annotations
    points = rng.uniform(0, 100, (200, 2))
    assert np.array_equal(shapely.contains_xy(region(annotation), points), [_inside(ring, *p) for p in points])


def _inside(ring, x, y):
    """Literal ray casting."""
    inside = False
    for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
        if (y0 > y) != (y1 > y) and x < x0 + (y - y0) * (x1 - x0) / (y1 - y0):
            inside = not inside
    return inside


WHOLE = json.dumps(collection(feature([SQUARE, HOLE])))


@pytest.mark.parametrize(
    "text",
    [
        "",
        WHOLE[: len(WHOLE) // 2],
        "[" * 100_000,
        '{"type": "FeatureCollection"}',
        '{"type": "Polygon", "coordinates": []}',
        json.dumps(feature([SQUARE], properties=[1])),
        json.dumps(feature([SQUARE], properties={"classification": {"name": {"deep": 1}}})),
        json.dumps(feature([SQUARE], "Circle")),
        json.dumps(feature("everywhere")),
        json.dumps(feature([[[1], [1, 2], [3, 4]]])),
        json.dumps(feature([[[0, 0], [float("nan"), 0], [1, 1]]])),
        json.dumps(feature([[[0, 0], [1, 0], [1, "1e999"]]])),
        json.dumps(feature([[[0, 0], [10**400, 0], [1, 1]]])),
        json.dumps(feature([[[0, 0], [-2e7, 0], [1, 1]]])),
    ],
)
def test_broken_files_are_refused_with_a_hint(tmp_path, text):
    with pytest.raises(DataError) as caught:
        read(tmp_path, text)
    assert caught.value.got is not None
    assert caught.value.hint
    assert "a.geojson" in caught.value.what


def test_a_small_file_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ntrm.annotations.qupath.MAX_BYTES", 1000)
    path = tmp_path / "a.geojson.gz"
    path.write_bytes(gzip.compress(b" " * 2000))
    with pytest.raises(DataError, match="too large"):
        read_annotations(path)


numbers = st.floats(allow_nan=False, width=32) | st.integers(-20, 20)
junk = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["type", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)
rings = st.lists(st.lists(st.lists(numbers, min_size=1, max_size=3), max_size=7), max_size=3)
kinds = st.sampled_from(["Polygon", "MultiPolygon", "Point", "GeometryCollection"])


@settings(max_examples=150)
@given(document=junk | st.builds(feature, rings | junk, kinds, junk | st.just(EPI)))
def test_anything_is_read_or_refused(tmp_path_factory, document):
    folder = tmp_path_factory.getbasetemp()
    try:
        found = read(folder, document).annotations
    except DataError:
        found = ()
    assert all(a.area > 0 and a.rings for a in found)


def scribble(points, seed=3):
    """A ring whose every edge crosses a third of the others."""
    return np.random.default_rng(seed).uniform(0, 1000, (points, 2)).round(1)


def read_rings(folder, *rings):
    return read(folder, collection(*(feature([ring.tolist()], properties={}) for ring in rings)))


def test_holes_are_subtracted_and_polygons_joined():
    square = np.array([[0, 0], [10, 0], [10, 10], [0, 10.0]])
    tie = np.array([[0, 0], [10, 10], [10, 0], [0, 10.0]])
    found = repaired([[square, tie], [square + 5, square * 0.2 + 7], [square / 10 + 20]])
    # Half of the first square, three quarters of the second less a hole of 4, of which a quarter lies in the first's
    # half and stays; all counted on a fine raster.
    y, x = np.mgrid[0:30:0.05, 0:30:0.05] + 0.0251
    first = (x < 10) & (y < 10) & ((x > y) == (x + y > 10))
    second = (abs(x - 10) < 5) & (abs(y - 10) < 5) & ~((abs(x - 8) < 1) & (abs(y - 8) < 1))
    third = (abs(x - 20.5) < 0.5) & (abs(y - 20.5) < 0.5)
    assert found.area == pytest.approx((first | second | third).sum() * 0.05**2, rel=0.01)


def test_outlines_that_cross_themselves_too_often_are_named_soon(tmp_path, monkeypatch):
    monkeypatch.setattr(qupath, "MOST_MEETINGS", 2000)
    with pytest.raises(DataError, match=r"a\.geojson, feature 3: the outline crosses itself too often") as caught:
        read_rings(tmp_path, scribble(5), scribble(60), scribble(3000))
    assert (caught.value.got, "simplify" in caught.value.hint) == ("3,000 points", True)


def test_files_of_a_qupath_project_are_refused_with_what_to_do(tmp_path):
    # Java's own objects: reading them would run whatever they name.
    for name, content in (("project.qpproj", b'{"version": "0.5.1"}'), ("data.qpdata", b"\xac\xed\x00\x05sr")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "slide.svs").touch()
    asked = [(read_annotations, tmp_path / name) for name in ("project.qpproj", "data.qpdata", ".")]
    for read_it, path in (*asked, (partial(pair_files, tmp_path / "slide.svs"), tmp_path)):
        with pytest.raises(DataError, match="belongs to a QuPath project") as caught:
            read_it(path)
        assert "Export objects as GeoJSON" in caught.value.hint
