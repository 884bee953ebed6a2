import csv
import json
from statistics import stdev

import numpy as np
import pytest
from tests.paper.synthetic import confusions, read, tiny_plan, write_all, write_job

from ntrm.core.errors import DataError
from ntrm.metrics.significance import compare_confusions, macro_dice, macro_iou
from ntrm.paper import result_tables
from ntrm.paper.outcomes import Score
from ntrm.paper.published import TABLE_1
from ntrm.paper.result_tables import Difference, ResultTable


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    plan, root = tiny_plan(levels=("10x", "5x")), tmp_path_factory.mktemp("results")
    random = np.random.default_rng(1)
    write_all(root, plan, random, accuracy=lambda job: 0.7 if job.variant.arch == "ntrm-paper" else 0.6)
    return read(root, plan)


def test_table_1_has_the_scores_of_metrics_json_and_the_papers_beside(results):
    rows = {row["system"]: row for row in result_tables.table_1(results).rows}
    assert len(rows) == 7
    for variant in results.plan.systems:
        row, columns = rows[variant.title], ("accuracy", "mean IoU", "Dice")
        folders = [outcome.folder for outcome in results.of(variant)]
        found = [json.loads((folder / "evaluation" / "metrics.json").read_text())["pooled"] for folder in folders]
        scores = [[each["pixel_accuracy"], each["macro"]["iou"], each["macro"]["dice"]] for each in found]
        assert [row[column].mean for column in columns] == pytest.approx(np.mean(scores, axis=0))
        assert [row[column].spread for column in columns] == pytest.approx(np.std(scores, axis=0, ddof=1))
        assert row["encoder init"] == "scratch"
        if variant.arch in TABLE_1:
            assert [row[f"paper: {name}"] for name in columns] == list(TABLE_1[variant.arch])
    quoted = rows["MiT (as quoted)"]
    assert (quoted["paper: accuracy"], quoted["paper: mean IoU"], quoted["paper: Dice"]) == (0.8310, 0.6530, None)
    assert quoted["accuracy"] is None
    assert rows["MiT (trained, B2)"]["accuracy"]


def test_the_table_from_scratch_stands_beside_only_where_it_is_needed(results, tmp_path, random):
    assert result_tables.table_1_scratch(results) is None
    plan = tiny_plan(imagenet=("ntrm-paper",), ablation=False, archs=("ntrm-paper", "unet-vgg16"))
    write_all(tmp_path / "mixed", plan, random)
    mixed = read(tmp_path / "mixed", plan)
    assert [row["encoder init"] for row in result_tables.table_1(mixed).rows] == ["imagenet", "scratch"]
    titles = [(row["system"], row["encoder init"]) for row in result_tables.table_1_scratch(mixed).rows]
    assert titles == [("NTRM", "scratch"), ("U-Net (VGG)", "scratch"), ("control, no TRM", "scratch")]


def test_table_2_names_costs(results):
    first, second = result_tables.table_2(results).rows
    assert (first["resolution"], second["resolution"]) == ("10x", "5x")
    assert (first["test pixels (million)"], second["test pixels (million)"]) == ("1.00", "1.00")
    assert (first["µm/px"], first["training windows"]) == ("6.7", 40)
    # Two seconds over ten sections, and trainings of 10 and 11 seconds.
    assert first["seconds per section"].mean == pytest.approx(0.2)
    assert first["training seconds"].mean == pytest.approx(10.5)
    assert first["paper: Dice"] == 0.8163
    assert second["paper: Dice"] == 0.7924


def test_differences_are_the_paired_bootstraps(results):
    table = result_tables.differences_table(results)
    plan = results.plan
    stacks = {v: np.stack([o.arrays["final"] for o in results.of(v)]) for v in (plan.ours, plan.control)}
    patients = results.patients_of([plan.ours])
    models = {"a": stacks[plan.ours], "b": stacks[plan.control]}
    (expected,) = compare_confusions(models, patients, statistic=macro_iou)
    row = table.rows[-1]
    assert row["NTRM minus"] == "control, no TRM"
    assert row["IoU, points"].value == pytest.approx(100 * expected.difference)
    assert (row["IoU, points"].low, row["IoU, points"].high) == pytest.approx((100 * expected.low, 100 * expected.high))
    assert row["verdict (Dice)"].startswith("NTRM higher")
    (dice,) = compare_confusions(models, patients, statistic=macro_dice)
    low, high = (100 * end for end in dice.over_trainings)
    assert [row["Dice over seeds, from"], row["to"]] == [f"{end:+.1f}".replace("-", "−") for end in (low, high)]
    assert row["verdict (Dice)"].endswith("other trainings may differ") is (low <= 0 <= high)


