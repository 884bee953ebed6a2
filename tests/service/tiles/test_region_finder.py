import gzip
import json

import numpy as np
import pytest
from skimage.measure import label
from tests.evaluation.small import MPP, NAMES
from tests.pipeline.small import BKG
from tests.service.small import segmented

from ntrm.service.tiles.region_finder import RegionFinder


@pytest.mark.parametrize("packed", [False, True])
def test_every_pixel_finds_its_own_region(tmp_path, random, packed):
    mask = np.full((120, 150), BKG, dtype=np.uint8)
    mask[10:110, 10:140] = NAMES.index("RET")
    mask[20:100, 20:130] = NAMES.index("EPI")  # a ring of RET around EPI …
    mask[30:90, 30:120] = NAMES.index("RET")  # … around RET, in whose box all the others lie
    mask[50:70, 50:70] = NAMES.index("SCC")
    mask[75:80, 90:100] = NAMES.index("SCC")
    segmented(tmp_path, random, mask=mask, tissue_mask=False)
    folder = tmp_path / "out" / "a"
    polygons = (folder / "regions.geojson").read_bytes()
    if packed:
        (folder / "regions.geojson.gz").write_bytes(gzip.compress(polygons))
        (folder / "regions.geojson").unlink()
    rows = json.loads((folder / ".ntrm" / "done.json").read_text())["tables"]["regions"]
    finder = RegionFinder(rows, folder / "regions.geojson")
    truth = label(mask.astype(int) + 1, connectivity=1)
    seen = {}
    for _ in range(150):
        row, column = int(random.integers(0, 120)), int(random.integers(0, 150))
        name = NAMES[mask[row, column]]
        found = finder.find(name, column + 0.5, row + 0.5)
        if name == "BKG":
            assert found is None
        else:
            assert found["tissue"] == name
            assert found["area_mm2"] == pytest.approx((truth == truth[row, column]).sum() * (MPP / 1000) ** 2)
            seen[found["region"]] = found
    assert finder.find(None, 1e9, 1e9) is None
    assert finder.row(10**6) is None
    assert all(finder.row(number) == found for number, found in seen.items())
    features = json.loads(polygons.decode())["features"]
    assert len(rows) == len(features) >= 5
    for row, feature in zip(rows, features, strict=True):
        rings = finder.outline(row["region"])
        assert [ring.tolist() for ring in rings] == feature["geometry"]["coordinates"]
    assert finder.outline(10**6) is None
    for path in folder.glob("regions.geojson*"):
        path.write_bytes(b"broken")
    assert RegionFinder(rows, folder / "regions.geojson").outline(rows[0]["region"]) is None
