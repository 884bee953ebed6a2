import json
import math
import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tests.training.small_data import CLASSES, ROWS, Tiny, read_log, small_recipe, train_small, weights, write_small

from ntrm.core.errors import NtrmError
from ntrm.data.split import open_splits, section_hashes
from ntrm.familiarity import build
from ntrm.familiarity.loaded_model import open_subject
from ntrm.models.registry import load
from ntrm.training import validation
from ntrm.training.checkpoint import read_checkpoint
from ntrm.training.loop import InterruptedTrainingError, Training
from ntrm.training.recipe import load_recipe


def test_a_run_has_all_its_files_and_a_row_a_round_in_its_log(train):
    said, changes = [], {"validate_every": 5}
    result = train(pictures=True, say=said.append, command=["ntrm"], name="mine", seed=np.int64(3), changes=changes)
    names = {path.name for path in result.folder.iterdir()}
    texts, pictures = {"recipe.yaml", "log.csv", "provenance.json"}, {"curves.png", "examples.png"}
    assert names == texts | pictures | {"checkpoints", "model"}
    for name in pictures:
        with Image.open(result.folder / name) as picture:
            assert min(picture.size) > 100
    assert load_recipe(result.folder / "recipe.yaml").as_dict() == small_recipe(**changes).as_dict()
    document = json.loads((result.folder / "provenance.json").read_text())
    assert document == result.provenance
    assert document.keys() >= {
        "arch", "options", "seed", "level", "mpp", "recipe", "encoder_init", "data", "command", "versions", "git",
        "device", "seconds", "steps", "finished", "best",
    }  # fmt: skip
    assert (document["arch"], document["seed"], document["mpp"], document["finished"]) == ("tiny", 3, 2.0, True)
    assert (result.steps, result.epochs) == (12, 12 / 6)
    assert sum("validation loss" in line for line in said) == 3
    assert not any("no training pixel" in line or "trained on" in line for line in said)
    network = load(result.model)
    assert network.config.name == "mine"
    assert (network.config.mpp, network.config.window, network.config.data) == (2.0, 64, document["data"])
    assert network.config.schema.names == ("left", "right", "glass")
    assert json.loads(json.dumps(result.as_dict()))["best"] == result.best
    rows = read_log(result.folder / "log.csv")
    assert [row["step"] for row in rows] == [5, 10, 12]
    assert [row["epoch"] for row in rows] == pytest.approx([5 / 6, 10 / 6, 2])
    for row in rows:
        assert None not in row.values()
        assert row["train_loss"] == pytest.approx(row["train_final"] + 0.4 * row["train_coarse"], rel=1e-5)
        assert row["val_loss"] == pytest.approx(row["val_final"] + 0.4 * row["val_coarse"])
        assert 0 <= row["waiting"] < 1
        assert row["windows_per_second"] > 0
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)


def test_a_class_without_a_training_pixel_is_told(train, random, tmp_path):
    said, other = [], write_small(tmp_path / "other", random, classes=f"{CLASSES}3,tumour,9,9,9\n")
    train(data=other, changes={"steps": 2}, say=said.append)
    assert any(line.startswith("no training pixel of tumour:") for line in said)


def test_a_model_remembers_what_it_and_its_start_were_trained_on(train, data, finished):
    parts = open_splits(data)
    both = set().union(*map(section_hashes, parts["train"]))
    assert set(load(finished.model).config.trained_on) == both
    assert len(both) == 2
    second = train(init=finished.model, sections=1, changes={"steps": 2})
    assert set(load(second.model).config.trained_on) == both
    assert len(load(train("one", sections=1, changes={"steps": 2}).model).config.trained_on) == 1


def test_validation_on_sections_that_the_start_was_trained_on_is_told(train, finished, tmp_path):
    other, said = tmp_path / "splits.csv", []
    other.write_text("name,split\na,val\nb,train\nc,train\nd,test\n")
    train(init=finished.model, splits=other, changes={"steps": 2}, say=said.append)
    (told,) = [line for line in said if line.startswith("the model was trained on")]
    assert told.startswith("the model was trained on 1 of 1 section (a) of the validation part: scores are too good")


