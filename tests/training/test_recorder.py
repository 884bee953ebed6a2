import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tests.training.small_data import write_small

from ntrm.data.cache import TileCache
from ntrm.data.layouts import open_dataset
from ntrm.data.tensors import TileDataset
from ntrm.training import recorder, validation
from ntrm.training.log import read_log
from ntrm.training.recorder import choose_examples, draw_curves, draw_examples


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
    kept = load_file(result.folder / "checkpoints" / f"kept-{int(best['step']):08d}.safetensors")
    model = load_file(result.model / "model.safetensors")
    assert kept.keys() == model.keys()
    assert all(torch.equal(kept[key], model[key]) for key in kept)


def test_early_stopping_ends_the_run(train, monkeypatch):
    losses = iter([3.0, 2.0, 2.5, 2.5, 1.0, 1.0])
    scores = validation.ScoreAccumulator.compute

    def scripted(tally, loss, schema):
        return validation.Scores(**{**scores(tally, loss, schema).as_dict(), "loss": next(losses)})

    monkeypatch.setattr(validation.ScoreAccumulator, "compute", scripted)
    result = train(changes={"early_stopping": 2, "keep": "loss"})
    assert result.finished
    assert (result.steps, result.best["step"]) == (8, 4)
    assert len(read_log(result.folder / "log.csv")) == 4


def test_a_plateau_lowers_the_rate(train, monkeypatch):
    monkeypatch.setattr(
        validation.ScoreAccumulator,
        "compute",
        lambda *_: validation.Scores(1.0, 1.0, None, iou=0.5, dice=0.5, accuracy=0.5),
    )
    changes = {"schedule": "plateau", "plateau_patience": 2, "plateau_factor": 0.5, "warmup": 0, "learning_rate": 0.01}
    rows = read_log(train(changes=changes).folder / "log.csv")
    assert [row["learning_rate"] for row in rows] == [0.01, 0.01, 0.01, 0.005, 0.005, 0.0025]


class Counter:
    """A progress that remembers."""

    def __init__(self):
        self.tracked = {}

    def track(self, items, total, label):
        for item in items:
            yield item
            done, _ = self.tracked.get(label, (0, total))
            self.tracked[label] = done + 1, total


def test_every_step_is_shown(train):
    progress = Counter()
    train(progress=progress)
    assert progress.tracked["training steps"] == (12, 12)


def test_pictures_come_with_better_weights_but_not_too_often(train, monkeypatch):
    drawn = []
    monkeypatch.setattr(recorder, "draw_curves", lambda rows, path: drawn.append(len(rows)))
    monkeypatch.setattr(recorder, "draw_examples", lambda predict, tiles, indices, path: None)
    train("one", pictures=True, changes={"keep": "last"})
    assert drawn == [6]  # at the end
    drawn.clear()
    monkeypatch.setattr(recorder, "PICTURES_EVERY_S", -1.0)
    train("two", pictures=True, changes={"keep": "last"})
    assert drawn == [1, 2, 3, 4, 5, 6]


def test_drawing_does_not_change_the_training(train, monkeypatch):
    monkeypatch.setattr(recorder, "PICTURES_EVERY_S", -1.0)
    monkeypatch.setattr(recorder, "draw_curves", lambda rows, path: None)
    monkeypatch.setattr(
        recorder, "draw_examples", lambda predict, tiles, indices, path: predict(tiles[indices[0]].image[None])
    )
    results = [train(out, pictures=pictures) for out, pictures in (("with", True), ("without", False))]
    assert len({(result.model / "model.safetensors").read_bytes() for result in results}) == 1


# --- pictures ---


@pytest.fixture
def tiles(tmp_path, random):
    dataset = open_dataset(write_small(tmp_path / "data", random, shape=(64, 320)))
    return TileDataset(dataset, size=64, cache=TileCache(tmp_path / "cache"))


def tissues(tiles, index):
    return len(set(np.unique(tiles[index].mask)) - {255})


def test_examples_are_rich_and_from_different_sections(tiles):
    chosen = choose_examples(tiles, 4)
    assert {tiles.sources[index].case.name for index in chosen} == {"a", "b", "c", "d"}
    for index in chosen:
        own = [i for i, place in enumerate(tiles.sources) if place.case.name == tiles.sources[index].case.name]
        assert tissues(tiles, index) == max(tissues(tiles, i) for i in own)


def test_more_than_there_are_sections(tiles):
    chosen = choose_examples(tiles, 7)
    assert len(set(chosen)) == 7
    assert len({tiles.sources[index].case.name for index in chosen[:4]}) == 4
    assert len(choose_examples(tiles, 1000)) == len(tiles)


def test_pictures_are_written(tiles, tmp_path):
    seen = []

    def predict(images):
        seen.append(images)
        return torch.zeros(len(images), *images.shape[2:], dtype=torch.uint8)

    draw_examples(predict, tiles, choose_examples(tiles, 2), tmp_path / "examples.png")
    draw_curves([{"step": 1, "train_loss": 1.0, "val_loss": None}], tmp_path / "curves.png")
    assert seen[0].shape == (2, 3, 64, 64)
    assert seen[0].dtype == torch.uint8
    for name in ("examples.png", "curves.png"):
        with Image.open(tmp_path / name) as picture:
            assert min(picture.size) > 100
