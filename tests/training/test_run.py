import json

import pytest
import torch
from tests.training.small_data import small_recipe

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.training.run import IDENTITY, Run, check_folder, differences, read_result


def make_run(out, **changes):
    settings = {
        "arch": "ntrm-control", "options": {"width": 0.5}, "level": "10x", "mpp": 6.7, "sections": None, "init": None,
        "seed": 3, "recipe": small_recipe(), "data": "abc", "name": "mine", "device": torch.device("cpu"),
    }  # fmt: skip
    return Run(out=out, **{**settings, **changes})


def begin(out, **changes):
    run = make_run(out, **changes)
    run.begin("scratch", {"notes": []})
    return run


def outcome(run):
    return run.end(steps=12, epochs=2.0, best={"step": 8, "iou": 0.5}, seconds=3.5, write=True)


def test_a_run_is_finished_once_it_is_written(tmp_path):
    run = begin(tmp_path / "run")
    assert read_result(run.out) is None
    result = outcome(run)
    assert read_result(run.out) is None  # there is no model
    (run.out / "model").mkdir()
    (run.out / "model" / "config.json").write_text("{}")
    assert read_result(run.out) == result
    assert json.loads(json.dumps(result.as_dict()))["best"] == {"step": 8, "iou": 0.5}


def test_other_processes_write_nothing(tmp_path):
    result = make_run(tmp_path / "run").end(steps=1, epochs=1.0, best={}, seconds=1.0, write=False)
    assert result.finished
    assert not (tmp_path / "run").exists()


def test_the_same_run_is_let_in_and_sessions_are_counted(tmp_path):
    for session in (1, 2, 3):
        run = begin(tmp_path / "run")
        run.check()
        assert json.loads((run.out / "provenance.json").read_text())["sessions"] == session


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"arch": "ntrm-paper"}, {"arch"}),
        ({"options": {}}, {"options.width"}),
        ({"options": {"width": 0.5, "coarse": "d2"}}, {"options.coarse"}),
        ({"seed": 4}, {"seed"}),
        ({"data": "abd"}, {"data"}),
        ({"level": "5x", "mpp": 3.35}, {"level", "mpp"}),
        ({"sections": 5}, {"sections"}),
        ({"init": "other/model"}, {"init"}),
        ({"recipe": small_recipe(batch=4, weighting="batch")}, {"recipe.batch", "recipe.weighting"}),
        ({"recipe": small_recipe(workers=3, resident="no")}, set()),
        ({"name": "other", "device": torch.device("cuda"), "command": ("x",)}, set()),
    ],
)
def test_differences_are_named(tmp_path, changes, named):
    before = begin(tmp_path / "run")
    run = make_run(before.out, **changes)
    found = differences(json.loads((before.out / "provenance.json").read_text()), run.identity())
    assert found.keys() == named
    if named:
        with pytest.raises(RefusedError, match="another one") as caught:
            run.check()
        assert all(name in str(caught.value.got) for name in named)
    else:
        run.check()


def test_every_part_of_the_identity_counts(tmp_path):
    identity = make_run(tmp_path, sections=4, init="some/model").identity()
    assert set(identity) == set(IDENTITY)
    for name in IDENTITY:
        assert differences({**identity, name: None}, identity)


@pytest.mark.parametrize("content", ["{", "[]", b"\xff\xfe"])
def test_a_damaged_provenance_is_told(tmp_path, content):
    path = tmp_path / "provenance.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match="provenance"):
        check_folder(tmp_path, resume=True)


def test_folders(tmp_path):
    check_folder(tmp_path / "new", resume=False)
    check_folder(tmp_path, resume=False)  # empty
    (tmp_path / ".partial-1.json").write_text("")
    check_folder(tmp_path, resume=False)
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(RefusedError, match="not empty") as caught:
        check_folder(tmp_path, resume=False)
    assert "--resume" in caught.value.mend
    with pytest.raises(RefusedError, match="no run"):
        check_folder(tmp_path, resume=True)
    with pytest.raises(UsageError, match="not a folder"):
        check_folder(tmp_path / "mine.txt", resume=True)
