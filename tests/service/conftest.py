import hashlib
import io
import shutil
from contextlib import closing
from threading import Thread

import numpy as np
import pytest
from tests.segment.small import InProcess
from tests.service.small import only_slide, segmented, serving, settings_of, write_model

from ntrm.correct.engine import ENGINE
from ntrm.correct.mask import open_mask
from ntrm.service.core.settings import DATABASE, SERVICE_FOLDER
from ntrm.service.jobs import supervisor
from ntrm.service.jobs.database import JobStore
from ntrm.service.jobs.worker import Worker
from ntrm.service.tiles import readers
from ntrm.slides import isolated
from ntrm.slides.inputs import SlideInput


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Folder of a small network."""
    return write_model(tmp_path_factory.mktemp("service") / "model")


@pytest.fixture(scope="session")
def segmented_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segmented")
    return folder, *segmented(folder, np.random.default_rng(1), maps=True, tissue_mask=False)


@pytest.fixture
def results(tmp_path, segmented_once):
    """A slide in ``tmp_path / "in"`` and its results in ``tmp_path / "out" / "a"``; its path and its true mask."""
    folder, path, mask = segmented_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / path.relative_to(folder), mask


@pytest.fixture(scope="session")
def shown_once(tmp_path_factory, segmented_once, model):
    folder = tmp_path_factory.mktemp("shown")
    shutil.copytree(segmented_once[0], folder, dirs_exist_ok=True)
    with serving(settings_of(folder / "out", model, roots=(folder / "in",))):
        pass
    return folder / "out"


@pytest.fixture
def shown(tmp_path, results, shown_once):
    """The folder of these results after a service has shown it."""
    shutil.copytree(shown_once / SERVICE_FOLDER, tmp_path / "out" / SERVICE_FOLDER)
    return tmp_path / "out"


@pytest.fixture
def client(tmp_path, results, model):
    """A service with one segmented slide."""
    with serving(settings_of(tmp_path / "out", model, roots=(results[0].parent,))) as client:
        yield client


@pytest.fixture
def url(client):
    """Where that slide's corrections are."""
    return f"/v1/slides/{only_slide(client)['id']}/corrections"


@pytest.fixture
def graph(tmp_path, results):
    """The texture of that slide, as a worker would have read it."""
    ENGINE.prepare(open_mask(tmp_path / "out" / "a"), SlideInput(results[0], "a"))


@pytest.fixture
def store(tmp_path):
    store = JobStore(tmp_path / "out" / ".service" / DATABASE)
    yield store
    store.close()


@pytest.fixture(autouse=True, scope="session")
def quick_keys():
    """The key of cookies is slow to make on purpose, and each test starts a service of its own."""
    slow = hashlib.scrypt
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashlib, "scrypt", lambda *about, **cost: slow(*about, **(cost | {"n": 2})))
        yield


class LightWorker(Thread):
    """Stands for the process of a worker without a network."""

    stdin = stderr = None

    def __init__(self, settings, kinds, name):
        super().__init__()
        self.stdout, self.returncode = io.BytesIO(b'{"devices": 1}\n'), 0
        self._settings, self._kinds, self._name = settings, kinds, name
        self.start()

    def run(self):
        with closing(JobStore(self._settings.hidden / DATABASE)) as store:
            Worker(self._settings, store, self._name, None).work(self._kinds)

    def poll(self):
        return None if self.is_alive() else 0

    wait = kill = Thread.join


@pytest.fixture
def quick_worker(monkeypatch):
    """Jobs without the network are done in this process, at once."""
    monkeypatch.setattr(supervisor, "start_worker", LightWorker)
    monkeypatch.setattr(supervisor, "TICK_SECONDS", 0.02)


@pytest.fixture
def quick_readers(monkeypatch):
    """Slides read in this process: for tests of everything around the reading, since a process each takes long."""
    for module in (isolated, readers):
        monkeypatch.setattr(module, "ReadingProcess", InProcess)
