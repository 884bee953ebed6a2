"""Slides on Ray: what its actors and the pool do, tried without Ray; test_ray_cluster_runs.py has whole runs."""

import pickle
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests.evaluation.small import ByColour, schema_of
from tests.pipeline.small import fingerprints, paint, write_slide

from ntrm.core.errors import NtrmError, RefusedError, UsageError
from ntrm.core.progress import SILENT
from ntrm.models.registry import ARCHITECTURES
from ntrm.pipeline import ray_cluster
from ntrm.pipeline.batch import segment_slides
from ntrm.pipeline.options import Options
from ntrm.pipeline.ray_cluster import Orders, RayPool, Share, SlideWorker, segment_on_ray
from ntrm.pipeline.scheduler import Task, WorkerLostError
from ntrm.results.slide_state import alone
from ntrm.wsi.inputs import SlideInput


@pytest.fixture
def orders(tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    ByColour().save_pretrained(tmp_path / "model")
    return Orders(str(tmp_path / "model"), tmp_path / "out", Options(), "cpu", 2, ("age",))


@pytest.fixture
def task(tmp_path, random):
    path = write_slide(tmp_path / "in" / "a.tif", paint(random))
    return Task(SlideInput(path, "a.tif", covariates={"age": "7"}), "a")


def test_a_worker_does_what_the_command_does(tmp_path, orders, task):
    worker = SlideWorker(orders)
    identity = worker.ready()
    assert worker.segment(task, 0.0).status == "done"
    assert worker.segment(task, 0.0).status == "kept"
    table = tmp_path / "list.csv"
    table.write_text("slide,age\nin/a.tif,7\n")
    single = segment_slides(table, out=tmp_path / "single", model=orders.model, device="cpu", batch=2)
    assert identity.as_dict() == single.identity
    assert fingerprints(tmp_path / "out" / "a") == fingerprints(tmp_path / "single" / "a")


def test_a_worker_waits_for_a_dead_ones_lock_and_not_for_a_living_ones(orders, task, monkeypatch):
    worker = SlideWorker(orders)
    worker.ready()
    held = alone(orders.out / "a")
    held.__enter__()
    assert worker.segment(task, 0.0).status == "busy"
    naps = []

    def nap(seconds):
        naps.append(seconds)
        if len(naps) == 2:
            held.__exit__(None, None, None)

    monkeypatch.setattr(ray_cluster.time, "sleep", nap)
    assert worker.segment(task, 1e6).status == "done"
    assert len(naps) == 2


def test_what_goes_to_a_worker_is_plain_and_small(orders, task):
    sent = pickle.dumps((orders, task))
    assert len(sent) < 3000
    assert b"torch" not in sent


class FakeRay:
    """As much of Ray as the pool uses: actors answer at once, in this process."""

    class exceptions:  # noqa: N801 - Ray's own name
        class RayError(Exception):
            pass

        class RayTaskError(RayError):
            def __init__(self, cause):
                self.cause = cause

    def __init__(self):
        self.limits, self.killed, self.waits = {}, [], 0

    def remote(self, **limits):
        self.limits = limits
        return _FakeClass

    def wait(self, jobs, *, num_returns, timeout):
        self.waits += 1
        ended = [job for job in jobs if job.ends]
        return ended[:num_returns], jobs

    def get(self, job):
        return job.answer()

    def kill(self, actor, *, no_restart):
        assert no_restart
        self.killed.append(actor)


@dataclass
class _FakeClass:
    kind: type

    def remote(self, *arguments):
        return _FakeActor(self.kind(*arguments))


class _FakeActor:
    def __init__(self, inner):
        self.ready = _FakeMethod(inner.ready)
        self.segment = _FakeMethod(inner.segment)


@dataclass
class _FakeMethod:
    function: object

    def remote(self, *arguments):
        return _FakeJob(lambda: self.function(*arguments))


@dataclass(eq=False)
class _FakeJob:
    answer: object
    ends: bool = field(default=True)


def test_the_pool_asks_for_its_share_and_leaves_repeating_to_us(orders, task):
    ray = FakeRay()
    pool = RayPool(ray, orders, Share(2, "cuda", 1, 0.5))
    assert ray.limits == {"num_cpus": 1, "num_gpus": 0.5, "max_restarts": 0, "max_task_retries": 0}
    worker, job = pool.start()
    other, _ = pool.start()
    assert pool.result(pool.wait([job])).classes == schema_of().names
    assert pool.result(pool.submit(worker, task, 0.0)).status == "done"
    pool.discard(worker)
    pool.close()
    assert ray.killed == [worker, other]


def test_errors_of_ray_and_of_workers_are_told_apart(orders):
    ray = FakeRay()
    pool = RayPool(ray, orders, Share(1, "cpu", 1, 0.0))

    def ending_with(error):
        def raising():
            raise error

        return _FakeJob(raising)

    with pytest.raises(WorkerLostError, match="lost"):
        pool.result(ending_with(ray.exceptions.RayError()))
    with pytest.raises(RefusedError, match="another run"):
        pool.result(ending_with(ray.exceptions.RayTaskError(RefusedError("holds results of another run"))))
    with pytest.raises(WorkerLostError, match="KeyError"):
        pool.result(ending_with(ray.exceptions.RayTaskError(KeyError("Jane Doe"))))


def test_a_cluster_that_starts_no_worker_is_not_waited_for_for_ever(orders, monkeypatch):
    pool = RayPool(FakeRay(), orders, Share(1, "cpu", 1, 0.0))
    clock = iter(range(0, 10**9, 100))
    monkeypatch.setattr(ray_cluster.time, "monotonic", lambda: float(next(clock)))
    with pytest.raises(RefusedError, match="starts no worker"):
        pool.wait([_FakeJob(None, ends=False)])


def test_without_ray_it_is_said_how_to_get_it(tmp_path, orders, task, monkeypatch):
    monkeypatch.setattr(ray_cluster.os, "environ", {})
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="extra") as raised:
        segment_on_ray([task], orders, workers=None, progress=SILENT)
    assert 'pip install "ntrm[cluster]"' in str(raised.value)


