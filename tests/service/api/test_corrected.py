"""The corrected mask over HTTP: its tiles, borders, places and regions, and its files, which are made soon."""

import shutil

import numpy as np
import pytest
import tifffile
from scipy import ndimage
from tests.helpers import wait_for
from tests.service.correcting import EPI, PIXEL_MM2, RET, SCC, click, image_of, middle_of, shown
from tests.service.small import error_of, only_slide, serving, settings_of

from ntrm.correct.log import read_log
from ntrm.correct.mask import open_mask
from ntrm.correct.results import is_current, write_corrected
from ntrm.service.api import routes_corrections
from ntrm.service.jobs import worker
from ntrm.service.tiles.layers import BORDER

pytestmark = pytest.mark.usefixtures("quick_readers", "quick_worker")


@pytest.fixture
def base(url):
    return url.removesuffix("/corrections")


@pytest.fixture
def renamed(client, url, results):
    """The mask after its SCC was called EPI."""
    _, mask = results
    assert client.post(url, json=click(middle_of(mask, SCC), whole_regions=True)).status_code == 201
    return np.where(mask == SCC, EPI, mask)


def test_tiles_are_told_apart_by_version_and_look_like_those_of_the_tissue(client, url, results, renamed):
    _, mask = results
    np.testing.assert_array_equal(shown(client, url, v=1), renamed)
    np.testing.assert_array_equal(shown(client, url, v=0), mask)
    tiles = url.replace("corrections", "tiles/corrected/8/0_0.png")
    revision = client.get(url).json()["revision"]
    assert client.get(f"{tiles}?v=1&r={revision}").headers["cache-control"] == "private, max-age=86400"
    for other in (f"{tiles}?v=0&r={revision}", tiles):
        assert client.get(other).headers["cache-control"] == "private, no-store"
    assert error_of(client.get(f"{tiles}?v=2")) == (404, "not_found")
    hidden = np.asarray(image_of(client.get(f"{tiles}?v=1&palette=safe&hide={EPI}")).convert("RGBA"))[..., 3]
    np.testing.assert_array_equal(hidden > 0, mask == RET)
    small = shown(client, url, level=6, v=1)
    rows, columns = (np.arange(size) * 4 + 2 for size in small.shape)
    # Only where nothing was corrected may a smaller level of the mask have another pixel.
    named = (mask == SCC)[np.ix_(rows.clip(max=189), columns.clip(max=129))]
    assert named.any()
    assert (small[named] == EPI).all()


def borders(client, base, **query):
    tiles = f"{base}/tiles/interface/8/0_0.png"
    image = image_of(client.get(tiles, params={"a": "EPI", "b": "RET", **query}))
    np.testing.assert_array_equal(np.asarray(image.convert("RGBA"))[..., 3] > 0, np.asarray(image) == 1)
    return np.asarray(image)


def borders_in(mask):
    near = [ndimage.maximum_filter(mask == index, 2 * BORDER + 1, mode="constant") for index in (EPI, RET)]
    return np.logical_and(*near)


def test_borders_are_marked_and_a_place_is_read_in_the_version_that_is_shown(client, base, results, renamed):
    _, mask = results
    np.testing.assert_array_equal(borders(client, base, v=1), borders_in(renamed))
    np.testing.assert_array_equal(borders(client, base, v=0), borders_in(mask))
    np.testing.assert_array_equal(borders(client, base), borders_in(mask))
    assert (borders_in(renamed) != borders_in(mask)).any()
    x, y = middle_of(mask, SCC)
    plain, before, after = (client.get(f"{base}/at", params={"x": x, "y": y, **v}).json() for v in VERSIONS)
    assert (before["tissue"], before["network_tissue"]) == ("SCC", "SCC")
    assert (after["tissue"], after["network_tissue"], after["confidence"]) == ("EPI", "SCC", None)
    assert plain == before
    assert error_of(client.get(f"{base}/at", params={"x": x, "y": y, "v": 2})) == (404, "not_found")


VERSIONS = ({}, {"v": 0}, {"v": 1})


def test_a_region_of_the_corrected_mask_is_known_once_its_files_are_made(client, base, tmp_path, results, renamed):
    x, y = middle_of(results[1], SCC)
    assert client.get(f"{base}/at", params={"x": x, "y": y, "v": 1}).json()["region"] is None
    write_corrected(open_mask(tmp_path / "out" / "a"))
    number = client.get(f"{base}/at", params={"x": x, "y": y, "v": 1}).json()["region"]
    region = client.get(f"{base}/regions/{number}", params={"v": 1}).json()
    labelled, _ = ndimage.label(renamed == EPI)
    own = labelled == labelled[int(y), int(x)]
    assert (region["tissue"], region["region"]) == ("EPI", number)
    assert region["area_mm2"] == pytest.approx(own.sum() * PIXEL_MM2)
    assert region["corrected_by_hand"] == pytest.approx((own & (results[1] == SCC)).sum() / own.sum())
    assert not {"model_name", "slide_id"} & region.keys()
    client.post(f"{base}/corrections", json={"version": 1, "action": "undo"})
    assert error_of(client.get(f"{base}/regions/{number}", params={"v": 2})) == (404, "not_found")


