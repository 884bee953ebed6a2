import getpass
import json
import os
import platform
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch
from tests.training.small_data import small_recipe

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.training.run import TrainingRun, git_state, locked, read_result
from ntrm.version import __version__


def make_run(out, **changes):
    settings = {
        "arch": "ntrm-control", "options": {"width": 0.5}, "level": "10x", "mpp": 6.7, "sections": None, "init": None,
        "seed": 3, "recipe": small_recipe(), "data": "abc", "name": "mine", "device": torch.device("cpu"),
    }  # fmt: skip
    return TrainingRun(out=out, **{**settings, **changes})


def begin(out, **changes):
    run = make_run(out, **changes)
    run.begin({"encoder": "scratch", "notes": []})
    return run


def outcome(run):
    return run.end(12, 2.0, {"step": 8, "iou": 0.5}, 3.5, write=True)


def test_a_run_is_finished_once_it_is_written(tmp_path):
    run = begin(tmp_path / "run")
    assert read_result(run.out) is None
    result = outcome(run)
    assert read_result(run.out) is None  # there is no model
    (run.out / "model").mkdir()
    (run.out / "model" / "config.json").write_text("{}")
    assert read_result(run.out) == result
    assert json.loads(json.dumps(result.as_dict()))["best"] == {"step": 8, "iou": 0.5}
    assert replace(result, provenance={"level": ""}).as_dict()["provenance"] == {"level": None}


def claim(out, *, resume=False):
    with locked(out, resume=resume):
        pass


def test_folders(tmp_path):
    claim(tmp_path / "new")
    claim(tmp_path)  # empty
    (tmp_path / ".partial-1.json").write_text("")
    claim(tmp_path)
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(RefusedError, match="not empty") as caught:
        claim(tmp_path)
    assert "--resume" in caught.value.hint
    with pytest.raises(RefusedError, match="no run"):
        claim(tmp_path, resume=True)
    with pytest.raises(UsageError, match="not a folder"):
        claim(tmp_path / "mine.txt", resume=True)
    assert {path.name for path in tmp_path.iterdir()} == {".partial-1.json", "mine.txt"}
    for content in (b"{", b"[]", b"\xff\xfe"):
        (tmp_path / "provenance.json").write_bytes(content)
        with pytest.raises(DataError, match="provenance"):
            claim(tmp_path, resume=True)


CPU = torch.device("cpu")


def written(out, **changes):
    """The provenance of a run that has begun."""
    return json.loads((begin(out, **changes).out / "provenance.json").read_text())


def test_it_is_a_json_document_of_what_was_run(tmp_path):
    before = datetime.now(UTC).replace(microsecond=0)
    document = written(tmp_path, command=("ntrm", "train"))
    assert document["command"] == ["ntrm", "train"]
    assert document["recipe"] == small_recipe().as_dict()
    assert (document["seed"], document["data"]) == (3, "abc")
    assert (document["arch"], document["options"]) == ("ntrm-control", {"width": 0.5})
    time = datetime.fromisoformat(document["time"])
    assert before <= time <= datetime.now(UTC)
    assert time.utcoffset() == timedelta(0)
    assert document.keys() >= {"versions", "git", "device", "platform", "windows", "sessions"}
    assert __version__ in document["versions"].values()
    # Nobody is named.
    text = json.dumps(document)
    assert not any(f'"{name}"' in text for name in (platform.node(), getpass.getuser(), str(Path.home())))
    assert str(Path.home()) + os.sep not in text


def test_a_tracked_package_has_a_commit_and_may_be_changed_and_one_installed_inside_is_no_part_of_it(tmp_path):
    folder, package = tmp_path / "repository", tmp_path / "repository" / "package"
    package.mkdir(parents=True)
    (package / "module.py").write_text("one = 1\n")
    (folder / ".gitignore").write_text("ignored/\n")
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@localhost", "-c", "commit.gpgsign=false"]

    def git(*arguments):
        command = ["git", "-C", folder, *identity, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        git(*words)
    commit = git("rev-parse", "HEAD")
    (folder / "elsewhere.txt").write_text("no part of the package\n")
    assert git_state(package) == {"commit": commit, "dirty": False}
    (package / "new.py").write_text("two = 2\n")
    assert git_state(package) == {"commit": commit, "dirty": True}
    (folder / "ignored" / "package").mkdir(parents=True)
    assert git_state(folder / "ignored" / "package") is None
    assert git_state(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"arch": "ntrm-paper"}, "arch ntrm-paper"),
        ({"options": {}}, "options.width None"),
        ({"options": {"width": 0.5, "coarse": "d2"}}, "options.coarse d2"),
        ({"level": "5x", "mpp": 3.35}, "level 5x; mpp 3.35"),
        ({"sections": 5}, "sections 5"),
        ({"init_sha256": "abc"}, "init_sha256 abc"),
        ({"recipe": small_recipe(batch=4, weighting="batch")}, "recipe.batch 4; recipe.weighting batch"),
        ({"recipe": small_recipe(workers=3, resident="no")}, ""),
        ({"name": "other", "command": ("x",)}, ""),
    ],
)
def test_another_run_in_the_folder_is_refused_by_what_differs(tmp_path, changes, named):
    begin(tmp_path / "run")
    run = make_run(tmp_path / "run", **changes)
    if not named:
        run.check()
        return
    with pytest.raises(RefusedError, match="a different run") as caught:
        run.check()
    assert caught.value.got == named
