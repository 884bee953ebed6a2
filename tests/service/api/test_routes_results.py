import json

import numpy as np
import pytest
import tifffile
from tests.evaluation.small import MPP, NAMES
from tests.segment.judged import STRANGE, judge_as
from tests.segment.small import paint, run, write_slide
from tests.service.correcting import click, image_of
from tests.service.small import error_of, only_slide, segmented, serving, settings_of, slide_bytes, upload

from ntrm.service.api.routes_results import REPORT_POLICY

pytestmark = pytest.mark.usefixtures("quick_readers")


def test_files_are_handed_out_as_they_are(client, tmp_path):
    folder = tmp_path / "out" / "a"
    url = f"/v1/slides/{only_slide(client)['id']}"
    expected = [
        ("summary", "summary.json", "application/json", False),
        ("graph", "graph.json", "application/json", False),
        ("regions.geojson", "regions.geojson", "application/geo+json", True),
        ("mask", "mask.ome.tif", "image/tiff", True),
        ("overlay.png", "overlay.png", "image/png", False),
        ("report", "report.html", "text/html; charset=utf-8", False),
    ]
    for name, file, kind, attached in expected:
        answer = client.get(f"{url}/{name}")
        assert answer.status_code == 200
        assert answer.content == (folder / file).read_bytes()
        assert answer.headers["content-type"] == kind
        assert answer.headers["cache-control"] == "private, no-cache"
        assert ("content-disposition" in answer.headers) == attached
        if attached:
            assert answer.headers["content-disposition"] == f'attachment; filename="a-{file}"'
    policy = client.get(f"{url}/report").headers["content-security-policy"]
    assert policy == REPORT_POLICY
    assert "script" not in policy
    part = client.get(f"{url}/mask", headers={"Range": "bytes=10-19"})
    size = (folder / "mask.ome.tif").stat().st_size
    assert (part.status_code, part.content) == (206, (folder / "mask.ome.tif").read_bytes()[10:20])
    beyond = client.get(f"{url}/mask", headers={"Range": f"bytes={size}-"})
    assert beyond.status_code == 416
    assert beyond.headers["content-range"] == f"bytes */{size}"


def test_the_slide_document_agrees_with_the_results(client, results):
    _, mask = results
    slide = only_slide(client)
    assert (slide["status"], slide["progress"], slide["has_image"]) == ("done", 1.0, True)
    assert (slide["width"], slide["height"]) == (mask.shape[1], mask.shape[0])
    areas = {item["name"]: item["area_mm2"] for item in slide["tissue"]}
    for index, name in enumerate(NAMES):
        if name != "BKG":
            assert areas[name] == pytest.approx((mask == index).sum() * (MPP / 1000) ** 2)
    assert {item["name"]: item["present"] for item in slide["cancers"]}["SCC"] is True
    assert [item["index"] for item in slide["tissue"]] == [0, 1, 3]
    assert sum(item["share"] for item in slide["tissue"]) == pytest.approx(1)
    assert slide["layers"] == ["slide", "tissue", "coarse", "confidence", "interface"]
    assert slide["pieces"] == 1


def test_what_lies_at_a_point_agrees_with_the_mask(client, tmp_path, results, random):
    _, mask = results
    url = f"/v1/slides/{only_slide(client)['id']}"
    stored = tifffile.imread(tmp_path / "out" / "a" / "mask.ome.tif", series=0)
    confidence = tifffile.imread(tmp_path / "out" / "a" / "confidence.ome.tif", series=0)
    coarse = tifffile.imread(tmp_path / "out" / "a" / "coarse.ome.tif", series=0)
    for _ in range(12):
        x, y = (float(v) for v in random.random(2) * (mask.shape[1], mask.shape[0]))
        answer = client.get(f"{url}/at", params={"x": x, "y": y}).json()
        value = int(stored[int(y), int(x)])
        assert answer["tissue"] == (NAMES[value - 1] if value else None)
        assert answer["tissue_index"] == (value - 1 if value else None)
        assert answer["coarse_index"] == (int(coarse[int(y), int(x)]) - 1 if coarse[int(y), int(x)] else None)
        if value:
            assert answer["confidence"] == pytest.approx(int(confidence[int(y), int(x)]) / 255)
        if answer["tissue"] in (None, "BKG"):
            assert answer["region"] is None
        else:
            region = client.get(f"{url}/regions/{answer['region']}").json()
            assert region["tissue"] == answer["tissue"]
            assert region["piece"] == answer["piece"] == 1
            assert region["left_px"] <= x < region["left_px"] + region["width_px"]
            assert region["top_px"] <= y < region["top_px"] + region["height_px"]
            assert region["outline_exact"]
    beyond = client.get(f"{url}/at", params={"x": 10**6, "y": 5}).json()
    assert (beyond["tissue"], beyond["region"], beyond["confidence"]) == (None, None, None)
    for wrong in ({"x": -1, "y": 0}, {"x": "nan", "y": 0}, {"x": "inf", "y": 0}, {"x": 1}, {}):
        assert client.get(f"{url}/at", params=wrong).status_code == 422
    for number, status in ((10**6, 404), (0, 422), (-1, 422), ("x", 422)):
        assert client.get(f"{url}/regions/{number}").status_code == status