ENOUGH = [f"{split}{number},p{split}{number},{split},2.0" for split in ("train", "val") for number in range(9)]


@pytest.fixture
def many(tmp_path, random, monkeypatch):
    """Sections enough for a reference, of which few parts are looked at."""
    monkeypatch.setattr(build, "PARTS", 2)
    return write_small(tmp_path / "many", random, rows=ENOUGH)


def test_a_reference_is_left_with_the_model_and_never_inherited(train, many, data, tmp_path):
    said = []
    first = train("first", data=many, changes={"steps": 4})
    assert open_subject(first.model).reference.about["training"] == {"sections": 9, "patients": 9}
    second = train("second", init=first.model, changes={"steps": 2}, say=said.append)
    assert not [*second.model.glob("reference.*")]
    told = "too few sections for a reference (2 in the split train, expected at least 8)"
    assert f"no reference of the training sections: {told}" in said
    assert not any(line.startswith("the model was trained on") for line in said)
    load(first.model).save_pretrained(tmp_path / "copy")
    assert not [*(tmp_path / "copy").glob("reference.*")]


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_step(train, finished, tmp_path, monkeypatch):
    forward, seen = Tiny.segment, SimpleNamespace(steps=0)

    def breaking(network, x, *, coarse, graph):
        seen.steps += network.training
        output = forward(network, x, coarse=coarse, graph=graph)
        return output._replace(final=output.final * (float("nan") if seen.steps >= 7 else 1.0))

    monkeypatch.setattr(Tiny, "segment", breaking)
    with pytest.raises(NtrmError, match="not a number at step 7\n"):
        train()
    # The checkpoint is from before, and a run that is resumed from there comes to its end.
    monkeypatch.setattr(Tiny, "segment", forward)
    said = []
    assert train(resume=True, say=said.append).provenance["finished"]
    assert "continuing after step 6" in said
    assert weights(tmp_path / "run") == weights(finished.folder)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("changes", [{"precision": "auto"}, {"precision": "float16"}, {"precision": "float32"}])
def test_every_precision_trains_and_goes_on_where_it_was_stopped(train, changes):
    result = train(changes={**changes, "steps": 6}, device="cuda")
    assert result.provenance["device"]["type"] == "cuda"
    assert all(np.isfinite(row["train_loss"]) for row in read_log(result.folder / "log.csv"))
    (result.folder / "provenance.json").write_text(
        (result.folder / "provenance.json").read_text().replace('"finished": true', '"finished": false')
    )
    for path in sorted((result.folder / "checkpoints").glob("step-*.ckpt"))[1:]:
        path.unlink()
    said = []
    assert train(changes={**changes, "steps": 6}, device="cuda", resume=True, say=said.append).steps == 6
    assert "continuing after step 4" in said


HARM = {"learning_rate": 10.0, "warmup": 0, "gradient_clip": None, "steps": 4}


def tensors(result):
    return load_file(result.model / "model.safetensors")


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.fixture(scope="module")
def start(data, tmp_path_factory, tiny_network):
    """A model that has learned its data."""
    changes = {"steps": 60, "batch": 4, "validate_every": 20, "learning_rate": 0.02, "augment": "paper"}
    return train_small(data, tmp_path_factory.mktemp("start") / "run", changes=changes)


@pytest.fixture(scope="module")
def harmed(data, start, tmp_path_factory):
    """A training that only harms that model, and what it said."""
    said = []
    folder = tmp_path_factory.mktemp("harmed") / "run"
    return train_small(data, folder, init=start.model, changes=HARM, say=said.append), said


def test_a_start_that_training_only_harms_is_kept(start, harmed):
    tuned, said = harmed
    rows = read_log(tuned.folder / "log.csv")
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert rows[0]["train_loss"] is None
    assert rows[0]["learning_rate"] is None
    assert rows[0]["val_iou"] == pytest.approx(start.best["iou"], abs=1e-6)
    assert rows[0]["val_iou"] > max(row["val_iou"] for row in rows[1:])
    assert 0 < rows[0]["seconds"] < rows[1]["seconds"] < rows[2]["seconds"]
    assert tuned.best["step"] == 0
    assert tuned.best["iou"] == rows[0]["val_iou"]
    assert equal(tensors(tuned), tensors(start))
    assert any(line.startswith("step 0 of 4, the start: validation loss") and line.endswith("kept") for line in said)


