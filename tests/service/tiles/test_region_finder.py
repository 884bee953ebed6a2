import gzip
import json

import numpy as np
import pytest
from shapely.geometry import MultiPolygon, Point, Polygon, box, mapping, shape
from skimage.measure import label
from tests.evaluation.small import MPP, NAMES
from tests.pipeline.small import BKG
from tests.service.small import segmented

from ntrm.service.tiles.region_finder import LEAST, RegionFinder, holds, rings_of, thinned


def test_every_pixel_finds_its_own_region(tmp_path, random):
    mask = np.full((120, 150), BKG, dtype=np.uint8)
    mask[10:110, 10:140] = NAMES.index("RET")
    mask[20:100, 20:130] = NAMES.index("EPI")  # a ring of RET around EPI …
    mask[30:90, 30:120] = NAMES.index("RET")  # … around RET, in whose box all the others lie
    mask[50:70, 50:70] = NAMES.index("SCC")
    mask[75:80, 90:100] = NAMES.index("SCC")
    segmented(tmp_path, random, mask=mask, tissue_mask=False)
    folder = tmp_path / "out" / "a"
    polygons = (folder / "regions.geojson").read_bytes()
    rows = json.loads((folder / ".ntrm" / "done.json").read_text())["tables"]["regions"]
    finder = RegionFinder(rows, folder / "regions.geojson")
    regions = label(mask.astype(int) + 1, connectivity=1)
    seen = {}
    for _ in range(150):
        row, column = int(random.integers(0, 120)), int(random.integers(0, 150))
        name = NAMES[mask[row, column]]
        found = finder.find(name, column + 0.5, row + 0.5)
        if name == "BKG":
            assert found is None
        else:
            assert found["tissue"] == name
            assert found["area_mm2"] == pytest.approx((regions == regions[row, column]).sum() * (MPP / 1000) ** 2)
            seen[found["region"]] = found
    assert finder.find(None, 1e9, 1e9) is None
    assert finder.row(10**6) is None
    assert all(finder.row(number) == found for number, found in seen.items())
    features = json.loads(polygons.decode())["features"]
    assert len(rows) == len(features) >= 5
    (folder / "packed.geojson.gz").write_bytes(gzip.compress(polygons))
    packed = RegionFinder(rows, folder / "packed.geojson")
    for row, item in zip(rows, features, strict=True):
        for rings in (finder.outline(row["region"]), packed.outline(row["region"])):
            assert [ring.tolist() for ring in rings] == item["geometry"]["coordinates"]
    assert finder.outline(10**6) is None
    (folder / "regions.geojson").write_bytes(b"broken")
    assert RegionFinder(rows, folder / "regions.geojson").outline(rows[0]["region"]) is None


def feature(geometry, **more):
    return json.dumps({"type": "Feature", "geometry": mapping(geometry), "properties": {"a": {}}}, **more).encode()


def shapes(random):
    """A polygon with holes, and two of them."""
    whole = box(0, 0, 100, 80)
    for _ in range(4):
        x, y = random.uniform(5, 70, 2)
        whole = whole.difference(box(x, y, x + random.uniform(1, 20), y + 5))
    other = Polygon(random.uniform(0, 10, (3, 2)) + 200)
    parts = list(whole.geoms) if isinstance(whole, MultiPolygon) else [whole]
    return [whole, MultiPolygon([*parts, other])]


def all_rings(geometry):
    parts = geometry.geoms if isinstance(geometry, MultiPolygon) else [geometry]
    return [ring for part in parts for ring in (part.exterior, *part.interiors)]


@pytest.mark.parametrize("style", [{}, {"separators": (",", ":")}])
def test_rings_are_those_of_the_feature(random, style):
    for geometry in shapes(random):
        rings = rings_of(feature(geometry, **style) + b",\n")
        expected = all_rings(geometry)
        assert len(rings) == len(expected)
        for ring, wanted in zip(rings, expected, strict=True):
            np.testing.assert_array_equal(ring, np.asarray(wanted.coords))


def test_a_point_is_inside_as_shapely_has_it(random):
    for geometry in shapes(random):
        rings = rings_of(feature(geometry))
        for x, y in random.uniform(-5, 105, (200, 2)):
            assert holds(rings, x, y) == shape(geometry).contains(Point(x, y))


@pytest.mark.parametrize(
    "text", [b"", b"{}", b'{"coordinates":[[[1,2],[3', b'{"coordinates":[[["x",1]]]}', b"\xff" * 50]
)
def test_what_is_no_feature_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - of whatever library sees it first
        rings_of(text)


def test_few_points_stay_and_many_are_thinned_evenly(random):
    angles = np.linspace(0, 2 * np.pi, 50_000)
    circle = np.stack([1000 * np.cos(angles), 1000 * np.sin(angles)], axis=1)
    circle[-1] = circle[0]
    holes = [random.uniform(-300, 300, 2) + np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]) for _ in range(3000)]
    assert thinned([circle], 60_000)[0] is circle
    for rings, most in (([circle], 1000), ([circle, *holes], 5000), (holes, 100)):
        fewer = thinned(rings, most)
        assert sum(map(len, fewer)) <= most
        assert all(len(ring) > LEAST and (ring[0] == ring[-1]).all() for ring in fewer)
    (about,) = thinned([circle], 1000)
    assert Polygon(about).area == pytest.approx(np.pi * 1e6, rel=1e-3)
    assert len(about) > 900
