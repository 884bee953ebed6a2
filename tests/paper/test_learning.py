import numpy as np
import pytest
from tests.paper.synthetic import confusions, read, tiny_plan, write_job

from ntrm.core.errors import DataError
from ntrm.paper.figures import draw_learning
from ntrm.paper.learning import curve_of, learning_table
from ntrm.report.charts import learning_figure

CURVES = {
    ("ntrm-paper", 0): [(10, 0.2), (20, 0.5), (30, 0.4), (40, 0.7)],
    ("ntrm-paper", 1): [(10, 0.4), (20, 0.6), (30, 0.8), (40, 0.75)],
    # One training stopped early, and one has only its last validation.
    ("ntrm-control", 0): [(10, 0.3), (20, 0.6)],
    ("ntrm-control", 1): [(40, 0.5)],
}


@pytest.fixture
def results(tmp_path, random):
    plan = tiny_plan(archs=("ntrm-paper",), ablation=False)
    for job in plan.jobs:
        curve = CURVES[job.variant.arch, job.seed]
        write_job(tmp_path / job.key, job, confusions(random, 2, 0.6), curve=curve)
    return read(tmp_path, plan)


def test_scores_stand_at_the_last_validation_within_each_part_of_a_training(results):
    table = learning_table(results)
    ours, control = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    parts = ("a quarter", "half", "three quarters", "all")
    assert [ours[part].values for part in parts] == [(0.2, 0.4), (0.5, 0.6), (0.4, 0.8), (0.7, 0.75)]
    assert (ours["steps"], ours["last gain, at most"]) == (40, "+0.200")
    # Of 20 steps the first quarter holds no validation; of the other training only the end does.
    assert control["a quarter"] is None
    assert [control[part].values for part in parts[1:]] == [(0.3,), (0.3,), (0.6, 0.5)]
    assert (control["steps"], control["last gain, at most"]) == (40, "+0.300")


def test_a_training_that_lost_at_its_end_says_so(tmp_path, random):
    plan = tiny_plan(archs=("unet-vgg16",), seeds=(0,), ablation=False)
    (job,) = plan.jobs
    write_job(tmp_path / job.key, job, confusions(random, 2, 0.6), curve=[(1, 0.5), (2, 0.25)])
    table = learning_table(read(tmp_path, plan))
    assert table.rows[0][-1] == "−0.250"
    text = table.write_csv(tmp_path).read_text()
    assert text.splitlines()[1].endswith(",-0.250")


def test_the_figure_has_a_line_for_each_training_and_one_for_their_mean(results, tmp_path):
    assert draw_learning(results, tmp_path).path.is_file()
    curves = {
        "one": [(np.array([1.0, 2.0]), np.array([0.2, 0.4])), (np.array([1.0, 2.0, 3.0]), np.array([0.4, 0.8, 0.9]))]
    }
    (axes,) = learning_figure(curves, measure="mean IoU").axes
    *_, mean = axes.lines
    assert len(axes.lines) == 3
    np.testing.assert_allclose(mean.get_xydata(), [(1, 0.3), (2, 0.6)])  # as far as both go
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one: 0.650"]


def test_runs_that_came_without_their_logs_have_no_curves_and_a_broken_log_is_named(results, tmp_path):
    logs = sorted(tmp_path.glob("*/log.csv"))
    logs[0].write_text("step,val_iou\n10,much\n")
    with pytest.raises(DataError, match=r"log\.csv"):
        [curve_of(outcome) for outcome in read(tmp_path, results.plan).outcomes.values()]
    logs[0].write_text("something\nelse\n")
    with pytest.raises(DataError, match=r"log\.csv"):
        learning_table(read(tmp_path, results.plan))
    logs[0].write_text("epoch,val_iou\n1,0.5\n")
    assert learning_table(read(tmp_path, results.plan)).rows
    for log in logs:
        log.unlink()
    without = read(tmp_path, results.plan)
    assert learning_table(without) is None
    assert draw_learning(without, tmp_path) is None


def test_validations_without_a_number_are_left_out(tmp_path, random):
    plan = tiny_plan(archs=("unet-vgg16",), seeds=(0,), ablation=False)
    (job,) = plan.jobs
    write_job(tmp_path / job.key, job, confusions(random, 2, 0.6))
    (tmp_path / job.key / "log.csv").write_text("step,val_iou\n10,\n20,0.5\n30,nan\n")
    (outcome,) = read(tmp_path, plan).outcomes.values()
    assert curve_of(outcome).steps.tolist() == [20]
    assert curve_of(outcome).last_gain is None
