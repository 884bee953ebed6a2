"""A small service: a model of four classes, slides painted in class colours, results whose masks are known."""

import time
from contextlib import contextmanager

import pytest
from bench.hostile import sound_slide
from starlette.testclient import TestClient
from tests.evaluation.small import MPP, ByColour, schema_of
from tests.segment.small import paint, write_slide

from ntrm.models.registry import create
from ntrm.segment.batch import segment_slides
from ntrm.segment.options import Options
from ntrm.service.api.app import create_app
from ntrm.service.core.problems import ProblemError
from ntrm.service.core.settings import INCOMING, TRASH, UPLOADS, ServiceLimits, ServiceSettings
from ntrm.service.jobs.rows import SlideRow, new_id

TOKEN = "a-token-for-tests-0123456789"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
RAW = {"Content-Type": "application/octet-stream"}
HOST = "http://127.0.0.1:8765"


def write_model(folder):
    """A network with random weights that speaks of the classes of ``ByColour``."""
    create("ntrm-paper", schema_of(), width=0.125, dim=16).describe(window=64, mpp=MPP).save_pretrained(folder)
    return folder


def settings_of(out, model, **more):
    limits = ServiceLimits(**{"reserve_bytes": 0, **more.pop("limits", {})})
    return ServiceSettings(**{"out": out, "model": str(model), "token": TOKEN, "workers": 0, "limits": limits, **more})


@contextmanager
def serving(settings, *, authorised=True):
    """The application in this process, with its lifespan."""
    app = create_app(settings)
    headers = BEARER if authorised else {}
    with TestClient(app, base_url=HOST, headers=headers, follow_redirects=False) as client:
        client.app_state = app.state.app_state
        # The originals of results are looked for beside everything else; tests want to see them.
        client.app_state.searched.wait()
        yield client


def segmented(folder, random, name="a", mask=None, **options):
    """A slide and its results, as ``ntrm segment`` leaves them; returns the slide's path and its true mask."""
    mask = paint(random) if mask is None else mask
    path = write_slide(folder / "in" / f"{name}.tif", mask)
    found = segment_slides(
        path, out=folder / "out", model=ByColour(), device="cpu", batch=2, options=Options(**options)
    )
    assert found.exit_code == 0, found.slides
    return path, mask


def slide_bytes(random, height=90, width=120, mpp=MPP):
    """A small slide as a file's content."""
    return sound_slide(int(random.integers(2**31)), height, width, mpp)


def only_slide(client):
    (slide,) = client.get("/v1/slides").json()["slides"]
    return slide


def add_queued(store, path=None, name="a", origin="path"):
    """A slide in the queue."""
    return store.add(SlideRow(new_id(), name, name, origin, path, None, "queued", time.time()))


def upload(client, content, **query):
    return client.post("/v1/slides", params=query, content=content, headers=RAW)


def error_of(answer):
    assert set(answer.json()) == {"error"}
    assert {"what", "got", "expected", "hint", "code"} <= set(answer.json()["error"])
    return answer.status_code, answer.json()["error"]["code"]


NOTHING = {INCOMING: [], UPLOADS: [], TRASH: []}


def files_in(client):
    """Names of the files that the service keeps of uploads."""
    hidden = client.app_state.settings.hidden
    return {name: sorted(path.name for path in (hidden / name).iterdir()) for name in NOTHING}


@contextmanager
def refused(status, code=None):
    """What happens inside is refused with this status."""
    with pytest.raises(ProblemError) as caught:
        yield
    assert caught.value.status == status
    assert code in (None, caught.value.code)
