import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tests.training.small_data import weights, write_small

from ntrm.data.layouts import open_dataset
from ntrm.data.tensors import TileDataset
from ntrm.training import log, validation
from ntrm.training.checkpoint import read_checkpoint
from ntrm.training.log import (
    COLUMNS,
    choose_examples,
    draw_curves,
    draw_examples,
    read_log,
    ticking,
    write_log,
)


def make_rows(random, count):
    rows = [dict(zip(COLUMNS, map(float, random.normal(size=len(COLUMNS))), strict=True)) for _ in range(count)]
    for step, row in enumerate(rows, start=1):
        row.update(step=100 * step, train_coarse=None)
    return rows


def test_a_table_comes_back_to_the_last_digit(tmp_path, random):
    rows = make_rows(random, 3)
    write_log(tmp_path / "log.csv", rows)
    assert read_log(tmp_path / "log.csv") == rows
    assert (tmp_path / "log.csv").read_text().splitlines()[0] == ",".join(COLUMNS)


def test_an_unknown_column_is_no_silent_loss(tmp_path):
    with pytest.raises(ValueError, match="strange"):
        write_log(tmp_path / "log.csv", [{"strange": 1.0}])
    assert not (tmp_path / "log.csv").exists()


def test_tensorboard_gets_the_rows_of_the_log(train):
    event_file = pytest.importorskip("tensorboardX.proto.event_pb2")
    result = train(changes={"validate_every": 5})
    (path,) = (result.folder / "tensorboard").iterdir()
    content, place, found = path.read_bytes(), 0, []
    while place < len(content):  # records of length, checksum, event, checksum
        (length,) = struct.unpack_from("<Q", content, place)
        event = event_file.Event.FromString(content[place + 12 : place + 12 + length])
        found += [(event.step, value.simple_value) for value in event.summary.value if value.tag == "val/loss"]
        place += 12 + length + 4
    assert found == [(row["step"], float(np.float32(row["val_loss"]))) for row in read_log(result.folder / "log.csv")]


# --- progress ---


class Counting:
    """A progress that remembers how many items are done, by label."""

    def __init__(self):
        self.tracked, self.ended = {}, False

    def track(self, items, total, label):
        self.tracked[label] = 0, total
        for item in items:
            yield item
            self.tracked[label] = self.tracked[label][0] + 1, total
        self.ended = True


def test_every_tick_is_one_item_done():
    progress = Counting()
    with ticking(progress, total=3, label="steps") as tick:
        assert progress.tracked["steps"] == (0, 3)
        for count in range(1, 4):
            assert not progress.ended
            tick()
            assert progress.tracked["steps"] == (count, 3)
        assert progress.ended


# --- the recorder ---


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


def test_a_plateau_lowers_the_rate(train, monkeypatch):
    monkeypatch.setattr(
        validation.ScoreAccumulator,
        "compute",
        lambda *_: validation.Scores(1.0, 1.0, None, iou=0.5, dice=0.5, accuracy=0.5),
    )
    changes = {"schedule": "plateau", "plateau_patience": 2, "plateau_factor": 0.5, "warmup": 0, "learning_rate": 0.01}
    rows = read_log(train(changes=changes).folder / "log.csv")
    assert [row["learning_rate"] for row in rows] == [0.01, 0.01, 0.01, 0.005, 0.005, 0.0025]


def test_every_step_is_shown(train):
    progress = Counting()
    train(progress=progress, changes={"steps": 3})
    assert progress.tracked["training steps"] == (3, 3)


def test_pictures_come_with_better_weights_but_not_too_often(train, monkeypatch):
    drawn = []
    monkeypatch.setattr(log, "draw_curves", lambda rows, path: drawn.append(len(rows)))
    monkeypatch.setattr(log, "draw_examples", lambda predict, tiles, indices, path: None)
    changes = {"keep": "last", "steps": 6}
    train("one", pictures=True, changes=changes)
    assert drawn == [3]  # at the end
    drawn.clear()
    monkeypatch.setattr(log, "PICTURES_EVERY_S", -1.0)
    train("two", pictures=True, changes=changes)
    assert drawn == [1, 2, 3]


def test_drawing_does_not_change_the_training(train, finished, monkeypatch):
    monkeypatch.setattr(log, "PICTURES_EVERY_S", -1.0)
    monkeypatch.setattr(log, "draw_curves", lambda rows, path: None)
    monkeypatch.setattr(
        log, "draw_examples", lambda predict, tiles, indices, path: predict(tiles[indices[0]].image[None])
    )
    with_pictures = train(pictures=True)
    assert weights(with_pictures.folder) == weights(finished.folder)


# --- pictures ---


@pytest.fixture(scope="module")
def tiles(tmp_path_factory):
    folder = write_small(tmp_path_factory.mktemp("wide") / "data", np.random.default_rng(2), shape=(64, 320))
    return TileDataset(open_dataset(folder), size=64)


def tissues(tiles, index):
    return len(set(np.unique(tiles[index].mask)) - {255})


def test_examples_are_rich_and_from_different_sections(tiles):
    chosen = choose_examples(tiles, 4)
    assert {tiles.sources[index].case.name for index in chosen} == {"a", "b", "c", "d"}
    for index in chosen:
        own = [i for i, place in enumerate(tiles.sources) if place.case.name == tiles.sources[index].case.name]
        assert tissues(tiles, index) == max(tissues(tiles, i) for i in own)


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