def test_thumbnails_of_results_of_uploads_and_of_nothing(client, random):
    slide = only_slide(client)
    answer = client.get(f"/v1/slides/{slide['id']}/thumbnail.jpg")
    assert answer.headers["content-type"] == "image/jpeg"
    assert max(image_of(answer).size) <= 512
    sent = upload(client, slide_bytes(random)).json()
    answer = client.get(f"/v1/slides/{sent['id']}/thumbnail.jpg")
    assert image_of(answer).size == (120, 90)
    (client.app_state.settings.hidden / "uploads" / sent["id"]).unlink()
    again = client.get(f"/v1/slides/{sent['id']}/thumbnail.jpg")
    assert again.content == answer.content


def test_without_results_there_are_neither_files_nor_corrections(client, random):
    sent, nowhere = upload(client, slide_bytes(random)).json()["id"], "0" * 24
    files = ("summary", "graph", "regions.geojson", "mask", "report", "overlay.png", "at?x=1&y=1", "regions/1")
    for asked in (*files, "corrections", "corrected/mask"):
        for key in (sent, nowhere):
            assert error_of(client.get(f"/v1/slides/{key}/{asked}")) == (404, "not_found")
    answer = client.post(f"/v1/slides/{sent}/corrections", json=click((1, 1)))
    assert error_of(answer) == (404, "not_found")


def test_results_of_a_slide_that_is_nowhere_are_shown_without_it(tmp_path, results, model):
    results[0].unlink()
    with serving(settings_of(tmp_path / "out", model)) as client:
        slide = only_slide(client)
        assert (slide["has_image"], slide["status"]) == (False, "done")
        assert "slide" not in slide["layers"]
        url = f"/v1/slides/{slide['id']}"
        assert client.get(f"{url}/thumbnail.jpg").status_code == 200
        assert client.get(f"{url}/tiles").json()["layers"] == slide["layers"]
        assert client.get(f"{url}/tiles/slide/0/0_0.jpg").status_code == 404
        assert client.get(f"{url}/tiles/tissue/0/0_0.png").status_code == 200


def test_a_slide_without_tissue_is_shown_as_such_and_packed_polygons_are_unpacked_on_the_way(tmp_path, model, random):
    glass = np.full((100, 120), NAMES.index("BKG"), dtype=np.uint8)
    segmented(tmp_path, random, mask=glass, maps=True, gzip=True)
    with serving(settings_of(tmp_path / "out", model)) as client:
        slide = only_slide(client)
        assert (slide["status"], slide["pieces"], slide["tissue_area_mm2"]) == ("done", 0, 0)
        assert {item["share"] for item in slide["tissue"]} == {None}
        assert not any(item["present"] for item in slide["cancers"])
        url = f"/v1/slides/{slide['id']}"
        assert client.get(f"{url}/at?x=5&y=5").json()["region"] is None
        assert client.get(f"{url}/tiles/tissue/7/0_0.png").status_code == 200
        answer = client.get(f"{url}/regions.geojson")
        assert answer.headers["content-encoding"] == "gzip"
        assert json.loads(answer.content)["type"] == "FeatureCollection"


def test_coordinates_of_a_slide_that_is_finer_than_the_model(tmp_path, model, random):
    mask = paint(random)
    path = write_slide(tmp_path / "in" / "fine.tif", np.kron(mask, np.ones((2, 2), dtype=np.uint8)), mpp=MPP / 2)
    assert run(path, tmp_path / "out").exit_code == 0
    with serving(settings_of(tmp_path / "out", model)) as client:
        slide = only_slide(client)
        url = f"/v1/slides/{slide['id']}"
        assert (slide["width"], slide["height"]) == (2 * mask.shape[1], 2 * mask.shape[0])
        assert client.get(f"{url}/tiles").json()["mask_to_image"] == [2.0, 2.0]
        row, column = np.argwhere(mask == NAMES.index("SCC"))[0]
        point = client.get(f"{url}/at", params={"x": 2 * column + 1.9, "y": 2 * row + 0.1}).json()
        assert point["tissue"] == "SCC"
        region = client.get(f"{url}/regions/{point['region']}").json()
        assert (region["left_px"], region["top_px"]) == (2 * column, 2 * row)


def test_an_unfamiliar_slide_says_so_over_http_and_shows_where(tmp_path, model, random, monkeypatch):
    judge_as(monkeypatch, STRANGE, {1: STRANGE}, [(0, 0, 60, 60, 0.01)])
    segmented(tmp_path, random)
    with serving(settings_of(tmp_path / "out", model)) as client:
        slide = only_slide(client)
        shown = client.get(f"/v1/slides/{slide['id']}/familiarity.jpg")
    assert slide["cancers"] == [{"name": "SCC", "present": None, "confidence": None}]
    assert slide["cancers_looked_for"] == ["SCC"]
    assert slide["familiarity"] == {
        "verdict": "unfamiliar",
        "p_value": 0.002,
        "aspects": dict(STRANGE.aspects),
        "reasons": list(STRANGE.reasons),
        "unfamiliar_pieces": [1],
        "has_map": True,
    }
    assert slide["warnings"][0] == STRANGE.warning
    assert slide["quality_warnings"] == slide["warnings"][1:]
    assert shown.headers["content-type"] == "image/jpeg"
    assert shown.content == (tmp_path / "out" / "a" / "familiarity.jpg").read_bytes()
