"""Classes of a folder in which tissues are named from nothing, over HTTP."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.segment.small import paint, write_slide
from tests.service.small import error_of, only_slide, serving, settings_of

from ntrm.core.wording import NO_MODEL
from ntrm.results.classes import folder_classes, given_classes
from ntrm.segment.annotate import Blank
from ntrm.segment.batch import segment_slides

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture
def blank(tmp_path):
    """A service of a folder without a model."""
    slide = write_slide(tmp_path / "in" / "a.tif", paint(np.random.default_rng(3)))
    blank = Blank(given_classes("tumour,stroma"))
    assert segment_slides(slide, out=tmp_path / "out", model=blank, progress=False).exit_code == 0
    with serving(settings_of(tmp_path / "out", "bundled", roots=(tmp_path / "in",))) as client:
        yield client


def test_classes_are_added_and_renamed_and_steps_follow(blank):
    about = blank.get("/v1/about").json()
    assert (about["model"]["name"], about["model"]["sha256"], about["classes_open"]) == (NO_MODEL, None, True)
    assert [each["name"] for each in about["classes"] if each["unnamed"]] == ["unnamed"]
    url = f"/v1/slides/{only_slide(blank)['id']}"
    assert blank.post("/v1/classes", json={"name": "Nekrose ü"}).json()[-1]["name"] == "Nekrose ü"
    drawn = {"action": "draw", "kind": "brush", "version": 0, "points": [[60, 90]], "width_um": 60}
    step = blank.post(f"{url}/corrections", json={**drawn, "tissue": "Nekrose ü"}).json()
    assert step["undo"]["tissue"] == "Nekrose ü"
    assert blank.post(f"{url}/corrections", json={**drawn, "version": 1, "tissue": "unnamed"}).status_code == 400
    renamed = {"name": "=1+1", "before": "Nekrose ü", "colour": "#01ff03"}
    assert blank.post("/v1/classes", json=renamed).json()[-1]["colour"] == "#01ff03"
    now = blank.get(f"{url}/corrections").json()
    assert now["undo"]["tissue"] == "=1+1"
    assert now["revision"] != step["revision"]
    assert blank.get(f"{url}/at", params={"x": 60, "y": 90, "v": 1}).json()["tissue"] == "=1+1"
    assert blank.get(f"{url}/summary").json()["model"] is None


def test_what_is_no_class_is_refused(blank, tmp_path):
    unreadable, wrong = (422, "unreadable"), (400, "usage")
    for wanted, refusal in (
        ({"name": "stroma"}, unreadable),
        ({"name": "x", "colour": "#000000"}, unreadable),
        ({"name": "x", "colour": "red"}, (422, "usage")),
        ({"name": "x", "before": "y"}, wrong),
        ({"name": "glass", "before": "background"}, wrong),
    ):
        assert error_of(blank.post("/v1/classes", json=wanted)) == refusal
    assert len(folder_classes(tmp_path / "out")) == 4


def test_many_at_once_are_all_kept(blank, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda k: blank.post("/v1/classes", json={"name": f"t{k}"}).status_code, range(8))]
    assert answers == [200] * 8
    assert {f"t{k}" for k in range(8)} <= {*folder_classes(tmp_path / "out").names}


def test_a_models_classes_are_its_own(client):
    answer = client.post("/v1/classes", json={"name": "x"})
    assert error_of(answer) == (422, "refused")
