"""Slides on Ray: resources, joining, who gets which slide, tried without Ray; test_ray_cluster_runs.py runs it."""

import sys
from types import SimpleNamespace

import pytest
from tests.evaluation.small import ByColour
from tests.segment.small import fingerprints, paint, write_slide

from ntrm.core.errors import NtrmError, RefusedError, UsageError
from ntrm.core.progress import SILENT
from ntrm.models.registry import ARCHITECTURES
from ntrm.results.slide_state import remembered
from ntrm.segment import ray_cluster
from ntrm.segment.batch import segment_slides
from ntrm.segment.options import Options
from ntrm.segment.ray_cluster import Orders, SlideWorker, divide_resources, segment_on_ray
from ntrm.segment.segmenter import Outcome
from ntrm.segment.slide import SlideTask
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
    assert worker.segment(task).status == "done"
    assert worker.segment(task).status == "kept"
    table = tmp_path / "list.csv"
    table.write_text("slide,age\nin/a.tif,7\n")
    single = segment_slides(table, out=tmp_path / "single", model=orders.model, device="cpu", batch=2)
    assert run.identity() == single.identity
    assert fingerprints(tmp_path / "out" / "a") == fingerprints(tmp_path / "single" / "a")


class DiedError(Exception):
    """A process that is gone."""


class FakeRay:
    """As much of Ray as is used: a job is a function, and ends when it is asked for."""

    class exceptions:  # noqa: N801 - Ray's own name
        RayError = DiedError
        RayTaskError, GetTimeoutError = (type(name, (DiedError,), {}) for name in ("RayTaskError", "GetTimeoutError"))

    def __init__(self):
        self.killed = []

    def wait(self, jobs):
        return jobs[:1], jobs[1:]

    def get(self, job, timeout=None):
        return job()

    def kill(self, actor, no_restart):
        self.killed.append((actor, no_restart))


class Actor:
    """A worker to which one thing or the other happens with each slide."""

    def __init__(self, *fates):
        self.fates, self.segment, self.had = list(fates), self, []

    def remote(self, task):
        fate = self.fates.pop(0) if self.fates else "done"
        self.had.append(task.slide_id)

        def end():
            if isinstance(fate, Exception):
                raise fate
            return Outcome(task.slide_id, "failed" if fate == "bug" else fate, unexpected=fate == "bug")

        return end


def end_of(tmp_path, *actors, count=5):
    ray, tasks = FakeRay(), [SlideTask(SlideInput(tmp_path / f"{n}.tif", f"{n}.tif"), f"s{n}") for n in range(count)]
    found = [*ray_cluster._outcomes(ray, actors, tasks, tmp_path / "out")]
    assert sorted(each.slide_id for each in found) == [f"s{n}" for n in range(count)]
    return {each.slide_id: each for each in found}, ray


def test_a_slide_over_which_workers_die_fails_and_is_recorded(tmp_path):
    found, _ = end_of(tmp_path, Actor(DiedError()), Actor())
    (failed,) = [each for each in found.values() if each.status != "done"]
    assert (failed.status, failed.unexpected) == ("failed", True)
    assert remembered(tmp_path / "out" / failed.slide_id).row["reason"] == failed.reason


@pytest.mark.parametrize(("fates", "status"), [(["busy"], "done"), (["busy"] * 2, "busy"), (["bug"], "done")])
def test_what_was_busy_or_a_bug_is_tried_once_more(tmp_path, fates, status):
    actor = Actor(*fates)
    found, ray = end_of(tmp_path, actor, count=1)
    assert found["s0"].status == status
    assert ray.killed == ([(actor, False)] if "bug" in fates else [])


def test_a_worker_that_cannot_load_the_network_anew_gets_no_more(tmp_path):
    broken, good = Actor(*[FakeRay.exceptions.RayTaskError()] * 9), Actor()
    found, _ = end_of(tmp_path, broken, good)
    assert {each.status for each in found.values()} == {"done"}
    assert len(broken.had) == 1
    with pytest.raises(NtrmError, match="no worker is left"):
        end_of(tmp_path, broken)


