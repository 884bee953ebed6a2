"""Slides on Ray: resources, joining, actors and the pool, tried without Ray; test_ray_cluster_runs.py has real runs."""

import pickle
import socket
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

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
from ntrm.pipeline.ray_cluster import (
    Orders,
    RayPool,
    SlideWorker,
    WorkerResources,
    divide_resources,
    joined_cluster,
    segment_on_ray,
)
from ntrm.pipeline.scheduler import SlideTask, WorkerLostError
from ntrm.results.slide_state import alone
from ntrm.slides.inputs import SlideInput


@pytest.fixture
def orders(tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    ByColour().save_pretrained(tmp_path / "model")
    return Orders(str(tmp_path / "model"), tmp_path / "out", Options(), "cpu", 2, ("age",))


@pytest.fixture
def task(tmp_path, random):
    path = write_slide(tmp_path / "in" / "a.tif", paint(random))
    return SlideTask(SlideInput(path, "a.tif", covariates={"age": "7"}), "a")


def test_a_worker_does_what_the_command_does(tmp_path, orders, task):
    worker = SlideWorker(orders)
    run = worker.ready()
    assert worker.segment(task, 0.0).status == "done"
    assert worker.segment(task, 0.0).status == "kept"
    table = tmp_path / "list.csv"
    table.write_text("slide,age\nin/a.tif,7\n")
    single = segment_slides(table, out=tmp_path / "single", model=orders.model, device="cpu", batch=2)
    assert run.identity() == single.identity
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


def test_the_pool_asks_for_its_resources_and_leaves_repeating_to_us(orders, task):
    ray = FakeRay()
    pool = RayPool(ray, orders, WorkerResources(2, "cuda", 1, 0.5))
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
    pool = RayPool(ray, orders, WorkerResources(1, "cpu", 1, 0.0))

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
    pool = RayPool(FakeRay(), orders, WorkerResources(1, "cpu", 1, 0.0))
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


@pytest.mark.parametrize(
    ("resources", "device", "workers", "expected"),
    [
        ([{"CPU": 2.0}], "auto", None, WorkerResources(1, "cpu", 2, 0.0)),
        ([{"CPU": 2.0}], "cpu", 2, WorkerResources(2, "cpu", 1, 0.0)),
        ([{"CPU": 64.0}], "auto", None, WorkerResources(32, "cpu", 2, 0.0)),
        ([{"CPU": 64.0}], "auto", 4, WorkerResources(4, "cpu", 2, 0.0)),
        ([{"CPU": 64.0, "GPU": 8.0}], "auto", None, WorkerResources(8, "cuda", 8, 1.0)),
        ([{"CPU": 64.0, "GPU": 8.0}], "cuda", 3, WorkerResources(3, "cuda", 8, 1.0)),
        ([{"CPU": 64.0, "GPU": 8.0}], "cpu", None, WorkerResources(32, "cpu", 2, 0.0)),
        ([{"GPU": 1.0}], "auto", 2, WorkerResources(2, "cuda", 1, 0.5)),
        ([{"CPU": 16.0, "GPU": 1.0}], "auto", 3, WorkerResources(3, "cuda", 5, 1 / 3)),
        ([{"CPU": 96.0, "GPU": 2.0}, {"CPU": 12.0, "GPU": 4.0}], "auto", None, WorkerResources(6, "cuda", 3, 1.0)),
        ([{"CPU": 96.0}, {"CPU": 2.0, "GPU": 1.0}], "auto", None, WorkerResources(1, "cuda", 2, 1.0)),
        ([{"CPU": 6.0}, {"CPU": 2.0}], "auto", None, WorkerResources(4, "cpu", 2, 0.0)),
    ],
)
def test_a_worker_for_each_gpu_or_for_two_cores(resources, device, workers, expected):
    assert divide_resources(resources, device, workers) == expected


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 8])
def test_all_workers_fit_on_the_gpus(gpus):
    for workers in range(1, 30):
        each = divide_resources([{"CPU": 99, "GPU": gpus}], "auto", workers)
        on_one_gpu = int(1 / each.gpus + 1e-9)
        assert on_one_gpu * gpus >= workers
        assert each.cpus * on_one_gpu * gpus <= 99


@pytest.mark.parametrize(
    ("resources", "device", "workers"),
    [
        ([{"CPU": 4}], "cuda", None),
        ([{"CPU": 4, "GPU": 2}], "cuda:1", None),
        ([{"CPU": 4}], "auto", 0),
        ([{"CPU": 4}], "mps", 1),
    ],
)
def test_what_cannot_be_divided_is_refused(resources, device, workers):
    with pytest.raises(UsageError):
        divide_resources(resources, device, workers)


