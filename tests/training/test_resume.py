"""Interrupted in every way, a run goes on and ends as one that never was: byte for byte."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
from safetensors.torch import save_file
from tests.helpers import is_held, training_that_waits
from tests.training.small_data import SETTINGS, Tiny, read_log, train_small, weights

from ntrm.core.errors import RefusedError
from ntrm.core.io import holding
from ntrm.models.registry import create, load
from ntrm.training.loop import InterruptedTrainingError
from ntrm.training.run import LOCK

SMALL = {"width": 0.125, "dim": 8, "layers": 1}  # Options of the smallest network with relations


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_says_so_and_changes_nothing(train, finished):
    before, said = files(finished.folder), []
    assert train(finished.folder, resume=True, say=said.append) == finished
    assert any("finished already" in line for line in said)
    changes = {"workers": 1, "resident": "no"}  # which do not touch the result
    assert train(finished.folder, resume=True, changes=changes) == finished
    with pytest.raises(RefusedError, match="not empty"):
        train(finished.folder)
    assert files(finished.folder) == before


def test_another_model_to_start_from_is_refused_under_the_same_name(train, finished, tmp_path):
    model, settings = tmp_path / "model", {"changes": {"steps": 2}, "init": tmp_path / "model"}
    shutil.copytree(finished.model, model)
    provenance = train(**settings).provenance
    digest = json.loads((model / "config.json").read_text())["weights_sha256"]
    assert provenance["init_sha256"] == provenance["init_report"]["source"]["weights_sha256"] == digest
    assert train(resume=True, **settings).provenance == provenance
    network = load(model)
    network.head.bias.data += 1
    network.save_pretrained(model)
    with pytest.raises(RefusedError, match="a different run") as caught:
        train(resume=True, **settings)
    assert caught.value.expected == f"init_sha256 {digest}"


def test_a_folder_is_trained_into_by_one_command_at_a_time(train, tmp_path):
    with holding(tmp_path / "run" / LOCK), pytest.raises(RefusedError, match="another process works in"):
        train()
    with pytest.raises(InterruptedTrainingError):
        train(say=interrupt_after("step 2 ", signal.SIGTERM))
    before = files(tmp_path / "run")
    with holding(tmp_path / "run" / LOCK), pytest.raises(RefusedError, match="another process works in"):
        train(resume=True)
    assert files(tmp_path / "run") == before
    assert train(resume=True).provenance["finished"]
    assert not (tmp_path / "run" / LOCK).exists()


def interrupt_after(line, number):
    """A ``say`` that sends a signal once a line like this comes."""

    def say(text):
        if text.startswith(line):
            os.kill(os.getpid(), number)

    return say


def test_a_signal_stops_after_a_round_and_the_run_is_resumed_exactly(train, finished, tmp_path, random):
    step, number = 2 * int(random.integers(1, 6)), signal.SIGTERM
    with pytest.raises(InterruptedTrainingError, match=f"stopped by {number.name}; .* after step {step} ") as caught:
        train(say=interrupt_after(f"step {step} ", number))
    assert caught.value.exit_code == 130
    assert not (tmp_path / "run" / "model").exists()
    result = train(resume=True)
    assert weights(tmp_path / "run") == weights(finished.folder)
    timed = ("seconds", "windows_per_second", "waiting")
    logs = [read_log(folder / "log.csv") for folder in (tmp_path / "run", finished.folder)]
    logs = [[{key: row[key] for key in row if key not in timed} for row in log] for log in logs]
    assert logs[0] == logs[1]
    assert result.provenance["sessions"] == 2


def test_stopped_in_the_middle_of_a_round(train, data_with_background, tmp_path, monkeypatch, random):
    train, changes = partial(train, data=data_with_background), {"validate_every": 6, "fill": 0.5}
    train("never", changes=changes)
    forward, seen = Tiny.segment, SimpleNamespace(steps=0, at=int(random.choice([1, 2, 4, 5, 7, 8, 10])))

    def signalling(network, x, *, coarse, graph):
        seen.steps += network.training
        if network.training and seen.steps == seen.at:
            os.kill(os.getpid(), signal.SIGTERM)
        return forward(network, x, coarse=coarse, graph=graph)

    monkeypatch.setattr(Tiny, "segment", signalling)
    with pytest.raises(InterruptedTrainingError, match=f"after step {seen.at} "):
        train(changes=changes)
    assert train(resume=True, changes=changes).provenance["finished"]
    assert weights(tmp_path / "run") == weights(tmp_path / "never")
    rows = [read_log(tmp_path / out / "log.csv") for out in ("run", "never")]
    assert [row["train_loss"] for row in rows[0]] == [row["train_loss"] for row in rows[1]]


def test_a_crash_after_the_last_checkpoint_still_gives_the_model(train, finished, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Tiny, "save_pretrained", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train()
    result = train(resume=True)
    assert weights(tmp_path / "run") == weights(finished.folder)
    assert result.best == finished.best


def test_a_run_that_goes_on_keeps_what_it_started_from(train, tmp_path):
    encoder = create("ntrm-control", 3, width=0.125).encoder.state_dict()
    file = tmp_path / "encoder.safetensors"
    save_file({key: value.contiguous() for key, value in encoder.items()}, file)
    settings = {"arch": "ntrm-control", "options": {"width": 0.125}}
    settings["changes"] = {"steps": 4, "encoder_weights": str(file)}
    train("never", **settings)
    with pytest.raises(InterruptedTrainingError):
        train(say=interrupt_after("step 2 ", signal.SIGTERM), **settings)
    before, said = json.loads((tmp_path / "run" / "provenance.json").read_text()), []
    file.unlink()  # as on another machine
    after = train(resume=True, say=said.append, **settings).provenance
    assert after["encoder_init"] == "file"
    assert after["init_report"] == before["init_report"]
    assert not [line for line in said if line.startswith("encoder from")]
    assert weights(tmp_path / "run") == weights(tmp_path / "never")


def start_training(data, out, tmp_path, program=("-m", "ntrm"), progress="none", **changes):
    """``ntrm train`` as a process and a group of its own, with a real network; 12 rounds of 2 steps."""
    settings = {**SETTINGS, "steps": 24, **changes}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, *program, "train", "--arch", "ntrm-paper", "--data", str(data), "--out", str(out)]
    words += [word for key, value in SMALL.items() for word in ("--option", f"{key}={value}")]
    command += ["--recipe", "fast", "--device", "cpu", "--progress", progress, *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NTRM_CACHE": str(tmp_path / "cache")}
    with (tmp_path / "errors.txt").open("w") as errors:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )


def wait_for_rounds(process, out, count):
    while process.poll() is None:
        if (out / "log.csv").exists() and len(read_log(out / "log.csv")) >= count:
            return
        time.sleep(0.01)
    pytest.fail("the training ended too soon")


@pytest.mark.slow
def test_killed_at_a_random_moment_and_resumed_it_ends_bit_identical(data, tmp_path, random):
    settings = {"arch": "ntrm-paper", "options": SMALL, "changes": {"steps": 24}}
    train_small(data, tmp_path / "never", **settings)
    process = start_training(
        data,
        tmp_path / "run",
        tmp_path,
        program=("-c", training_that_waits(9, "from ntrm.__main__ import main; main()")),
    )
    try:
        wait_for_rounds(process, tmp_path / "run", count=1)
        begun = time.monotonic()
        wait_for_rounds(process, tmp_path / "run", count=3)
        # Of twelve rounds about three more, however fast the machine is.
        time.sleep(float(random.uniform(0, 1.5)) * (time.monotonic() - begun))
    finally:
        process.kill()
        process.wait()
    assert process.returncode == -signal.SIGKILL, (tmp_path / "errors.txt").read_text()
    rows = len(read_log(tmp_path / "run" / "log.csv"))
    assert rows < 12
    said = []
    train_small(data, tmp_path / "run", resume=True, say=said.append, **settings)
    going_on = [int(line.rsplit(" ", 1)[1]) for line in said if line.startswith("continuing after step")]
    # What was logged is in a checkpoint or was about to be: at most one round is done again.
    assert going_on in ([2 * rows], [2 * rows - 2], [2 * rows + 2]) or (rows == 1 and not going_on)
    assert weights(tmp_path / "run") == weights(tmp_path / "never")


def wait_for_steps(process, errors, count):
    while process.poll() is None:
        events = [json.loads(line) for line in errors.read_text().splitlines(keepends=True) if line.endswith("}\n")]
        if any(event.get("label") == "training steps" and event["done"] >= count for event in events):
            return
        time.sleep(0.05)
    pytest.fail("the training ended too soon")


@contextmanager
def reading_processes(data, tmp_path):
    """A training under way whose windows are read by processes; it is killed in the end."""
    changes = {"steps": 5000, "validate_every": 5000, "workers": 2, "resident": "no"}
    process = start_training(data, tmp_path / "run", tmp_path, progress="json", **changes)
    try:
        wait_for_steps(process, tmp_path / "errors.txt", count=4)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_signal_to_processes_that_read_windows_too_stops_in_order(data, tmp_path):
    """As ``timeout`` and SLURM send it: to the whole group."""
    with reading_processes(data, tmp_path) as process:
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(60) == 130, (tmp_path / "errors.txt").read_text()
    assert [path.suffix for path in (tmp_path / "run" / "checkpoints").iterdir()] == [".ckpt"]


@pytest.mark.slow
def test_processes_that_read_windows_end_with_a_killed_training(data, tmp_path):
    with reading_processes(data, tmp_path) as process:
        process.kill()
    until = time.monotonic() + 3.0  # torch's own look at the parent takes five seconds
    while time.monotonic() < until:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            assert (tmp_path / "run" / LOCK).exists()
            assert not is_held(tmp_path / "run" / LOCK)
            return
        time.sleep(0.05)
    pytest.fail("a process that reads windows lives on")
