import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tests.training.small_data import SETTINGS, train_small

from ntrm.core.errors import NtrmError, UsageError
from ntrm.training import ddp
from ntrm.training import train as train_module
from ntrm.training.checkpoint import CheckpointFolder, read_checkpoint
from ntrm.training.ddp import Launch, find_launch
from ntrm.training.log import read_log
from ntrm.training.loop import InterruptedTrainingError, Training

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NNODES": "2"}
SLURM |= {"SLURM_JOB_ID": "12345678", "SLURM_NODELIST": "gpu[07-08]"}


def place(device, num_devices, environment):
    launch = find_launch(device, num_devices, environment)
    return launch.rank, launch.world, launch.local_world, launch.meeting, launch.leads


@pytest.mark.parametrize(
    ("num_devices", "environment", "expected"),
    [
        (1, {}, (0, 1, 1, "", True)),
        (2, {}, (0, 2, 2, "", True)),  # it has to start the other one
        (2, {"LOCAL_RANK": "1"}, (1, 2, 2, "env://", False)),
        (1, {"LOCAL_RANK": "1"}, (0, 1, 1, "", True)),  # of a launcher that is not ours
        (1, TORCHRUN, (5, 8, 4, "env://", False)),
        (4, TORCHRUN, (5, 8, 4, "env://", False)),
        (1, {**SLURM, **TORCHRUN}, (5, 8, 4, "env://", False)),  # srun has started one torchrun on each machine
        (1, SLURM, (3, 4, 2, "tcp://gpu07:20678", False)),
        (1, {**SLURM, "MASTER_ADDR": "a", "MASTER_PORT": "1"}, (3, 4, 2, "tcp://a:1", False)),
        (1, {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (0, 1, 1, "", True)),
        (1, {"SLURM_JOB_ID": "1"}, (0, 1, 1, "", True)),
    ],
)
def test_the_place_among_processes(num_devices, environment, expected):
    assert place("cpu", num_devices, environment) == expected


def test_two_numbers_of_devices_are_refused():
    with pytest.raises(UsageError, match="two numbers"):
        find_launch("cpu", 2, TORCHRUN)


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_impossible_numbers_are_refused(count):
    with pytest.raises(UsageError, match="number of devices"):
        find_launch("cpu", count, {})


def test_machines_must_be_alike():
    with pytest.raises(UsageError, match="machines differ"):
        Launch(torch.device("cpu"), rank=0, world=5, local_world=2)


@pytest.mark.parametrize(("rank", "world", "local"), [(2, 2, 1), (-1, 1, 1), (0, 1, 2)])
def test_impossible_places_are_refused(rank, world, local):
    with pytest.raises(UsageError, match="impossible rank"):
        Launch(torch.device("cpu"), rank, world, local)


def test_each_process_gets_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert find_launch("cuda", 1, TORCHRUN).device == torch.device("cuda", 1)
    assert find_launch("auto", 1, {}).device == torch.device("cuda")
    assert find_launch("cuda:2", 1, {}).device == torch.device("cuda", 2)
    with pytest.raises(UsageError, match="one device for several"):
        find_launch("cuda:2", 2, {})
    with pytest.raises(UsageError, match="not enough devices"):
        find_launch("cuda", 5, {})


def test_processes_that_srun_has_spread_unevenly_are_refused():
    with pytest.raises(UsageError, match="machines differ") as caught:
        find_launch("cpu", 1, {**SLURM, "SLURM_LOCALID": "2"})
    assert "--ntasks-per-node" in caught.value.hint


# --- waiting for the others ---


@pytest.fixture
def alone(monkeypatch):
    """The first of two processes; nobody has started the other."""
    monkeypatch.setattr(ddp, "PATIENCE_S", 0.1)
    return Launch(torch.device("cpu"), world=2, local_world=2, meeting=f"tcp://127.0.0.1:{free_port()}")


def test_a_process_that_waits_for_others_says_so_and_gives_up(alone, monkeypatch):
    monkeypatch.setattr(ddp, "MEETING_S", 0.5)
    said, threads = [], torch.get_num_threads()
    with pytest.raises(NtrmError, match="do not find each other") as caught, ddp.connected(alone, said.append):
        pass
    assert "srun" in caught.value.hint
    assert f"2 processes at {alone.meeting}" in caught.value.expected
    assert said == [f"waiting at {alone.meeting} for the other processes of this training, 2 in all"]
    assert torch.get_num_threads() == threads


def test_a_process_that_waits_for_others_can_be_interrupted(alone, monkeypatch):
    monkeypatch.setattr(ddp, "MEETING_S", 20.0)
    begun, threads = time.monotonic(), torch.get_num_threads()
    interrupt = partial(os.kill, os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), ddp.connected(alone, lambda _: interrupt()):
        pass
    assert time.monotonic() - begun < 10
    assert torch.get_num_threads() == threads


def test_signals_are_left_alone_until_the_processes_are_connected(train, monkeypatch):
    """A training that has nothing to save yet ends at once."""
    before, seen = signal.getsignal(signal.SIGTERM), []

    @contextmanager
    def connect(_launch, _say):
        seen.append(signal.getsignal(signal.SIGTERM))
        yield

    monkeypatch.setattr(train_module, "connected", connect)
    train(changes={"steps": 2})
    assert seen == [before]


# --- processes ---

CHANGES = {"steps": 4, "batch": 4, "validate_every": 2, "freeze_batch_norm": True, "keep": "last"}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def words(data, out, changes):
    """Those of the command ``ntrm train``."""
    settings = {**SETTINGS, **changes}
    head = ["train", "--arch", "ntrm-paper", "--data", str(data), "--out", str(out), "--device", "cpu"]
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
    with pytest.raises(UsageError, match="too small for batch norm"):
        train(changes={"batch": 8, "steps": 2, "window": 32})


def trained(data, out, num_devices=1, **changes):
    settings = {"options": {"width": 0.125}, "resume": True, "num_devices": num_devices}
    return train_small(data, out, arch="ntrm-paper", changes={**CHANGES, **changes}, **settings)


def first_gradient(run):
    """Of all weights as one vector: after one step, Adam's mean holds nothing else."""
    state = read_checkpoint(run / "checkpoints" / "step-00000001.ckpt")
    return np.concatenate([each["exp_avg"].numpy().ravel() for each in state["optimiser"]["state"].values()])


@pytest.mark.slow
def test_two_processes_come_to_where_one_comes(data_with_background, tmp_path):
    data, changes = data_with_background, {**CHANGES, "steps": 2, "validate_every": 1, "fill": 0.5}
    launcher = ["torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    launcher += ["--master-port", str(free_port()), "-m", "ntrm", *words(data, tmp_path / "two", changes)]
    two = started(launcher, tmp_path)
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


def test_a_network_of_ones_own_is_not_known_to_processes_that_we_start(train):
    with pytest.raises(UsageError, match="not know this network") as caught:
        train(num_devices=2)
    assert "torchrun" in caught.value.hint


@pytest.fixture
def before_step(monkeypatch):
    """Lets something happen before a step of the first process."""

    def patch(number, happen):
        step = Training.step

        def patched(training, current, tiles):
            if current == number:
                happen()
            return step(training, current, tiles)

        monkeypatch.setattr(Training, "step", patched)

    return patch


@pytest.mark.slow
def test_two_processes_stop_together_and_one_goes_on(data, tmp_path, before_step):
    """A signal to the first process alone stops both after the same step, one of those where they ask each other."""
    changes = {"validate_every": 1000, "batch": 2, "freeze_batch_norm": False, "schedule": "constant", "warmup": 0}
    trained(data, tmp_path / "whole", num_devices=2, steps=5, **changes)
    changes["steps"] = 7
    before_step(1, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(InterruptedTrainingError, match="SIGTERM; a checkpoint after step 5 is written"):
        trained(data, tmp_path / "run", num_devices=2, **changes)
    assert not dist.is_initialized()
    runs = [tmp_path / name / "checkpoints" for name in ("run", "whole")]
    states = [CheckpointFolder(folder).latest(pytest.fail) for folder in runs]
    assert [state["step"] for state in states] == [5, 5]
    # What both processes have seen is in the statistics of batch norm, as after a round.
    stopped, whole = (state["network"] for state in states)
    torch.testing.assert_close(stopped, whole, rtol=1e-4, atol=1e-6)
    assert trained(data, tmp_path / "run", **changes).steps == 7


@pytest.mark.slow
def test_a_process_that_dies_ends_the_training_and_holds_no_secret(data, tmp_path, before_step, monkeypatch):
    started, held = [], []
    popen = ddp.subprocess.Popen
    monkeypatch.setattr(
        ddp.subprocess, "Popen", lambda *given, **more: started.append(popen(*given, **more)) or started[-1]
    )
    monkeypatch.setenv("NTRM_TOKEN", "t" * 32)

    def kill():
        held.append(Path(f"/proc/{started[0].pid}/environ").read_bytes())
        os.kill(started[0].pid, signal.SIGKILL)

    before_step(2, kill)
    with pytest.raises(NtrmError, match="process 1 of the training has ended") as caught:
        trained(data, tmp_path / "run", num_devices=2)
    assert caught.value.got.startswith("SIGKILL")
    assert b"WORLD_SIZE=2" in held[0]
    assert b"NTRM_TOKEN" not in held[0]
    assert started[0].returncode == -signal.SIGKILL


def test_an_error_of_another_process_is_told(monkeypatch):
    """Its own words, where this process knows only that the other one is gone."""
    monkeypatch.setattr(ddp, "module_command", lambda _: [sys.executable, "-c", "import sys; sys.exit('no such disk')"])
    launch = Launch(torch.device("cpu"), world=2, local_world=2)
    with (
        pytest.raises(NtrmError, match="process 1 of the training has ended") as caught,
        ddp.other_processes(launch, {}),
    ):
        raise RuntimeError("Connection closed by peer")
    assert caught.value.got == "exit code 1: no such disk"


def test_other_errors_stay_what_they_are(monkeypatch):
    monkeypatch.setattr(ddp, "module_command", lambda _: [sys.executable, "-c", "import sys; sys.stdin.read()"])
    launch = Launch(torch.device("cpu"), world=2, local_world=2)
    with pytest.raises(UsageError, match="mine"), ddp.other_processes(launch, {}):
        raise UsageError("mine", got=1)
