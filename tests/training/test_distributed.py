"""Two real processes that share a batch come to where one comes that holds it all."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from tests.training.small_data import SETTINGS, small_recipe

from ntrm.core.errors import UsageError
from ntrm.training.checkpoints import CheckpointFolder, read_checkpoint
from ntrm.training.fit import fit
from ntrm.training.log import read_log

CHANGES = {"steps": 4, "batch": 4, "validate_every": 2, "freeze_batch_norm": True, "keep": "last"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def words(data, out, changes):
    """Those of the command ``ntrm train``."""
    settings = {**SETTINGS, **changes}
    head = [
        "train",
        "--arch",
        "ntrm-paper",
        "--data",
        str(data),
        "--out",
        str(out),
        "--device",
        "cpu",
        "--recipe",
        "fast",
    ]
    head += ["--option", "width=0.125", "--json", "--progress", "none"]
    return head + [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def started(command, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NTRM_CACHE": str(tmp_path / "cache")}
    return subprocess.Popen(
        [sys.executable, "-m", *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_more_processes_than_validation_windows_are_refused(train, monkeypatch):
    for key, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with pytest.raises(UsageError, match="fewer validation windows than processes"):
        train(changes={"batch": 8, "steps": 2})


def single(data, out, **changes):
    recipe, options = small_recipe(**{**CHANGES, **changes}), {"width": 0.125}
    return fit("ntrm-paper", data, out, recipe=recipe, options=options, device="cpu", pictures=False, resume=True)


def first_gradient(run):
    """Of all weights as one vector: after one step, Adam's mean holds nothing else."""
    state = read_checkpoint(run / "checkpoints" / "step-00000001.ckpt")
    return np.concatenate([each["exp_avg"].numpy().ravel() for each in state["optimiser"]["state"].values()])


@pytest.mark.slow
def test_two_processes_come_to_where_one_comes(data, tmp_path):
    changes = {**CHANGES, "steps": 2, "validate_every": 1}
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    launcher += ["--master-port", str(free_port()), "-m", "ntrm", *words(data, tmp_path / "two", changes)]
    two = started(launcher, tmp_path)
    one = single(data, tmp_path / "one", **changes)
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
        for key in ("train_loss", "train_final", "train_initial", "val_loss", "val_final", "val_initial"):
            assert shared[key] == pytest.approx(alone[key], rel=1e-3)
        for key in ("val_iou", "val_dice", "val_accuracy"):
            assert shared[key] == pytest.approx(alone[key], abs=2e-3)  # a pixel between two classes may go either way


@pytest.mark.slow
def test_two_processes_stop_together_and_one_goes_on(data, tmp_path):
    """Through Lightning's own launcher; a signal to the first process alone stops both after the same step."""
    changes = {**CHANGES, "steps": 40, "validate_every": 10, "batch": 2}
    two = started(["ntrm", *words(data, tmp_path / "run", changes), "--num-devices", "2"], tmp_path)
    while two.poll() is None and not (tmp_path / "run" / "log.csv").exists():
        time.sleep(0.02)
    two.send_signal(signal.SIGTERM)
    _, stderr = two.communicate(timeout=300)
    assert two.returncode == 130, stderr
    assert "the same command with --resume goes on" in stderr
    state = CheckpointFolder(tmp_path / "run" / "checkpoints").latest(pytest.fail)
    assert 10 <= state["step"] < 40
    assert state["step"] % 5 == 0  # where processes ask each other
    assert single(data, tmp_path / "run", **changes).steps == 40