@pytest.mark.usefixtures("few_draws")
def test_ablation_compares_each_factor_with_its_control_and_with_ntrm(results):
    table = result_tables.ablation_table(results)
    rows = {row["changed"]: row for row in table.rows}
    assert next(iter(rows)) == "NTRM"
    assert rows["NTRM"]["what it means"] == "the paper's letter"
    assert list(rows)[-2:] == ["control", "control coarse d2"]
    plan = results.plan
    mean = {row.factor.name: results.metric(row.variant, *result_tables.IOU).mean for row in plan.ablation}
    ours, control = (results.metric(each, *result_tables.IOU).mean for each in (plan.ours, plan.control))
    matched = {row.factor.name: results.metric(row.control, *result_tables.IOU).mean for row in plan.ablation}
    for name, value in mean.items():
        assert rows[name]["IoU minus NTRM, points"].value == pytest.approx(100 * (value - ours))
        assert rows[name]["IoU minus control, points"].value == pytest.approx(100 * (value - matched[name]))
    assert rows["control"]["IoU minus NTRM, points"].value == pytest.approx(100 * (control - ours))
    assert rows["NTRM"]["validation IoU"].values == (0.6, 0.61)
    assert rows["NTRM"]["IoU minus NTRM, points"] is None
    assert rows["control"]["IoU minus control, points"] is None
    assert matched["coarse d2"] != matched["masks soft"]


def test_runs_that_failed_say_so_and_the_others_stay(tmp_path, random):
    plan = tiny_plan(archs=("ntrm-paper", "unet-resnet18", "unet-vgg16"), ablation=False)
    unet, vgg = plan.systems[1], plan.systems[2]
    broken = {plan.job(unet, seed).key for seed in plan.seeds} | {plan.job(vgg, 0).key}
    write_all(tmp_path, plan, random, skip=broken)
    results = read(tmp_path, plan, dict.fromkeys(broken, "out of memory"))
    shown = {row["system"]: row["accuracy"] for row in result_tables.table_1(results).rows}
    assert str(shown[unet.title]) == "failed"
    assert str(shown[vgg.title]).endswith("(1 seed failed)")
    assert shown["NTRM"].failed == 0
    differences = {row["NTRM minus"]: row["accuracy, points"] for row in result_tables.differences_table(results).rows}
    assert differences[unet.title] == "failed"
    assert isinstance(differences[vgg.title], Difference)
    with result_tables.runs_table(results).write_csv(tmp_path / "csv").open(newline="") as stream:
        statuses = {row["folder"]: row["status"] for row in csv.DictReader(stream)}
    assert {key for key, status in statuses.items() if status == "failed"} == broken
    assert len(results.lacking) == 3


def test_csv_has_plain_numbers_in_columns_of_their_own(tmp_path):
    a = {"name": "a", "IoU": Score((0.25, 0.75)), "gain": Difference(1.0, -2.0, 3.0, established=False)}
    path = ResultTable("t", "T", [a, {"name": "b", "IoU": None, "gain": "failed"}]).write_csv(tmp_path)
    with path.open(newline="") as stream:
        first, second = csv.DictReader(stream)
    assert (float(first["IoU"]), first["IoU seeds"], first["IoU failed"]) == (0.5, "2", "0")
    assert float(first["IoU sd"]) == pytest.approx(stdev((0.25, 0.75)))
    gains = [first[key] for key in ("gain", "gain low", "gain high", "gain established")]
    assert gains == ["1.0", "-2.0", "3.0", "False"]
    assert (second["IoU"], second["gain"], second["gain low"]) == ("", "failed", "")


def test_scores_stand_at_the_last_validation_within_each_part_of_a_training(tmp_path, random):
    plan = tiny_plan(archs=("ntrm-paper",), ablation=False)
    curves = {
        ("ntrm-paper", 0): [(10, 0.2), (20, 0.5), (30, 0.4), (40, 0.7)],
        ("ntrm-paper", 1): [(10, 0.4), (20, 0.6), (30, 0.8), (40, 0.75)],
        # One training stopped early and lost, and one has only its last validation.
        ("ntrm-control", 0): [(10, 0.6), (20, 0.35)],
        ("ntrm-control", 1): [(10, np.nan), (40, 0.5)],
    }
    for job in plan.jobs:
        write_job(tmp_path / job.key, job, confusions(random, 2, 0.6), curve=curves[job.variant.arch, job.seed])
    table = result_tables.learning_table(read(tmp_path, plan))
    ours, control = table.rows
    parts = ("a quarter", "half", "three quarters", "all")
    assert [ours[part].values for part in parts] == [(0.2, 0.4), (0.5, 0.6), (0.4, 0.8), (0.7, 0.75)]
    assert (ours["steps"], ours["last gain, at most"]) == (40, "+0.200")
    # Of 20 steps the first quarter holds no validation; of the other training only the end does.
    assert control["a quarter"] is None
    assert [control[part].values for part in parts[1:]] == [(0.6,), (0.6,), (0.35, 0.5)]
    assert (control["steps"], control["last gain, at most"]) == (40, "−0.250")
    logs = sorted(tmp_path.glob("*/log.csv"))
    for damaged in ("step,val_iou\n10,much\n", "something\nelse\n"):
        logs[0].write_text(damaged)
        with pytest.raises(DataError, match=r"log\.csv"):
            result_tables.learning_table(read(tmp_path, plan))
    for log in logs:
        log.unlink()
    assert result_tables.learning_table(read(tmp_path, plan)) is None
