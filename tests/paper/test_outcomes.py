from dataclasses import replace

import numpy as np
import pytest
from tests.paper.synthetic import confusions, read, tiny_plan, write_job

from ntrm.core.errors import DataError
from ntrm.metrics.significance import compare_scores
from ntrm.paper.outcomes import JobOutcome, compare_variants


@pytest.fixture
def plan():
    return tiny_plan(archs=("ntrm-paper", "unet-resnet18"), ablation=False)


def test_a_run_is_done_when_its_metrics_are_there_and_whole(tmp_path, plan, random):
    job = plan.jobs[0]
    assert JobOutcome.read(job, tmp_path / "none").status == "not run"
    assert JobOutcome.read(job, tmp_path / "none", "killed").status == "failed"
    write_job(tmp_path / "run", job, confusions(random, 3, 0.5))
    assert JobOutcome.read(job, tmp_path / "run").status == "done"
    metrics = tmp_path / "run" / "evaluation" / "metrics.json"
    metrics.write_text(metrics.read_text()[:-20])
    assert JobOutcome.read(job, tmp_path / "run").status == "not run"


def test_evaluations_of_other_sections_are_not_mixed(tmp_path, plan, random):
    for number, job in enumerate(plan.jobs):
        write_job(tmp_path / job.key, job, confusions(random, 3, 0.5), names=[f"{number}", "b", "c"])
    patients = dict.fromkeys([*map(str, range(len(plan.jobs))), "b", "c"], "patient")
    results = read(tmp_path, plan, patients=patients)
    with pytest.raises(DataError, match="not of the same sections"):
        results.patients_of(plan.systems)
    (first, *_), seeds = plan.systems, plan.seeds
    alone = replace(results, plan=replace(plan, seeds=seeds[:1]))
    assert alone.patients_of([first]) == ["patient"] * 3
    with pytest.raises(DataError, match="1 sections that the dataset does not have"):
        replace(alone, patients={"b": "patient", "c": "patient"}).patients_of([first])


@pytest.mark.parametrize(
    "damage",
    [lambda lines: lines[:-1], lambda lines: [*lines[:-1], lines[-1].replace("0.5", "0.5x")], lambda lines: []],
    ids=["row missing", "no number", "empty"],
)
def test_a_table_of_sections_that_is_not_whole_is_named(tmp_path, plan, random, damage):
    for job in plan.jobs:
        scores = {"adjacency_f1": [0.5, "", 0.25]}
        write_job(tmp_path / job.key, job, confusions(random, 3, 0.5), scores=scores)
    results = read(tmp_path, plan)
    np.testing.assert_array_equal(results.section_scores(plan.ours, "adjacency_f1"), [[0.5, np.nan, 0.25]] * 2)
    table = tmp_path / plan.job(plan.ours, 0).key / "evaluation" / "sections.csv"
    table.write_text("\n".join(damage(table.read_text().splitlines())))
    with pytest.raises(DataError, match=r"(?s)sections\.csv.*start again"):
        compare_variants(results, [plan.systems], "iou")


def test_scores_are_compared_across_resolutions_by_the_patients_of_the_dataset(tmp_path, random):
    plan = tiny_plan(archs=("ntrm-paper",), levels=("10x", "5x"), ablation=False)
    scores = {job.key: random.random(8) for job in plan.jobs}
    for job in plan.jobs:
        write_job(tmp_path / job.key, job, confusions(random, 8, 0.5), scores={"iou": scores[job.key].tolist()})
    corrected = {f"S{k}": f"patient {k // 2}" for k in range(8)}  # the evaluation has one a section
    coarse, fine = plan.resolutions
    (found,) = compare_variants(read(tmp_path, plan, patients=corrected), [(coarse, fine)], "iou").values()
    stacks = [np.stack([scores[plan.job(variant, seed).key] for seed in plan.seeds]) for variant in (coarse, fine)]
    (expected,) = compare_scores({"a": stacks[0], "b": stacks[1]}, [*corrected.values()])
    assert found.difference == pytest.approx(stacks[0].mean() - stacks[1].mean())
    assert (found.patients, found.low, found.high, found.p) == (4, expected.low, expected.high, expected.p)
