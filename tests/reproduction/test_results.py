import json

import numpy as np
import pytest
from tests.reproduction.synthetic import confusions, read, tiny_plan, write_all, write_job

from ntrm.core.errors import DataError
from ntrm.reproduction.results import dig, evaluation_of, read_outcome


@pytest.fixture
def plan():
    return tiny_plan(archs=("ntrm-paper", "unet-resnet18"), ablation=False)


def test_a_run_is_done_when_its_metrics_are_there_and_whole(tmp_path, plan, random):
    job = plan.jobs[0]
    assert read_outcome(job, tmp_path / "none").status == "not run"
    assert read_outcome(job, tmp_path / "none", "killed").status == "failed"
    write_job(tmp_path / "run", job, confusions(random, 3, 0.5))
    assert read_outcome(job, tmp_path / "run").status == "done"
    metrics = tmp_path / "run" / "evaluation" / "metrics.json"
    metrics.write_text(metrics.read_text()[:-20])
    assert evaluation_of(tmp_path / "run") is None


def test_seeds_are_stacked_and_missing_arrays_left_out(tmp_path, plan, random):
    write_all(tmp_path, plan, random, sections=4)
    results = read(tmp_path, plan)
    stack = results.stack(plan.ours)
    assert stack.shape == (2, 4, 12, 12)
    stored = np.load(results.of(plan.ours)[1].folder / "evaluation" / "confusions.npz")["final"]
    np.testing.assert_array_equal(stack[1], stored)
    assert results.stack(plan.systems[1], "initial") is None
    assert results.sections(plan.systems) == ([f"S{k}" for k in range(4)], [f"P{k}" for k in range(4)])


def test_evaluations_of_other_sections_are_not_mixed(tmp_path, plan, random):
    for number, job in enumerate(plan.jobs):
        write_job(tmp_path / job.key, job, confusions(random, 3, 0.5), patients=[f"{number}", "b", "c"])
    with pytest.raises(DataError, match="not of the same sections"):
        read(tmp_path, plan).sections(plan.systems)


@pytest.mark.parametrize("name", ["confusions.npz", "interfaces.npz", "sections.csv"])
def test_damaged_files_are_named(tmp_path, plan, random, name):
    job = plan.jobs[0]
    write_job(tmp_path, job, confusions(random, 3, 0.5))
    path = tmp_path / "evaluation" / name
    path.write_bytes(b"\xff\xfe" * 20)
    outcome = read_outcome(job, tmp_path)
    attribute = {"confusions.npz": "arrays", "interfaces.npz": "interfaces", "sections.csv": "sections"}[name]
    with pytest.raises(DataError, match=name):
        getattr(outcome, attribute)


def test_empty_cells_of_sections_are_no_numbers(tmp_path, plan, random):
    scores = {"adjacency_f1": [0.5, "", 0.25]}
    for job in plan.jobs:
        write_job(tmp_path / job.key, job, confusions(random, 3, 0.5), scores=scores)
    found = read(tmp_path, plan).section_scores(plan.ours, "adjacency_f1")
    np.testing.assert_array_equal(found, [[0.5, np.nan, 0.25]] * 2)


def test_numbers_deep_in_a_document():
    document = json.loads('{"a": {"b": 0.5, "c": null}}')
    assert dig(document, ("a", "b")) == 0.5
    assert dig(document, ("a", "c")) is None
    assert dig(document, ("a", "b", "d")) is None
    assert dig(document, ("a",)) is None
    assert dig({}, ("a", "b")) is None
