"""Corrections over HTTP: what is answered, what is written, what is refused."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.evaluation.small import MPP, NAMES, ByColour
from tests.service.api.test_routes_tiles import image_of
from tests.service.correcting import EPI, RET, SCC, click, middle_of
from tests.service.small import error_of, only_slide

from ntrm.correct.engine.parts_engine import PARTS, region_graph_in
from ntrm.correct.log import read_log
from ntrm.correct.mask import open_mask
from ntrm.correct.pixels import PixelSet
from ntrm.models.predictor import Predictor
from ntrm.service.core.settings import AUDIT
from ntrm.slides.inputs import SlideInput

pytestmark = pytest.mark.usefixtures("quick_readers")

PIXEL_MM2 = MPP**2 / 1e6


class Unsure(ByColour):
    """Says the same as ``ByColour``, but not so surely: names are carried on where there is doubt."""

    def _logits(self, rgb):
        return super()._logits(rgb) / 10


@pytest.fixture
def graph(tmp_path, results):
    """The region graph, as a worker would have made it."""
    mask = open_mask(tmp_path / "out" / "a")
    PARTS.prepare(mask, SlideInput(results[0], "a"), Predictor(Unsure(), "cpu", batch=2))
    return region_graph_in(mask)


def shown(client, url, **query):
    """The corrected mask as the page shows it: class + 1."""
    tiles = url.replace("corrections", "tiles/corrected/8/0_0.png")
    return np.asarray(image_of(client.get(tiles, params=query))) - np.uint8(1)


def test_a_slide_that_nobody_corrected(client, url):
    found = client.get(url).json()
    assert found == {
        "version": 0,
        "revision": client.get(url.replace("corrections", "tiles")).json()["revision"],
        "undo": None,
        "redo": None,
        "steps": [],
        "regions": 0,
        "area_mm2": 0,
        "graph": "impossible",
        "graph_progress": None,
        "graph_reason": "the service runs without workers",
        "corrected": True,
        "corrected_reason": None,
    }
    assert only_slide(client)["corrections"] == 0
    assert error_of(client.post(f"{url}/graph")) == (409, "impossible")


def test_whole_regions_are_named_from_the_mask_alone(client, url, results):
    _, mask = results
    x, y = middle_of(mask, SCC)
    found = client.get(f"{url}/part", params={"x": x, "y": y, "whole_region": True}).json()
    assert (found["tissue"], found["network_tissue"], found["by_hand"]) == ("SCC", "SCC", False)
    assert found["area_mm2"] == pytest.approx((mask == SCC).sum() * PIXEL_MM2)
    (ring,) = found["outline"]
    rows, columns = np.nonzero(mask == SCC)
    left, top, right, bottom = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    assert {tuple(point) for point in ring} == {(left, top), (right, top), (right, bottom), (left, bottom)}
    assert mask[int(found["y"]), int(found["x"])] == SCC
    answer = client.post(url, json=click((x, y), whole_regions=True))
    assert answer.status_code == 201, answer.text
    assert (answer.json()["version"], answer.json()["regions"]) == (1, 1)
    assert answer.json()["area_mm2"] == pytest.approx((mask == SCC).sum() * PIXEL_MM2)
    np.testing.assert_array_equal(shown(client, url, v=1), np.where(mask == SCC, EPI, mask))
    np.testing.assert_array_equal(shown(client, url, v=0), mask)
    again = client.get(f"{url}/part", params={"x": x, "y": y, "whole_region": True}).json()
    assert (again["tissue"], again["network_tissue"], again["by_hand"]) == ("EPI", "SCC", True)
    assert only_slide(client)["corrections"] == 1


def test_parts_and_what_follows_need_the_region_graph(client, url, results):
    place = middle_of(results[1], SCC)
    x, y = place
    for answer in (
        client.get(f"{url}/part", params={"x": x, "y": y}),
        client.post(url, json=click(place)),
        client.post(url, json=click(place, whole_regions=True, spread=True)),
        client.post(f"{url}/preview", json=click(place)),
    ):
        assert error_of(answer) == (409, "no_region_graph")
    assert client.get(url).json()["version"] == 0


def test_what_follows_is_shown_before_it_is_accepted(client, url, results, graph):
    _, mask = results
    x, y = middle_of(mask, SCC)
    body = click((x, y), spread=True, by="AB")
    seen = client.post(f"{url}/preview", json=body).json()
    (followed,) = seen["followed"]
    assert followed["tissue"] == "EPI"
    assert followed["regions"] == seen["regions"] - 1 == len(seen["parts"])
    assert sum(followed["from"].values()) == pytest.approx(followed["area_mm2"])
    assert seen["area_mm2"] == pytest.approx(seen["named"]["area_mm2"] + followed["area_mm2"])
    first = seen["parts"][0]
    assert (first["tissue"], "you named EPI" in first["why"]) == ("EPI", True)
    assert NAMES[mask[int(first["y"]), int(first["x"])]] == first["network_tissue"]
    fewer = client.post(f"{url}/preview", json={**body, "left_out": [[first["x"], first["y"]]]}).json()
    assert fewer["regions"] == seen["regions"] - 1
    done = client.post(url, json=body).json()
    (step,) = done["steps"]
    assert (step["regions"], step["spread"], step["by"], step["origin"]) == (seen["regions"], True, "AB", "page")
    assert step["area_mm2"] == pytest.approx(seen["area_mm2"])
    changed = shown(client, url) != mask
    assert changed.sum() * PIXEL_MM2 == pytest.approx(done["area_mm2"])
    assert changed[int(first["y"]), int(first["x"])]


def test_of_two_people_the_second_is_told(client, url, results):
    place = middle_of(results[1], SCC)
    body = click(place, whole_regions=True)
    assert client.post(url, json=body).status_code == 201
    for action in ("", "/preview"):
        assert error_of(client.post(url + action, json=body)) == (409, "corrected_elsewhere")
    for action in ("undo", "redo"):
        assert error_of(client.post(url, json={"action": action, "version": 0})) == (409, "corrected_elsewhere")
    area = {"version": 0, "kind": "area", "points": [[1, 1], [9, 1], [9, 9]], "tissue": "SCC"}
    assert error_of(client.post(url, json={**area, "action": "draw"})) == (409, "corrected_elsewhere")
    assert client.get(url).json()["version"] == 1


def test_a_step_that_is_sent_twice_is_taken_and_told_once(tmp_path, client, url, results):
    body = click(middle_of(results[1], SCC), whole_regions=True, key="1f3a")
    answers = [client.post(url, json=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert len(read_log(tmp_path / "out" / "a").steps) == answers[1].json()["version"] == 1
    assert (tmp_path / "out" / ".service" / AUDIT).read_text().count("correct: name") == 1


def test_of_many_at_the_same_moment_one_is_heard_and_all_others_are_told(tmp_path, client, url, results):
    body = click(middle_of(results[1], SCC), whole_regions=True)
    with ThreadPoolExecutor(6) as people:
        answers = [*people.map(lambda _: client.post(url, json=body), range(6))]
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409, 409]
    assert {error_of(answer)[1] for answer in answers if answer.status_code == 409} == {"corrected_elsewhere"}
    assert len(read_log(tmp_path / "out" / "a").steps) == 1


def test_what_others_write_to_the_log_is_seen_at_once(tmp_path, client, url, results):
    body = click(middle_of(results[1], SCC), whole_regions=True)
    client.post(url, json=body)
    log = tmp_path / "out" / "a" / "corrections.jsonl"
    first, step = log.read_text().splitlines()
    other = {**json.loads(step), "number": 2, "tissue": "RET"}
    log.write_text("\n".join([first, step, json.dumps(other)]) + "\n")
    assert client.get(url).json()["version"] == 2
    assert (shown(client, url)[results[1] == SCC] == RET).all()
    log.write_text("no log\n")
    assert error_of(client.get(url)) == (422, "unreadable")
    assert only_slide(client)["corrections"] is None


def test_the_log_holds_what_was_done_and_the_audit_tells_it_without_initials(tmp_path, client, url, results):
    _, mask = results
    client.post(url, json=click(middle_of(mask, SCC), whole_regions=True, by="JD"))
    client.post(url, json={"version": 1, "action": "undo"})
    log = read_log(tmp_path / "out" / "a")
    assert PixelSet.parse(log.steps[0].named, mask.size).pixels == (mask == SCC).sum()
    assert [(step.action, step.by, step.origin) for step in log.steps] == [
        ("name", "JD", "page"),
        ("undo", None, "page"),
    ]
    audit = (tmp_path / "out" / ".service" / AUDIT).read_text()
    lines = [json.loads(line) for line in audit.splitlines()]
    told = [(line["action"], line["slide"], line["outcome"]) for line in lines if line["action"].startswith("correct")]
    assert told == [("correct: name", "a", "parts: 1"), ("correct: undo", "a", "step: 1")]
    assert "JD" not in audit


def test_tiles_of_the_corrected_mask_are_told_apart_by_version_and_look_like_those_of_the_tissue(client, url, results):
    _, mask = results
    client.post(url, json=click(middle_of(mask, SCC), "RET", whole_regions=True))
    tiles = url.replace("corrections", "tiles/corrected/8/0_0.png")
    revision = client.get(url).json()["revision"]
    first = client.get(f"{tiles}?v=1&r={revision}")
    assert first.headers["cache-control"] == "private, max-age=86400"
    for other in (f"{tiles}?v=0&r={revision}", tiles):
        assert client.get(other).headers["cache-control"] == "private, no-store"
    assert error_of(client.get(f"{tiles}?v=2")) == (404, "not_found")
    hidden = np.asarray(image_of(client.get(f"{tiles}?v=1&palette=safe&hide={RET}")).convert("RGBA"))[..., 3]
    np.testing.assert_array_equal(hidden > 0, mask == EPI)
    small = np.asarray(image_of(client.get(url.replace("corrections", "tiles/corrected/6/0_0.png?v=1")))) - np.uint8(1)
    rows, columns = (np.arange(size) * 4 + 2 for size in small.shape)
    # Only where nothing was corrected may a smaller level of the mask have another pixel.
    named = (mask == SCC)[np.ix_(rows.clip(max=189), columns.clip(max=129))]
    assert named.any()
    assert (small[named] == RET).all()
