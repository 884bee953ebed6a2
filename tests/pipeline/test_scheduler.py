"""The scheduling alone, with a pool whose workers answer, die, refuse or go mad as the test says."""

import json
from collections import Counter
from dataclasses import dataclass, field

import pytest

from ntrm.core.errors import RefusedError
from ntrm.pipeline.scheduler import ERRORS, LOSSES, MISSES, PATIENCE_S, Scheduler, SlideTask, WorkerLostError
from ntrm.pipeline.segmenter import Outcome
from ntrm.results.run_record import Run
from ntrm.results.slide_state import remembered
from ntrm.slides.inputs import SlideInput

RUN = Run(model={"name": "m"}, options={}, classes=("EPI",))


@dataclass
class FakePool:
    """Jobs end in random order. ``plan[slide]`` lists what its attempts do: ``die``, ``bug``, ``busy`` or ``done``."""

    random: object
    plan: dict = field(default_factory=dict)
    starts: list = field(default_factory=list)
    """What the first starts do: ``ok``, ``die`` or ``refuse``; those after them are like the last."""
    jobs: dict = field(default_factory=dict)
    alive: set = field(default_factory=set)
    busy: set = field(default_factory=set)
    given: list = field(default_factory=list)
    most: int = 0

    def start(self):
        number = len([job for job in self.jobs if job[0] == "start"])
        worker = f"w{number}"
        fate = self.starts[min(number, len(self.starts) - 1)] if self.starts else "ok"
        self.alive.add(worker)
        self.most = max(self.most, len(self.alive))
        self.jobs["start", worker] = fate
        return worker, ("start", worker)

    def submit(self, worker, task, patience_s):
        assert worker in self.alive
        assert worker not in self.busy, "two slides at once"
        self.busy.add(worker)
        fates = self.plan.get(task.slide_id, ["done"])
        before = sum(name == task.slide_id for name, _, _ in self.given)
        self.given.append((task.slide_id, worker, patience_s))
        job = ("slide", task.slide_id, before, worker)
        self.jobs[job] = fates[min(before, len(fates) - 1)]
        return job

    def wait(self, jobs):
        jobs = list(jobs)
        assert jobs, "waiting for nothing"
        return jobs[int(self.random.integers(len(jobs)))]

    def result(self, job):
        fate = self.jobs[job]
        self.busy.discard(job[-1])
        if fate == "die":
            raise WorkerLostError("the worker process was lost", got="killed")
        if fate == "refuse":
            raise RefusedError("holds results of another run")
        if job[0] == "start":
            return RUN
        if fate == "bug":
            return Outcome(job[1], "failed", "unexpected ValueError: strange", unexpected=True)
        return Outcome(job[1], fate)

    def discard(self, worker):
        self.alive.remove(worker)
        self.busy.discard(worker)


def tasks(tmp_path, count):
    return [
        SlideTask(SlideInput(tmp_path / f"{n}.tif", f"{n}.tif", covariates={"age": "7"}), f"s{n}") for n in range(count)
    ]


def schedule(tmp_path, random, count=6, workers=3, **more):
    pool = FakePool(random, **more)
    scheduler = Scheduler(pool, workers, tmp_path / "out")
    return pool, scheduler, list(scheduler.run(tasks(tmp_path, count)))


def statuses(outcomes):
    return {each.slide_id: each.status for each in outcomes}


def test_every_slide_is_done_once_by_no_more_workers_than_asked_for(tmp_path, random):
    pool, scheduler, outcomes = schedule(tmp_path, random, count=20)
    assert Counter(each.slide_id for each in outcomes) == Counter(f"s{n}" for n in range(20))
    assert Counter(name for name, _, _ in pool.given) == Counter(f"s{n}" for n in range(20))
    assert pool.most <= 3
    assert scheduler.made_with is RUN
    assert {patience for _, _, patience in pool.given} == {0.0}


def test_few_slides_need_few_workers(tmp_path, random):
    pool, _, _ = schedule(tmp_path, random, count=2, workers=8)
    assert pool.most == 2


