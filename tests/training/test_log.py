from dataclasses import replace

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tests.training.small_data import read_log, weights

from ntrm.training import validation
from ntrm.training.checkpoint import read_checkpoint


class Counting:
    """A progress that remembers how many items are done, by label."""

    def __init__(self):
        self.tracked = {}

    def track(self, items, total, label):
        self.tracked[label] = 0, total
        for item in items:
            yield item
            self.tracked[label] = self.tracked[label][0] + 1, total


def test_the_log_has_a_row_a_round(train):
    result = train(changes={"validate_every": 5})
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
    losses = iter([3.0, 2.0, 2.5, 2.5, 1.0, 1.0])
    compute = validation.ScoreAccumulator.compute

    def scripted(accumulator, loss, schema):
        return replace(compute(accumulator, loss, schema), loss=next(losses))

    monkeypatch.setattr(validation.ScoreAccumulator, "compute", scripted)
    result = train(changes={"early_stopping": 2, "keep": "loss"})
    assert (result.steps, result.best["step"]) == (8, 4)
    assert len(read_log(result.folder / "log.csv")) == 4


def test_every_step_is_shown(train):
    progress = Counting()
    train(progress=progress, changes={"steps": 3})
    assert progress.tracked["training steps"] == (3, 3)


def test_pictures_come_at_the_end_and_change_nothing(train, finished):
    result = train(pictures=True)
    assert weights(result.folder) == weights(finished.folder)
    for name in ("examples.png", "curves.png"):
        with Image.open(result.folder / name) as picture:
            assert min(picture.size) > 100