@pytest.fixture
def settings(tmp_path, results, model, monkeypatch):
    """Of a service in which nobody waits for further steps before files are made."""
    monkeypatch.setattr(routes_corrections, "REST_SECONDS", 0.0)
    monkeypatch.setattr(worker, "TABLES_SECONDS", 0.0)
    return settings_of(tmp_path / "out", model, roots=(results[0].parent,))


def draw(client):
    url = f"/v1/slides/{only_slide(client)['id']}"
    corners = [[40, 100], [60, 100], [60, 120], [40, 120]]
    area = {"action": "draw", "version": 0, "kind": "area", "points": corners, "tissue": "SCC"}
    answer = client.post(f"{url}/corrections", json=area)
    assert answer.status_code == 201, answer.text
    return url


def ready(client, url):
    wait_for("the corrected files", lambda: client.get(f"{url}/corrections").json()["corrected"])


def test_files_of_the_corrected_mask_and_the_tables_follow_each_step(tmp_path, settings, results):
    _, mask = results
    folder = tmp_path / "out" / "a" / "corrected"
    with serving(settings) as client:
        url = draw(client)
        ready(client, url)
        expected = mask.copy()
        expected[100:120, 40:60] = SCC
        np.testing.assert_array_equal(tifffile.imread(folder / "mask.ome.tif"), expected + 1)
        summary = client.get(f"{url}/corrected/summary").json()
        assert (summary["corrected"]["steps"], summary["corrected"]["regions"]) == (1, 1)
        named = client.get(f"{url}/corrected/mask").headers["content-disposition"]
        assert 'filename="a-corrected-mask.ome.tif"' in named
        report = client.get(f"{url}/corrected/report", params={"download": True})
        assert "sandbox" in report.headers["content-security-policy"]
        assert 'filename="a-corrected-report.html"' in report.headers["content-disposition"]
        assert '<a href="../report.html">What the network said</a>' in report.text
        # What the network said stays as it was.
        np.testing.assert_array_equal(tifffile.imread(folder.parent / "mask.ome.tif"), mask + 1)
        table = tmp_path / "out" / "slides.csv"
        wait_for("the tables", lambda: "corrected_parts" in table.read_text())
        client.post(f"{url}/corrections", json={"version": 1, "action": "undo"})
        wait_for("the files to go", lambda: not folder.exists())
        ready(client, url)
        answer = client.get(f"{url}/corrected/mask")
        assert (answer.status_code, answer.json()["error"]["hint"]) == (404, "correct the slide first")


def test_what_a_killed_service_left_undone_is_made_at_the_next_start_or_request(tmp_path, settings, monkeypatch):
    folder = tmp_path / "out" / "a"
    with serving(settings) as client:
        with monkeypatch.context() as deaf:
            deaf.setattr(client.app_state.store, "ask", lambda *_: None)
            deaf.setattr(client.app_state.store, "ask_again", lambda *_: None)
            url = draw(client)
            answer = client.get(f"{url}/corrected/summary")
        assert (answer.status_code, "being made" in answer.json()["error"]["hint"]) == (404, True)
    with serving(settings) as client:
        wait_for("the start to make them", lambda: is_current(folder, read_log(folder)))
        wait_for("the end of the job", lambda: not client.app_state.store.running())
        shutil.rmtree(folder / "corrected")
        assert client.get(f"{url}/corrected/summary").status_code == 404
        wait_for("the request to make them", lambda: is_current(folder, read_log(folder)))


def test_people_are_told_why_the_files_cannot_be_made(tmp_path, settings):
    (tmp_path / "out" / "a" / "slide.jpg").write_bytes(b"no picture")
    with serving(settings) as client:
        url = draw(client)
        wait_for("the failure", lambda: client.get(f"{url}/corrections").json()["corrected_reason"])
        document = client.get(f"{url}/corrections").json()
        assert (document["corrected"], document["version"]) == (False, 1)
        assert "cannot read slide.jpg" in document["corrected_reason"]
        assert str(tmp_path) not in document["corrected_reason"]
        answer = client.get(f"{url}/corrected/report")
        assert (answer.status_code, answer.json()["error"]["hint"]) == (404, document["corrected_reason"])
        # It is tried again, but not at once.
        assert client.app_state.store.job(url.rsplit("/", 1)[1], "correct").status == "queued"
