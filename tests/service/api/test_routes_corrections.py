"""Corrections over HTTP: what is answered, what is written, what is refused."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.evaluation.small import NAMES
from tests.service.correcting import PIXEL_MM2, RET, SCC, click, middle_of, shown
from tests.service.small import error_of, only_slide

from ntrm.correct.log import read_log
from ntrm.correct.pixels import PixelSet
from ntrm.service.core.settings import AUDIT

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture
def sound(results):
    """A click that is accepted, on a whole region."""
    return click(middle_of(results[1], SCC), whole_regions=True)


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
    for body in (click((x, y), spread=True), click((x, y), whole_regions=True, spread=True)):
        assert error_of(client.post(url, json=body)) == (409, "no_region_graph")
        assert error_of(client.post(f"{url}/preview", json=body)) == (409, "no_region_graph")
    answer = client.post(url, json=click((x, y), whole_regions=True))
    assert answer.status_code == 201, answer.text
    assert (answer.json()["version"], answer.json()["regions"]) == (1, 1)
    assert answer.json()["area_mm2"] == pytest.approx((mask == SCC).sum() * PIXEL_MM2)
    again = client.get(f"{url}/part", params={"x": x, "y": y, "whole_region": True}).json()
    assert (again["tissue"], again["network_tissue"], again["by_hand"]) == ("EPI", "SCC", True)
    assert only_slide(client)["corrections"] == 1


@pytest.mark.usefixtures("graph")
def test_what_follows_is_shown_before_it_is_accepted(client, url, results):
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


def test_regions_to_step_through_say_which_of_them_a_person_has_named(client, url, results):
    found = client.get(f"{url}/regions").json()
    assert found["order"] == "likely errors"
    first = found["regions"][0]
    assert not first["by_hand"]
    client.post(url, json=click((first["x"], first["y"]), "RET"))
    after = client.get(f"{url}/regions").json()
    assert [each["by_hand"] for each in after["regions"]] == [True] + [False] * (len(found["regions"]) - 1)
    assert sum(each["area_mm2"] for each in after["regions"]) == pytest.approx(
        (results[1] != NAMES.index("BKG")).sum() * PIXEL_MM2
    )


def test_of_many_at_the_same_moment_one_is_heard_and_all_others_are_told(tmp_path, client, url, sound):
    with ThreadPoolExecutor(6) as people:
        answers = [*people.map(lambda _: client.post(url, json=sound), range(6))]
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409, 409]
    area = {"action": "draw", "kind": "area", "points": [[1, 1], [9, 1], [9, 9]], "tissue": "SCC"}
    others = [client.post(url, json={"version": 0, **body}) for body in ({"action": "undo"}, {"action": "redo"}, area)]
    others += [client.post(f"{url}/preview", json=sound), *(one for one in answers if one.status_code == 409)]
    assert {error_of(answer) for answer in others} == {(409, "corrected_elsewhere")}
    assert client.get(url).json()["version"] == len(read_log(tmp_path / "out" / "a").steps) == 1


def test_what_others_write_to_the_log_is_seen_at_once(tmp_path, client, url, results, sound):
    client.post(url, json=sound)
    log = tmp_path / "out" / "a" / "corrections.jsonl"
    first, step = log.read_text().splitlines()
    other = {**json.loads(step), "number": 2, "tissue": "RET"}
    log.write_text("\n".join([first, step, json.dumps(other)]) + "\n")
    assert client.get(url).json()["version"] == 2
    assert (shown(client, url)[results[1] == SCC] == RET).all()
    foreign = first.replace(json.loads(first)["mask"], "0" * 64)
    for damaged, code in (("no log\n", "unreadable"), (f"{foreign}\n{step}\n", "refused")):
        log.write_text(damaged)
        assert error_of(client.get(url)) == (422, code)
        # What the network said can be looked at all the same.
        assert client.get(url.replace("corrections", "tiles/tissue/0/0_0.png")).status_code == 200
        assert client.get("/v1/slides").status_code == 200
    log.unlink()
    assert client.get(url).json()["version"] == 0


def test_a_step_is_logged_and_audited_once_and_there_without_initials(tmp_path, client, url, results, sound):
    twice = [client.post(url, json={**sound, "by": "JD", "key": "1f3a"}) for _ in range(2)]
    assert [answer.status_code for answer in twice] == [201, 201]
    client.post(url, json={"version": 1, "action": "undo"})
    log = read_log(tmp_path / "out" / "a")
    assert PixelSet.parse(log.steps[0].named, results[1].size).pixels == (results[1] == SCC).sum()
    assert [(step.action, step.by, step.origin) for step in log.steps] == [
        ("name", "JD", "page"),
        ("undo", None, "page"),
    ]
    audit = (tmp_path / "out" / ".service" / AUDIT).read_text()
    lines = [json.loads(line) for line in audit.splitlines()]
    told = [(line["action"], line["slide"], line["outcome"]) for line in lines if line["action"].startswith("correct")]
    assert told == [("correct: name", "a", "parts: 1"), ("correct: undo", "a", "step: 1")]
    assert "JD" not in audit


BAD_CLICKS = [
    ({"tissue": "XYZ"}, 400), ({"tissue": ""}, 422), ({"points": []}, 400), ({"points": [[1e6, 5]]}, 400),
    ({"points": [[-1, 5]]}, 400), ({"points": [[float("nan"), 5]]}, 422), ({"points": [[float("inf"), 5]]}, 422),
    ({"points": [[5]]}, 422), ({"points": "everything"}, 422), ({"points": [[5, 5]] * 10_001}, 422),
    ({"lasso": [[5, 5], [9, 9]]}, 422), ({"lasso": [[5000, 5000], [5001, 5000], [5001, 5001]]}, 400),
    ({"lasso": [[0, 0], [100, 180]] * 2000}, 400), ({"version": -1}, 422), ({"version": "0; DROP"}, 422),
    ({"version": None}, 422), ({"reach": 0.1}, 422), ({"reach": float("nan")}, 422), ({"by": "x" * 9}, 422),
    ({"by": "a\nb"}, 400), ({"left_out": [[float("nan"), 0]]}, 422), ({"more": 1}, 422),
]  # fmt: skip
BAD_DRAWINGS = [
    ({"kind": "flood"}, 422), ({"points": []}, 422), ({"points": [[5, 5]]}, 400), ({"kind": "divide"}, 400),
    ({"points": [[-9, -9], [-5, -9], [-5, -5]]}, 400), ({"points": [[0, 0], [130, 190]] * 4000}, 400),
    ({"kind": "brush", "width_um": -1}, 422), ({"kind": "brush", "width_um": float("inf")}, 422),
    ({"kind": "divide", "side": [9999, 0]}, 400), ({"kind": "divide", "side": [0, float("nan")]}, 422),
    ({"tissue": "XYZ"}, 400),
]  # fmt: skip


def test_impossible_clicks_and_drawings_are_refused_and_nothing_is_written(client, url, sound):
    drawn = {"action": "draw", "version": 0, "kind": "area", "points": [[5, 5], [30, 5], [30, 30]], "tissue": "SCC"}
    asked = [(url, {**sound, **wrong}, status) for wrong, status in BAD_CLICKS]
    asked += [(f"{url}/preview", {**sound, **wrong}, status) for wrong, status in BAD_CLICKS if "by" not in wrong]
    asked += [(url, {**drawn, **wrong}, status) for wrong, status in BAD_DRAWINGS]
    for address, body, status in asked:
        answer = client.post(address, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert error_of(answer) == (status, "usage"), body
    large = b'{"points": [' + b"[1,1]," * 300_000
    for address in (url, f"{url}/preview"):
        assert error_of(client.post(address, content=large)) == (413, "too_large")
        assert error_of(client.post(address, content=b"{" * 1000)) == (422, "usage")
    assert client.get(url).json()["version"] == 0
