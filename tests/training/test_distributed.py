"""Two processes that torchrun has started come to where one comes; whoever starts them otherwise is told how."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from tests.helpers import wait_for
from tests.training.small_data import SETTINGS, read_log, train_small

from ntrm.core.errors import UsageError
from ntrm.training.checkpoint import read_checkpoint
from ntrm.training.distributed import find_launch

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
CHANGES = {"steps": 4, "batch": 4, "validate_every": 2, "freeze_batch_norm": True, "keep": "last"}


@pytest.mark.parametrize("environment", [{}, TORCHRUN])
def test_several_devices_without_their_processes_are_refused(environment):
    with pytest.raises(UsageError, match="number of processes") as refused:
        find_launch("cpu", 2, environment)
    assert "torchrun" in refused.value.hint


def test_each_process_gets_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert find_launch("cuda", 1, TORCHRUN).device == torch.device("cuda", 1)
    assert find_launch("auto", 1, {}).device == torch.device("cuda")
    assert find_launch("cuda:2", 1, {}).device == torch.device("cuda", 2)
    with pytest.raises(UsageError, match="not a device for each"):
        find_launch("cuda:2", 1, TORCHRUN)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    with pytest.raises(UsageError, match="not a device for each"):
        find_launch("cuda", 1, TORCHRUN)


def words(data, out, changes):
    """Those of the command ``ntrm train``."""
    settings = {**SETTINGS, **changes}
    head = ["ntrm", "train", "--arch", "ntrm-paper", "--data", str(data), "--out", str(out), "--device", "cpu"]
    head += ["--option", "width=0.125", "--json", "--progress", "none", "--recipe", "fast"]
    return head + [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def started(command, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NTRM_CACHE": str(tmp_path / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_more_processes_than_validation_windows_are_refused(train, monkeypatch):
    for key, value in {**TORCHRUN, "RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(UsageError, match="fewer validation windows than processes"):
        train(changes={"batch": 8, "steps": 2})


def trained(data, out, **changes):
    settings = {"options": {"width": 0.125}, "resume": True}
    return train_small(data, out, arch="ntrm-paper", changes={**CHANGES, **changes}, **settings)


def first_gradient(run):
    """Of all weights as one vector: after one step, Adam's mean holds nothing else."""
    state = read_checkpoint(run / "checkpoints" / "step-00000001.ckpt")
    return np.concatenate([each["exp_avg"].numpy().ravel() for each in state["optimiser"]["state"].values()])


@pytest.mark.slow
@pytest.mark.parametrize("loss", [{"weighting": "running", "dice": 1}, {"weighting": "batch", "dice": 0}], ids=str)
def test_two_processes_come_to_where_one_comes(data_with_background, tmp_path, loss):
    data, changes = data_with_background, {**CHANGES, **loss, "steps": 2, "validate_every": 1, "fill": 0.5}
    two = started([*words(data, tmp_path / "two", changes), "--num-devices", "2"], tmp_path)
    one = trained(data, tmp_path / "one", **changes)
    stdout, stderr = two.communicate(timeout=600)
    assert two.returncode == 0, stderr
    assert json.loads(stdout)["best"]["loss"] == pytest.approx(one.best["loss"], rel=1e-3)  # one process speaks

    # Sums in another order differ in their last digits. The weights are no measure: an activation that this turns
    # from 0 to a little more gives a gradient where there was none, and Adam makes a whole step of it. Noise of 1e-7 in
    # the weights of one process does as much: up to 0.13 of the way after four steps, 6e-4 of the first gradient.
    runs = tmp_path / "one", tmp_path / "two"
    alone, shared = map(first_gradient, runs)
    assert np.linalg.norm(alone - shared) < 5e-3 * np.linalg.norm(alone)

    for alone, shared in zip(*(read_log(run / "log.csv") for run in runs), strict=True):
        for key in ("train_loss", "train_final", "train_coarse", "val_loss", "val_final", "val_coarse"):
            assert shared[key] == pytest.approx(alone[key], rel=1e-3)
        for key in ("val_iou", "val_dice", "val_accuracy"):
            assert shared[key] == pytest.approx(alone[key], abs=2e-3)  # a pixel between two classes may go either way


@pytest.mark.slow
def test_two_processes_stop_together_and_one_goes_on(data, tmp_path):
    """SIGTERM to the command stops both after the same step; alone, the training goes on from there to its end."""
    run, changes = tmp_path / "run", {**CHANGES, "steps": 120, "batch": 2, "validate_every": 20, "schedule": "constant"}
    changes["warmup"] = 0
    command = [*words(data, run, changes), "--num-devices", "2"]
    two = started(command, tmp_path)
    wait_for("a round", lambda: two.poll() is not None or (run / "log.csv").is_file())
    two.send_signal(signal.SIGTERM)
    _, stderr = two.communicate(timeout=120)
    assert two.returncode == 130, stderr
    last = max((run / "checkpoints").glob("step-*.ckpt"))
    done = int(last.stem.removeprefix("step-"))
    assert 20 <= done < 120
    assert trained(data, run, **changes).steps == 120