def test_what_a_dead_worker_left_goes_to_another_one_with_patience(tmp_path, random):
    pool, _, outcomes = schedule(tmp_path, random, plan={"s1": ["die", "done"]})
    assert set(statuses(outcomes).values()) == {"done"}
    first, second = [(worker, patience) for name, worker, patience in pool.given if name == "s1"]
    assert first[0] != second[0]
    assert (first[1], second[1]) == (0.0, PATIENCE_S)
    assert first[0] not in pool.alive


@pytest.mark.parametrize(("fate", "times"), [("die", LOSSES), ("bug", ERRORS)])
def test_a_slide_that_costs_every_worker_fails_and_the_others_go_on(tmp_path, random, fate, times):
    pool, _, outcomes = schedule(tmp_path, random, plan={"s2": [fate]})
    assert statuses(outcomes) == {f"s{n}": "failed" if n == 2 else "done" for n in range(6)}
    workers = [worker for name, worker, _ in pool.given if name == "s2"]
    assert len(set(workers)) == len(workers) == times
    (failed,) = [each for each in outcomes if each.status == "failed"]
    state = remembered(tmp_path / "out" / "s2")
    assert state.row["reason"] == failed.reason
    assert state.covariates == {"age": "7"}


def test_a_busy_slide_is_asked_for_once_more_after_all_others(tmp_path, random):
    pool, _, outcomes = schedule(tmp_path, random, workers=1, plan={"s0": ["busy", "kept"], "s3": ["busy"]})
    assert statuses(outcomes)["s0"] == "kept"
    assert statuses(outcomes)["s3"] == "busy"
    assert len(outcomes) == 6
    assert [name for name, _, _ in pool.given][-2:] == ["s0", "s3"]


@pytest.mark.parametrize("fate", ["die", "refuse"])
def test_where_no_worker_starts_the_reason_is_raised(tmp_path, random, fate):
    pool = FakePool(random, starts=[fate])
    with pytest.raises(RefusedError if fate == "refuse" else WorkerLostError):
        list(Scheduler(pool, 2, tmp_path).run(tasks(tmp_path, 4)))
    assert len(pool.jobs) <= MISSES + 1
    assert not pool.alive


def test_one_bad_machine_only_makes_it_slower(tmp_path, random):
    pool, _, outcomes = schedule(tmp_path, random, count=12, starts=["ok", "die"])
    assert set(statuses(outcomes).values()) == {"done"}
    assert {worker for _, worker, _ in pool.given} == {"w0"}
    assert len([job for job in pool.jobs if job[0] == "start"]) <= 1 + 2 * (MISSES + 2)


def test_when_the_last_worker_is_gone_for_good_the_rest_is_told_as_failed(tmp_path, random):
    _, _, outcomes = schedule(tmp_path, random, workers=1, starts=["ok", "die"], plan={"s2": ["die"]})
    assert statuses(outcomes) == {f"s{n}": "done" if n < 2 else "failed" for n in range(6)}
    reasons = {each.reason for each in outcomes if each.status == "failed"}
    assert all("no worker is left" in reason for reason in reasons)
    assert json.loads((tmp_path / "out" / "s5" / ".ntrm" / "failed.json").read_text())["covariates"] == {"age": "7"}


def test_random_accidents_lose_no_slide_and_do_none_twice(tmp_path, random):
    for _ in range(30):
        fates = ["done", "done", "done", "die", "bug", "busy"]
        names = [f"s{n}" for n in range(int(random.integers(1, 12)))]
        plan = {name: [str(random.choice(fates)) for _ in range(6)] for name in names}
        pool, _, outcomes = schedule(tmp_path, random, len(names), int(random.integers(1, 5)), plan=plan)
        assert sorted(statuses(outcomes)) == sorted(names)
        assert len(outcomes) == len(names)
        for name in names:
            tried = [plan[name][k] for k in range(sum(given == name for given, _, _ in pool.given))]
            assert "done" not in tried[:-1]
            assert (statuses(outcomes)[name] == "done") == (tried[-1] == "done")
