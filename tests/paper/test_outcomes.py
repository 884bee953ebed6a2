from dataclasses import replace

import numpy as np
import pytest
from tests.paper.synthetic import confusions, read, tiny_plan, write_all, write_job

from ntrm.core.errors import DataError
from ntrm.metrics.significance import compare_scores, pixel_accuracy
from ntrm.paper.outcomes import JobOutcome, compare_stacks, compare_variants, false_positive_rate


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


def test_patients_are_those_of_the_dataset_not_of_the_evaluation(tmp_path, plan, random):
    write_all(tmp_path, plan, random, sections=4)
    corrected = {"S0": "A", "S1": "A", "S2": "B", "S3": "B"}
    results = read(tmp_path, plan, patients=corrected)
    assert results.patients_of(plan.systems) == [*corrected.values()]
    (found,) = compare_variants(results, [plan.systems], pixel_accuracy).values()
    assert found.patients == 2


@pytest.mark.parametrize("name", ["confusions.npz", "interfaces.npz", "sections.csv"])
def test_damaged_files_are_named(tmp_path, plan, random, name):
    job = plan.jobs[0]
    write_job(tmp_path, job, confusions(random, 3, 0.5))
    path = tmp_path / "evaluation" / name
    path.write_bytes(b"\xff\xfe" * 20)
    outcome = JobOutcome.read(job, tmp_path)
    with pytest.raises(DataError, match=name):
        _ = outcome.section_scores("iou"), outcome.interfaces


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[:-1],
        lambda lines: [*lines[:-1], lines[-1].replace("0.5", "0.5x")],
        lambda lines: [line.rpartition(",")[0] for line in lines],
        lambda lines: [],
    ],
    ids=["row missing", "no number", "column missing", "empty"],
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


SECTIONS = 8
PATIENTS = [f"P{k}" for k in range(SECTIONS)]


def test_patients_in_whom_nothing_is_counted_establish_nothing():
    """One patient has the interface; seven have none of its pixels, or no pixel of another class."""

    def right_and_wrong(right, wrong):
        tables = np.zeros((1, SECTIONS, 2, 2), dtype=np.int64)
        tables[0, 0, 0] = right, wrong
        return tables

    final, coarse = right_and_wrong(60, 40), right_and_wrong(59, 41)
    pair = {"": (final, coarse)}
    (alone,) = compare_stacks(pair, PATIENTS, pixel_accuracy).values()
    assert (alone.patients, alone.p, alone.established) == (1, 1, False)
    for tables in (final, coarse):
        tables[0, 1:, 1, 1] = 100
    (alone,) = compare_stacks(pair, PATIENTS, false_positive_rate(1)).values()
    assert (alone.patients, alone.p, alone.established) == (1, 1, False)


def test_scores_of_sections_are_compared_across_resolutions(tmp_path, random):
    plan = tiny_plan(archs=("ntrm-paper",), levels=("10x", "5x"), ablation=False)
    scores = {job.key: random.random(SECTIONS) for job in plan.jobs}
    for job in plan.jobs:
        write_job(tmp_path / job.key, job, confusions(random, SECTIONS, 0.5), scores={"iou": scores[job.key].tolist()})
    coarse, fine = plan.resolutions
    (found,) = compare_variants(read(tmp_path, plan), [(coarse, fine)], "iou").values()
    stacks = [np.stack([scores[plan.job(variant, seed).key] for seed in plan.seeds]) for variant in (coarse, fine)]
    (expected,) = compare_scores({"a": stacks[0], "b": stacks[1]}, PATIENTS)
    assert found.difference == pytest.approx(stacks[0].mean() - stacks[1].mean())
    assert (found.low, found.high, found.p) == (expected.low, expected.high, expected.p)
