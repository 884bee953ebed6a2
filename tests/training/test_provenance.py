import getpass
import importlib.metadata
import json
import math
import os
import platform
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.training import provenance as provenance_module
from ntrm.training.provenance import describe_device, git_state, provenance, versions
from ntrm.training.recipe import load_recipe
from ntrm.version import __version__

CPU = torch.device("cpu")


def made(**changes):
    settings = {
        "command": ("ntrm", "train"),
        "recipe": load_recipe("fast"),
        "seed": 3,
        "device": CPU,
        "parts_fingerprint": "0123",
        "extra": None,
    }
    return provenance(**(settings | changes))


def test_it_is_a_json_document_of_what_was_run():
    before = datetime.now(UTC).replace(microsecond=0)
    document = made(extra={"arch": "ntrm", "options": {"width": 0.5}})
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["command"] == ["ntrm", "train"]
    assert document["recipe"] == load_recipe("fast").as_dict()
    assert (document["seed"], document["data"]) == (3, "0123")
    assert (document["arch"], document["options"]) == ("ntrm", {"width": 0.5})
    time = datetime.fromisoformat(document["time"])
    assert before <= time <= datetime.now(UTC)
    assert time.utcoffset() == timedelta(0)


def test_keys_come_in_one_order():
    keys = ["command", "seed", "recipe", "data", "versions", "git", "device", "platform", "time"]
    assert list(made(extra={"z": 1, "a": 2})) == ["z", "a", *keys]
    assert list(made()) == keys


def leaves(value):
    """Every text and number of a document."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return {value} if parts is None else {leaf for part in parts for leaf in leaves(part)}


def test_nobody_is_named():
    document = made()
    told = leaves(document)
    assert {"ntrm", "train", __version__} <= told
    assert not told & {platform.node(), getpass.getuser(), str(Path.home())}
    assert str(Path.home()) + os.sep not in json.dumps(document)


def test_versions_are_the_installed_ones():
    found = versions()
    assert (found["ntrm"], found["python"]) == (__version__, platform.python_version())
    assert found["torch"] == torch.__version__
    assert found["lightning"] == importlib.metadata.version("lightning")
    assert found["scikit-image"] == importlib.metadata.version("scikit-image")
    assert found["cuda"] == torch.version.cuda
    assert None not in [version for name, version in found.items() if name not in ("cuda", "cudnn")]


def test_values_become_what_json_has():
    given = {
        "path": Path("a/b"),
        "numbers": (np.int64(3), np.float32(0.5), torch.tensor(2)),
        "missing": [math.nan, -math.inf, np.float64("nan"), 1.5],
        "nested": {1: {"x": None, "y": True}},
    }
    document = made(extra=given)
    assert document["path"] == "a/b"
    assert document["numbers"] == [3, 0.5, 2]
    assert document["missing"] == [None, None, None, 1.5]
    assert document["nested"] == {"1": {"x": None, "y": True}}
    with pytest.raises(UsageError, match=r"provenance\.what cannot be written"):
        made(extra={"what": {1, 2}})
    with pytest.raises(UsageError, match="cannot be written"):
        made(extra={"array": np.zeros(3)})


def test_nothing_is_told_twice():
    with pytest.raises(UsageError, match="git, seed"):
        made(extra={"seed": 4, "git": None, "arch": "ntrm"})


def test_devices_are_described(monkeypatch):
    assert describe_device(CPU)["type"] == "cpu"
    assert describe_device(CPU)["threads"] == torch.get_num_threads()

    class Properties:
        name = "Big GPU"
        total_memory = 80 * 2**30

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: Properties)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    described = describe_device(torch.device("cuda"))
    assert described == {"type": "cuda", "name": "Big GPU", "memory_gib": 80.0, "count": 2}


# --- the state of the code ---


@pytest.fixture
def repository(tmp_path):
    """A repository with a package of one file, and a way to run git in it."""
    folder = tmp_path / "repository"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "module.py").write_text("one = 1\n")
    (folder / ".gitignore").write_text("ignored/\n")
    identity = ["-c", "user.name=tester", "-c", "user.email=tester@localhost", "-c", "commit.gpgsign=false"]

    def git(*arguments):
        done = subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return folder, git


def test_a_tracked_package_has_a_commit_and_may_be_changed(repository):
    folder, git = repository
    package, commit = folder / "package", git("rev-parse", "HEAD")
    assert git_state(package) == {"commit": commit, "dirty": False}
    (folder / "elsewhere.txt").write_text("no part of the package\n")
    assert git_state(package) == {"commit": commit, "dirty": False}
    (package / "new.py").write_text("two = 2\n")
    assert git_state(package) == {"commit": commit, "dirty": True}
    git("add", ".")
    git("commit", "-q", "-m", "second")
    assert git_state(package) == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    (package / "module.py").write_text("one = 3\n")
    assert git_state(package)["dirty"]


def test_a_package_installed_inside_a_repository_is_no_part_of_it(repository, tmp_path):
    folder, _ = repository
    (folder / "ignored" / "package").mkdir(parents=True)
    assert git_state(folder / "ignored" / "package") is None
    assert git_state(tmp_path) is None
    assert git_state(tmp_path / "nowhere") is None


def test_a_hook_of_another_repository_does_not_mislead(repository, tmp_path, monkeypatch):
    folder, git = repository
    commit = git("rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    assert git_state(folder / "package")["commit"] == commit


def test_without_git_there_is_no_state(repository, monkeypatch):
    folder, _ = repository
    monkeypatch.setattr(provenance_module.shutil, "which", lambda _name: None)
    assert git_state(folder / "package") is None


def test_a_git_that_hangs_is_left_behind(repository, monkeypatch):
    folder, _ = repository

    def hang(*_arguments, **_options):
        raise subprocess.TimeoutExpired("git", 10)

    monkeypatch.setattr(provenance_module.subprocess, "run", hang)
    assert git_state(folder / "package") is None
