import shutil

import numpy as np
import pytest
import tifffile
from tests.evaluation.small import COLOURS, NAMES
from tests.service.correcting import BKG, image_of
from tests.service.small import only_slide, slide_bytes, upload

from ntrm.core.labels import SAFE_COLOURS
from ntrm.service.tiles.layers import IMPROVEMENT, SAFE_IMPROVEMENT

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture
def tiles(client):
    return f"/v1/slides/{only_slide(client)['id']}/tiles"


def test_the_source(client, tiles, results):
    _, mask = results
    source = client.get(tiles).json()
    assert (source["width"], source["height"], source["tile_size"]) == (mask.shape[1], mask.shape[0], 256)
    assert (source["min_level"], source["max_level"], source["levels"]) == (0, 8, 9)
    assert source["layers"] == ["slide", "tissue", "coarse", "confidence", "interface"]
    assert (source["mask_to_image"], source["image_to_level0"]) == ([1.0, 1.0], [0, 0])
    assert source["mpp"] == pytest.approx(6.7, rel=1e-4)


def test_the_slide_s_tiles_are_its_pixels(client, tiles, results):
    _, mask = results
    pixels = np.array(COLOURS, dtype=np.uint8)[mask]
    shown = np.asarray(image_of(client.get(f"{tiles}/slide/8/0_0.jpg")))
    assert shown.shape == (*mask.shape, 3)
    # JPEG: close on the whole, not at every edge.
    assert np.abs(shown.astype(int) - pixels).mean() < 6
    assert np.asarray(image_of(client.get(f"{tiles}/slide/0/0_0.jpg"))).shape == (1, 1, 3)


def test_tissue_tiles_are_the_mask_with_the_colours_that_were_asked_for(client, tiles, results):
    _, mask = results
    plain = image_of(client.get(f"{tiles}/tissue/8/0_0.png"))
    np.testing.assert_array_equal(np.asarray(plain), mask + 1)
    shown = np.asarray(plain.convert("RGBA"))
    np.testing.assert_array_equal(shown[..., :3], np.array(COLOURS, dtype=np.uint8)[mask])
    np.testing.assert_array_equal(shown[..., 3], np.where(mask == BKG, 0, 255))
    safe = np.asarray(image_of(client.get(f"{tiles}/tissue/8/0_0.png?palette=safe")).convert("RGBA"))
    np.testing.assert_array_equal(safe[..., :3], np.array(SAFE_COLOURS[:4], dtype=np.uint8)[mask])
    hidden = np.asarray(image_of(client.get(f"{tiles}/tissue/8/0_0.png?hide=0,3")).convert("RGBA"))[..., 3]
    np.testing.assert_array_equal(hidden > 0, mask == NAMES.index("RET"))
    only = np.asarray(image_of(client.get(f"{tiles}/tissue/8/0_0.png?only={BKG}")).convert("RGBA"))[..., 3]
    np.testing.assert_array_equal(only > 0, mask == BKG)
    none = np.asarray(image_of(client.get(f"{tiles}/tissue/8/0_0.png?only=200")).convert("RGBA"))[..., 3]
    assert none.max() == 0


def test_certainty(client, tiles, tmp_path):
    stored = tifffile.imread(tmp_path / "out" / "a" / "confidence.ome.tif", series=0)
    image = image_of(client.get(f"{tiles}/confidence/8/0_0.png"))
    np.testing.assert_array_equal(np.asarray(image), stored)
    np.testing.assert_array_equal(np.asarray(image.convert("RGBA"))[..., 3] == 0, stored == 0)


WRONG = [
    ("tissue/9/0_0.png", 404), ("tissue/8/1_0.png", 404), ("tissue/8/0_1.png", 404), ("slide/9/0_0.jpg", 404),
    ("tissue/8/0_0.jpg", 404), ("slide/8/0_0.png", 404), ("improvement/8/0_0.png", 404), ("truth/8/0_0.png", 422),
    ("tissue/-1/0_0.png", 422), ("tissue/8/0.png", 422), ("tissue/8/a_b.png", 422), ("tissue/99/0_0.png", 422),
    ("tissue/8/0_0.png?palette=x", 422), ("tissue/8/0_0.png?hide=x", 422),
    ("confidence/8/0_0.png?palette=safe", 400), ("interface/8/0_0.png", 400), ("interface/8/0_0.png?a=SCC", 400),
    ("interface/8/0_0.png?a=SCC&b=XYZ", 400), ("tissue/8/..%2f0_0.png", 404), ("slide/8/99999999_0.jpg", 404),
]  # fmt: skip


def test_tiles_that_are_none(client, tiles):
    for url, status in WRONG:
        answer = client.get(f"{tiles}/{url}")
        assert answer.status_code == status, url
        assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("changed", ["out/a/summary.json", "in/a.tif"])
def test_tiles_of_other_results_or_of_another_original_have_other_addresses(client, tiles, tmp_path, changed):
    old = client.get(tiles).json()["revision"]
    (tmp_path / changed).touch()
    new = client.get(tiles).json()["revision"]
    assert new != old
    answers = [client.get(f"{tiles}/slide/8/0_0.jpg?r={revision}") for revision in (old, new)]
    # What the browser may have asked for late, under the old address, is not kept there.
    assert [answer.headers["cache-control"] for answer in answers] == ["private, no-store", "private, max-age=86400"]


def test_a_slide_can_be_looked_at_before_it_is_segmented(client, random):
    content = slide_bytes(random, 300, 400)
    sent = upload(client, content).json()
    url = f"/v1/slides/{sent['id']}/tiles"
    source = client.get(url).json()
    assert (source["width"], source["height"], source["layers"], source["mask_to_image"]) == (400, 300, ["slide"], None)
    assert image_of(client.get(f"{url}/slide/9/1_1.jpg")).size == (400 - 256, 300 - 256)
    assert client.get(f"{url}/tissue/9/0_0.png").status_code == 404


def test_new_results_get_new_tiles(client, tiles, tmp_path):
    path = tmp_path / "out" / "a" / "summary.json"
    assert "improvement" not in client.get(tiles).json()["layers"]
    shutil.copy(path.with_name("mask.ome.tif"), path.with_name("truth.ome.tif"))
    assert "improvement" in client.get(tiles).json()["layers"]
    for query, colours in (("", IMPROVEMENT), ("?palette=safe", SAFE_IMPROVEMENT)):
        shown = image_of(client.get(f"{tiles}/improvement/8/0_0.png{query}"))
        index, seen = np.asarray(shown), np.asarray(shown.convert("RGBA"))
        # The mask stands for the truth here, so that nothing was broken.
        assert set(np.unique(index)) == {0, 1}
        np.testing.assert_array_equal(seen[index == 1][:, :3], np.broadcast_to(colours[0], ((index == 1).sum(), 3)))
        assert [tuple(shown.getpalette()[3 * n : 3 * n + 3]) for n in (1, 2)] == colours