@pytest.mark.parametrize(("options", "temperature"), [({}, 2.0), ({"coarse": False}, 1.0)])
def test_a_start_that_is_kept_keeps_its_temperature_if_it_is_the_same_network(
    train, start, tmp_path, options, temperature
):
    load(start.model).describe(temperature=2.0, trained_on=("0a",)).save_pretrained(tmp_path / "calibrated")
    tuned = train(init=tmp_path / "calibrated", options=options, changes=HARM)
    assert tuned.best["step"] == 0
    config = load(tuned.model).config
    assert (config.temperature, config.trained_on) == (temperature, ("0a",))


@pytest.mark.parametrize("after", [1, 2])
def test_an_interrupted_run_scores_the_start_once_and_ends_as_one_that_was_not(
    train, start, harmed, monkeypatch, after
):
    """After the first step only the start has been scored; after the second a round is over."""
    step = Training.step

    def interrupted(training, number, tiles):
        if number + 1 == after:
            os.kill(os.getpid(), signal.SIGINT)
        return step(training, number, tiles)

    monkeypatch.setattr(Training, "step", interrupted)
    with pytest.raises(InterruptedTrainingError):
        train(init=start.model, changes=HARM)
    monkeypatch.setattr(Training, "step", step)
    resumed = train(init=start.model, changes=HARM, resume=True)
    assert [row["step"] for row in read_log(resumed.folder / "log.csv")] == [0, 2, 4]
    assert resumed.best["step"] == 0
    assert equal(tensors(resumed), tensors(harmed[0]))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"changes": {"precision": "float16"}}, "float16 training needs a GPU"),
        ({"seed": 2**64}, "impossible seed"),
        ({"arch": "tinny"}, "unknown architecture"),
        ({"lacking": "train"}, r"(?s)in the split train.*--splits"),
        ({"lacking": "val"}, r"(?s)in the split val.*--splits"),
        ({"out": "data/run"}, "inside the dataset"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(train, tmp_path, random, settings, words):
    settings = {"out": "run", "lacking": None, **settings}
    out, lacking = settings.pop("out"), settings.pop("lacking")
    rows = [row.replace(f",{lacking},", ",test,") for row in ROWS]
    data = write_small(tmp_path / "data", random, rows=rows)
    with pytest.raises(NtrmError, match=words):
        train(out, data=data, **settings)
    assert not (tmp_path / out).exists()


@pytest.mark.parametrize("keep", ["loss", "iou", "last"])
def test_the_model_has_the_weights_that_the_recipe_keeps(train, keep):
    result = train(changes={"keep": keep, "learning_rate": 0.05})
    rows = read_log(result.folder / "log.csv")
    best = {
        "loss": min(rows, key=lambda row: row["val_loss"]),
        "iou": max(rows, key=lambda row: row["val_iou"]),
        "last": rows[-1],
    }[keep]
    assert result.best["step"] == best["step"]
    assert (result.best["loss"], result.best["iou"]) == (best["val_loss"], best["val_iou"])
    last = read_checkpoint(result.folder / "checkpoints" / f"step-{result.steps:08d}.ckpt")
    kept = last["kept"]["weights"]
    model = load_file(result.model / "model.safetensors")
    assert kept.keys() == model.keys()
    assert all(torch.equal(kept[key], model[key]) for key in kept)


def test_early_stopping_ends_the_run(train, monkeypatch):
    losses = iter([3.0, 2.0, 2.0, math.nan, 1.0, 1.0])
    compute = validation.ScoreAccumulator.compute

    def scripted(accumulator, loss, schema):
        return replace(compute(accumulator, loss, schema), loss=next(losses))

    monkeypatch.setattr(validation.ScoreAccumulator, "compute", scripted)
    result = train(changes={"early_stopping": 2, "keep": "loss"})
    assert (result.steps, result.best["step"]) == (8, 4)
    assert len(read_log(result.folder / "log.csv")) == 4
