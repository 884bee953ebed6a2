"""Borders, places and regions of the corrected mask, and the regions to step through, over HTTP."""

import numpy as np
import pytest
from scipy import ndimage
from tests.evaluation.small import MPP
from tests.service.api.test_routes_corrections import Unsure
from tests.service.api.test_routes_tiles import image_of
from tests.service.correcting import EPI, RET, SCC, click, middle_of
from tests.service.small import error_of

from ntrm.correct.engine.parts_engine import PARTS, region_graph_in
from ntrm.correct.mask import open_mask
from ntrm.correct.results import write_corrected
from ntrm.models.predictor import Predictor
from ntrm.service.tiles.layers import BORDER
from ntrm.slides.inputs import SlideInput

pytestmark = pytest.mark.usefixtures("quick_readers")
PIXEL_MM2 = MPP**2 / 1e6


@pytest.fixture
def graph(tmp_path, results):
    mask = open_mask(tmp_path / "out" / "a")
    PARTS.prepare(mask, SlideInput(results[0], "a"), Predictor(Unsure(), "cpu", batch=2))
    return region_graph_in(mask)


@pytest.fixture
def base(url):
    return url.removesuffix("/corrections")


@pytest.fixture
def renamed(client, url, results):
    """The mask after its SCC was called EPI."""
    _, mask = results
    assert client.post(url, json=click(middle_of(mask, SCC), whole_regions=True)).status_code == 201
    return np.where(mask == SCC, EPI, mask)


def borders(client, base, **query):
    tiles = f"{base}/tiles/interface/8/0_0.png"
    return np.asarray(image_of(client.get(tiles, params={"a": "EPI", "b": "RET", **query})))


def borders_in(mask):
    near = [ndimage.maximum_filter(mask == index, 2 * BORDER + 1, mode="constant") for index in (EPI, RET)]
    return np.logical_and(*near)


def test_borders_are_marked_in_the_version_that_is_shown(client, base, results, renamed):
    _, mask = results
    np.testing.assert_array_equal(borders(client, base, v=1), borders_in(renamed))
    np.testing.assert_array_equal(borders(client, base, v=0), borders_in(mask))
    np.testing.assert_array_equal(borders(client, base), borders_in(mask))
    assert (borders_in(renamed) != borders_in(mask)).any()


def test_a_place_is_read_in_the_version_that_is_shown(client, base, results, renamed):
    x, y = middle_of(results[1], SCC)
    before, after = (client.get(f"{base}/at", params={"x": x, "y": y, "v": v}).json() for v in (0, 1))
    assert (before["tissue"], before["network_tissue"]) == ("SCC", "SCC")
    assert (after["tissue"], after["network_tissue"], after["confidence"]) == ("EPI", "SCC", None)
    assert client.get(f"{base}/at", params={"x": x, "y": y}).json() == before
    assert error_of(client.get(f"{base}/at", params={"x": x, "y": y, "v": 2})) == (404, "not_found")


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


@pytest.mark.usefixtures("graph")
def test_regions_to_step_through_say_which_of_them_a_person_has_named(client, url, results):
    _, mask = results
    found = client.get(f"{url}/regions").json()
    assert found["order"] == "likely errors"
    first = found["regions"][0]
    assert not first["by_hand"]
    client.post(url, json=click((first["x"], first["y"]), "RET"))
    after = client.get(f"{url}/regions").json()
    assert [each["by_hand"] for each in after["regions"]] == [True] + [False] * (len(found["regions"]) - 1)
    assert sum(each["area_mm2"] for each in after["regions"]) == pytest.approx(mask.size * PIXEL_MM2)
