import shlex

import pytest
from tests.reproduction.synthetic import tiny_plan
from typer.main import get_command

from ntrm.cli.main import app
from ntrm.core.errors import RefusedError, UsageError
from ntrm.reproduction.workspace import Workspace
from ntrm.training.recipe import load_recipe


def test_only_an_empty_folder_or_a_reproduction_is_written_to(tmp_path):
    Workspace(tmp_path / "new").claim()
    (tmp_path / "mine").mkdir()
    Workspace(tmp_path / "mine").claim()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(RefusedError, match="no reproduction"):
        Workspace(tmp_path / "mine").claim()
    Workspace(tmp_path / "mine").describe({})
    Workspace(tmp_path / "mine").claim()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a folder"):
        Workspace(tmp_path / "file").claim()


def test_a_task_says_everything_and_its_commands_do_the_same_by_hand(tmp_path):
    plan = tiny_plan(archs=("ntrm-paper",), options={"width": 0.125})
    workspace = Workspace(tmp_path)
    job = plan.job(next(row.variant for row in plan.ablation if row.factor.name == "boundary off"), 1)
    task = workspace.task(job, tmp_path / "data", tmp_path / "splits.csv", boundaries=True, pictures=False)
    assert load_recipe(task.document["recipe"]) == job.recipe
    assert task.document["options"] == {"boundary": False, "width": 0.125}
    train = get_command(app).commands["train"]
    given = train.make_context("train", task.document["command"][2:]).params
    assert (given["arch"], given["seed"], str(given["resolution"])) == ("ntrm-paper", 1, "10x")
    assert set(given["option"]) == {"boundary=false", "width=0.125"}
    assert given["out"] == workspace.run(job)
    evaluate = get_command(app).commands["evaluate"]
    given = evaluate.make_context("evaluate", task.document["evaluate_command"][2:]).params
    assert given["splits"] == tmp_path / "splits.csv"
    assert given["model"] == str(workspace.run(job) / "model")
    assert shlex.join(task.document["command"]).startswith("ntrm train --arch ntrm-paper")


def test_jobs_of_one_recipe_share_its_file(tmp_path):
    plan = tiny_plan(imagenet=("ntrm-paper",), ablation=False)
    workspace = Workspace(tmp_path)
    files = {(workspace.recipe(job), job.recipe.encoder_weights) for job in plan.jobs}
    assert len(files) == 2
    assert {weights for _, weights in files} == {"imagenet", "none"}