def test_what_keeps_workers_from_starting_is_told():
    refused = FakeRay.exceptions.RayTaskError()
    refused.cause = RefusedError("holds results of another run")
    for error, said in {
        FakeRay.exceptions.RayTaskError(): "a worker did not start",
        FakeRay.exceptions.GetTimeoutError(): "starts no worker",
        refused: "another run",
    }.items():
        actor = Actor(error)
        actor.ready = SimpleNamespace(remote=lambda actor=actor: actor.remote(SimpleNamespace(slide_id="")))
        with pytest.raises(NtrmError, match=said):
            ray_cluster._first_run(FakeRay(), actor)


def test_without_ray_it_is_said_how_to_get_it(orders, task, monkeypatch):
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


@pytest.mark.parametrize(
    ("resources", "device", "workers", "expected"),
    [
        ([{"CPU": 2.0}], "cpu", 2, (2, "cpu", 1, 0.0)),
        ([{"CPU": 64.0}], "auto", None, (32, "cpu", 2, 0.0)),
        ([{"CPU": 64.0, "GPU": 8.0}], "cuda", 3, (3, "cuda", 8, 1.0)),
        ([{"CPU": 64.0, "GPU": 8.0}], "cpu", None, (32, "cpu", 2, 0.0)),
        ([{"CPU": 16.0, "GPU": 1.0}], "auto", 3, (3, "cuda", 5, 1 / 3)),
        ([{"CPU": 96.0, "GPU": 2.0}, {"CPU": 12.0, "GPU": 4.0}], "auto", None, (6, "cuda", 3, 1.0)),
        ([{"CPU": 96.0}, {"CPU": 2.0, "GPU": 1.0}], "auto", None, (1, "cuda", 2, 1.0)),
    ],
)
def test_a_worker_for_each_gpu_or_for_two_cores(resources, device, workers, expected):
    assert divide_resources(resources, device, workers) == expected


@pytest.mark.parametrize(("device", "workers"), [("cuda", None), ("cuda:1", None), ("auto", 0), ("mps", 1)])
def test_what_cannot_be_divided_is_refused(device, workers):
    with pytest.raises(UsageError):
        divide_resources([{"CPU": 4}], device, workers)


class Cluster:
    """The functions of Ray that joining and starting use."""

    def __init__(self, error=None, at="127.0.0.1"):
        self.error, self.calls, self.at = error, [], at

    def is_initialized(self):
        return False

    def init(self, **options):
        self.calls.append(options)
        if self.error is not None:
            raise self.error

    def nodes(self):
        return [{"NodeManagerAddress": self.at}]

    def shutdown(self):
        self.calls.append("shutdown")


def test_a_cluster_is_joined_and_our_own_listens_to_this_machine_alone(monkeypatch):
    def connect(ray, address=""):
        monkeypatch.setenv("RAY_ADDRESS", address)
        with ray_cluster._connected(ray, 2):
            ray.calls.append("work")

    ray = Cluster(at="192.0.2.7")
    connect(ray, "192.0.2.7:6379")
    assert ray.calls[0]["address"] == "192.0.2.7:6379"
    assert ray.calls[1:] == ["work", "shutdown"]
    ray = Cluster()
    connect(ray)
    assert ray.calls[0]["_node_ip_address"] == "127.0.0.1"
    assert ray.calls[0]["include_dashboard"] is False
    ray = Cluster(at="192.0.2.7")
    with pytest.raises(RefusedError, match="listen to the network"):
        connect(ray)
    assert ray.calls[-1] == "shutdown"
    ray = Cluster(ConnectionError("Failed to connect to Ray cluster at …\nTraceback"))
    with pytest.raises(RefusedError, match="Ray did not start") as raised:
        connect(ray, "127.0.0.1:1")
    assert ray.calls[-1] == "shutdown"
    assert raised.value.got == "127.0.0.1:1: Failed to connect to Ray cluster at …"