@pytest.mark.parametrize(
    "more",
    [{"cluster": "slurm"}, {"workers": 2}, {"cluster": "ray", "model": ByColour()}],
    ids=["unknown", "workers alone", "network in memory"],
)
def test_wrong_usage_is_refused_before_anything_is_done(tmp_path, task, more):
    with pytest.raises(UsageError):
        segment_slides(task.slide.path, out=tmp_path / "out", **{"model": "bundled", **more})
    assert not (tmp_path / "out").exists()


class Starting(FakeRay):
    """Fails to start some times."""

    def __init__(self, *errors):
        super().__init__()
        self.errors, self.started = list(errors), 0

    def init(self, **options):
        assert options["address"] == "local"
        assert options["include_dashboard"] is False
        self.started += 1
        if self.errors:
            raise self.errors.pop(0)

    def is_initialized(self):
        return False

    def shutdown(self):
        pass

    def nodes(self):
        return [{"NodeManagerAddress": self.address}]

    address = "127.0.0.1"


def connect(ray, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with ray_cluster._connected(ray, 2):
        assert ray.started


def test_a_busy_machine_gets_a_second_chance_to_start_ray(monkeypatch):
    ray = Starting(Exception("The current node timed out during startup."), RuntimeError("no GCS"))
    connect(ray, monkeypatch)
    assert ray.started == 3
    with pytest.raises(RefusedError, match="did not start"):
        connect(Starting(*(Exception("timed out") for _ in range(9))), monkeypatch)
    with pytest.raises(TypeError):
        connect(Starting(TypeError("an argument that this version does not know")), monkeypatch)


def test_ray_on_the_network_without_having_been_asked_is_refused(monkeypatch):
    ray = Starting()
    ray.address = "192.0.2.7"
    with pytest.raises(RefusedError, match="listen to the network"):
        connect(ray, monkeypatch)


def test_errors_cross_process_borders_whole():
    error = pickle.loads(pickle.dumps(WorkerLostError("lost", got=3, hint="again")))
    assert isinstance(error, NtrmError)
    assert str(error) == str(WorkerLostError("lost", got=3, hint="again"))
    assert np.shape(error.args) == (1,)
