"""A run that starts from a model looks at it first, and keeps it where training does it no good."""

import json
import os
import signal

import pytest
import torch
from safetensors.torch import load_file

from ntrm.training.interruption import InterruptedTrainingError
from ntrm.training.log import read_log
from ntrm.training.module import TrainingModule

HARM = {"learning_rate": 10.0, "warmup": 0, "gradient_clip": None, "steps": 4}


def weights(result):
    return load_file(result.model / "model.safetensors")


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture
def start(train):
    """A model that has learned its data."""
    return train("start", changes={"steps": 40, "validate_every": 20, "learning_rate": 2e-2})


def test_a_start_that_training_only_harms_is_kept(train, start):
    said = []
    tuned = train("tuned", init=start.model, changes=HARM, say=said.append)
    rows = read_log(tuned.folder / "log.csv")
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert rows[0]["train_loss"] is None
    assert rows[0]["learning_rate"] is None
    assert rows[0]["val_iou"] == pytest.approx(start.best["iou"], abs=1e-6)
    assert rows[0]["val_iou"] > max(row["val_iou"] for row in rows[1:])
    assert 0 < rows[0]["seconds"] < rows[1]["seconds"] < rows[2]["seconds"]
    assert tuned.best["step"] == 0
    assert tuned.best["iou"] == rows[0]["val_iou"]
    assert equal(weights(tuned), weights(start))
    assert any(line.startswith("step 0 of 4, the start: validation loss") and line.endswith("kept") for line in said)


def test_a_start_that_training_betters_is_left_behind(train):
    untrained = train("untrained", changes={"steps": 2, "learning_rate": 1e-9})
    tuned = train("tuned", init=untrained.model, changes={"steps": 40, "validate_every": 20, "learning_rate": 2e-2})
    rows = read_log(tuned.folder / "log.csv")
    assert rows[0]["val_iou"] < tuned.best["iou"]
    assert tuned.best["step"] > 0
    assert not equal(weights(tuned), weights(untrained))


@pytest.mark.parametrize("keep", ["last", "loss"])
def test_it_is_looked_at_only_where_iou_decides(train, start, keep):
    tuned = train("tuned", init=start.model, changes={**HARM, "learning_rate": 1e-3, "keep": keep})
    assert [row["step"] for row in read_log(tuned.folder / "log.csv")] == [2, 4]
    assert tuned.best["step"] > 0


def test_a_run_from_nothing_has_no_start_to_look_at(start):
    assert [row["step"] for row in read_log(start.folder / "log.csv")] == [20, 40]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_run_looks_once_and_ends_as_one_that_was_not(train, start, monkeypatch, after):
    """After the first step nothing but that look is behind it; after the second a round is."""
    whole = train("whole", init=start.model, changes=HARM)
    step = TrainingModule.training_step

    def interrupted(module, batch, index):
        if batch.number + 1 == after:
            os.kill(os.getpid(), signal.SIGINT)
        return step(module, batch, index)

    monkeypatch.setattr(TrainingModule, "training_step", interrupted)
    with pytest.raises(InterruptedTrainingError):
        train("part", init=start.model, changes=HARM)
    monkeypatch.setattr(TrainingModule, "training_step", step)
    part = train("part", init=start.model, changes=HARM, resume=True)
    assert [row["step"] for row in read_log(part.folder / "log.csv")] == [0, 2, 4]
    assert part.best["step"] == 0
    assert equal(weights(part), weights(whole))


def test_an_interruption_while_the_start_is_looked_at_is_heard(train, start, monkeypatch, tmp_path):
    step = TrainingModule.validation_step

    def interrupted(module, batch, index):
        if module.steps_done == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        step(module, batch, index)

    monkeypatch.setattr(TrainingModule, "validation_step", interrupted)
    with pytest.raises(InterruptedTrainingError, match="SIGTERM"):
        train("part", init=start.model, changes=HARM)
    monkeypatch.setattr(TrainingModule, "validation_step", step)
    assert not json.loads((tmp_path / "part" / "provenance.json").read_text())["finished"]
    assert train("part", init=start.model, changes=HARM, resume=True).best["step"] == 0