class Cluster:
    """The functions of Ray that joining uses; ``taken`` is what it takes for the address of this machine."""

    def __init__(self, error=None, taken="127.0.0.1"):
        self.error, self.calls = error, []
        self.util = SimpleNamespace(get_node_ip_address=lambda: taken)

    def init(self, **options):
        self.calls.append(options)
        if self.error is not None:
            raise self.error

    def shutdown(self):
        self.calls.append("shutdown")


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def nobody():
    """A port of this machine at which nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield closed.getsockname()[1]


def join(ray, address):
    with joined_cluster(ray, address):
        ray.calls.append("work")


def test_a_cluster_is_joined_and_left(listener):
    ray = Cluster()
    join(ray, f"127.0.0.1:{listener}")
    assert ray.calls == [{"address": f"127.0.0.1:{listener}", **ray_cluster.QUIET}, "work", "shutdown"]


def test_errors_of_the_work_are_not_taken_for_those_of_joining(listener):
    ray = Cluster()
    with pytest.raises(ConnectionError, match="of the work"), joined_cluster(ray, f"localhost:{listener}"):
        raise ConnectionError("of the work")
    assert ray.calls[-1] == "shutdown"


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "localhost:{}", "ray://127.0.0.1:{}"])
def test_an_address_at_which_nobody_listens_is_not_tried(nobody, form):
    ray = Cluster()
    with pytest.raises(RefusedError, match="no cluster answers"):
        join(ray, form.format(nobody))
    assert ray.calls == []


def test_a_name_that_nobody_knows_is_told(monkeypatch):
    def unknown(*_arguments, **_more):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(ray_cluster.socket, "create_connection", unknown)
    with pytest.raises(RefusedError, match="Name or service not known"):
        join(Cluster(), "no-such-host:6379")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("Failed to connect to Ray cluster at …\nTraceback"),
        RuntimeError("Version mismatch: The cluster was started with:\n Ray: 1"),
        ValueError("Invalid address format: garbage"),
        Exception("No node info found for head node in GCS."),
    ],
    ids=["no Ray", "another version", "no address", "no node"],
)
def test_what_ray_says_of_a_cluster_is_told_in_a_line(listener, error):
    ray = Cluster(error)
    with pytest.raises(RefusedError, match="cannot be joined") as raised:
        join(ray, "garbage" if isinstance(error, ValueError) else f"127.0.0.1:{listener}")
    assert str(error).split("\n")[0] in str(raised.value.got)
    assert "\n" not in str(raised.value.got)
    assert ray.calls[-1] == "shutdown"


def test_bugs_are_not_taken_for_a_wrong_address(listener):
    ray = Cluster(TypeError("an argument that this version does not know"))
    with pytest.raises(TypeError):
        join(ray, f"127.0.0.1:{listener}")
    assert ray.calls[-1] == "shutdown"


def test_a_cluster_on_the_loopback_interface_alone_is_not_looked_for_elsewhere(listener):
    # 127.0.0.2 is of this machine, too, and the listener is not to be found there.
    ray = Cluster(taken="127.0.0.2")
    with pytest.raises(RefusedError, match=r"uses 127\.0\.0\.2 instead of 127\.0\.0\.1") as raised:
        join(ray, f"127.0.0.1:{listener}")
    assert f"{ray_cluster.LOOPBACK_ONLY}=0" in str(raised.value.hint)
    assert ray.calls == []
    join(ray, f"ray://127.0.0.1:{listener}")
    assert "work" in ray.calls


@pytest.mark.parametrize(("address", "token"), [("127.0.0.1:1", False), ("", True), (None, True)])
def test_settings_are_those_of_the_cluster_that_is_used(monkeypatch, address, token):
    environment = {} if address is None else {"RAY_ADDRESS": address}
    monkeypatch.setattr(ray_cluster.os, "environ", environment)
    monkeypatch.setattr(ray_cluster.importlib, "import_module", lambda name: name)
    assert ray_cluster._import_ray() == "ray"
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
    assert ("RAY_AUTH_TOKEN" in environment) is token
    assert (environment.get(ray_cluster.LOOPBACK_ONLY) == "0") is token
    # Else Ray tries for a quarter of an hour.
    assert (environment.get("RAY_gcs_server_port_wait_time_s") == "1") is not token
