import gzip
import json

import numpy as np
import pytest
from shapely.geometry import Polygon
from skimage.measure import label
from tests.evaluation.small import MPP, NAMES
from tests.segment.small import BKG
from tests.service.small import segmented

from ntrm.service.tiles.region_finder import LEAST, RegionFinder, thinned


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
    assert finder.rows.get(10**6) is None
    assert all(finder.rows[number] == found for number, found in seen.items())
    features = json.loads(polygons.decode())["features"]
    assert len(rows) == len(features) >= 5
    (folder / "packed.geojson.gz").write_bytes(gzip.compress(polygons))
    packed = RegionFinder(rows, folder / "packed.geojson")
    for row, item in zip(rows, features, strict=True):
        for rings in (finder.outline(row["region"]), packed.outline(row["region"])):
            assert [ring.tolist() for ring in rings] == item["geometry"]["coordinates"]
    assert finder.outline(10**6) is None
    deep = b'{"type":"GeometryCollection","geometries":[' * 300_000 + b"]}" * 300_000
    for damaged in (b"", b"broken", b"{}", b'{"coordinates":[[[1,2],[3', b"\xff" * 50, deep):
        (folder / "regions.geojson").write_bytes(b"{\n" + damaged + b"\n" + damaged)
        assert RegionFinder(rows, folder / "regions.geojson").outline(rows[0]["region"]) is None


def test_few_points_stay_and_many_are_thinned_evenly(random):
    angles = np.linspace(0, 2 * np.pi, 50_000)
    circle = np.stack([1000 * np.cos(angles), 1000 * np.sin(angles)], axis=1)
    circle[-1] = circle[0]
    holes = [random.uniform(-300, 300, 2) + np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]) for _ in range(3000)]
    assert thinned([circle], 60_000)[0] is circle
    for rings, most in (([circle], 1000), ([circle, *holes], 5000), ([circle, circle, *holes], 2000)):
        fewer = thinned(rings, most)
        assert sum(map(len, fewer)) <= most
        assert all(len(ring) > LEAST and (ring[0] == ring[-1]).all() for ring in fewer)
    (about,) = thinned([circle], 1000)
    assert Polygon(about).area == pytest.approx(np.pi * 1e6, rel=1e-3)
    assert len(about) > 450
