import json
import math
import struct
from statistics import fmean

import numpy as np
import pytest
import torch

from ntrm.core.errors import NtrmError
from ntrm.core.progress import JsonProgress
from ntrm.training.log import COLUMNS, INTERVAL, EventFile, LossBuffer, means, read_log, ticking, write_log
from ntrm.training.losses import Loss


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


def records(content):
    """The events of a file, read by the letter of the format."""
    place = 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        yield content[place + 12 : place + 12 + length]
        place += 12 + length + 4
    assert place == len(content)


def test_events_are_records_of_the_stated_length(tmp_path, random):
    rows = make_rows(random, 4)
    events = EventFile(tmp_path / "tensorboard")
    for row in rows:
        events.write(row["step"], row)
    first, *rest = records(events.path.read_bytes())
    assert first.endswith(b"brain.Event:2")
    assert len(rest) == len(rows)
    for event, row in zip(rest, rows, strict=True):
        assert b"val/iou\x15" + struct.pack("<f", row["val_iou"]) in event
        assert b"train/coarse" not in event  # there is none


def test_tensorboard_reads_them(tmp_path, random):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    rows = make_rows(random, 3)
    events = EventFile(tmp_path)
    for row in rows:
        events.write(row["step"], row)
    read = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(read.Tags()["scalars"]) == {
        key.replace("_", "/", 1) for key in COLUMNS if key not in ("step", "train_coarse")
    }
    found = [(scalar.step, scalar.value) for scalar in read.Scalars("val/loss")]
    assert found == [(row["step"], float(np.float32(row["val_loss"]))) for row in rows]


# --- losses of the steps ---


def losses(random, count):
    parts = torch.from_numpy(random.uniform(0, 3, (count, 2))).float()
    return [Loss(final + 0.4 * coarse, final, coarse) for final, coarse in parts]


def add_all(watch, given):
    for loss in given:
        watch.add(loss)


def test_all_losses_arrive_in_order(random):
    given = losses(random, int(random.integers(1, 4 * INTERVAL)))
    watch = LossBuffer()
    add_all(watch, given)
    assert watch.collect() == [[float(part) for part in loss] for loss in given]
    assert watch.collect() == watch.rows  # nothing comes twice


def test_the_mean_does_not_depend_on_where_a_round_was_interrupted(random):
    given = losses(random, 50)
    whole, first = LossBuffer(), LossBuffer()
    for loss in given:
        whole.add(loss)
    cut = int(random.integers(1, 50))
    for loss in given[:cut]:
        first.add(loss)
    second = LossBuffer(cut, first.collect())
    for loss in given[cut:]:
        second.add(loss)
    assert means(second.collect()) == means(whole.collect())
    assert means(whole.rows)[0] == pytest.approx(fmean(float(loss.total) for loss in given))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_the_first_bad_step_is_named(random, bad):
    start, place = 1000, int(random.integers(0, 3 * INTERVAL))
    given = losses(random, 5 * INTERVAL)
    for index in (place, place + 1, place + 30):  # those after it are bad as well
        given[index] = Loss(torch.tensor(bad), torch.tensor(bad), torch.tensor(1.0))
    watch = LossBuffer(start)
    with pytest.raises(NtrmError) as caught:
        add_all(watch, given[: place + 2 * INTERVAL + 1])  # it is met soon
    assert caught.value.what.endswith(f"at step {start + place + 1}")
    assert "learning_rate" in caught.value.hint
    assert str(bad) in str(caught.value.got)


def test_without_a_coarse_head(random):
    watch = LossBuffer()
    for value in (1.0, 2.0):
        watch.add(Loss(torch.tensor(value), torch.tensor(value)))
    assert means(watch.collect()) == (1.5, 1.5, None)


def test_gradients_are_not_held():
    watch = LossBuffer()
    value = torch.tensor(1.0, requires_grad=True) * 2
    watch.add(Loss(value, value))
    assert not watch._fresh[0].requires_grad


# --- progress ---


class Counting:
    """Counts what is done when."""

    def __init__(self):
        self.done = 0
        self.ended = False
        self.told = None

    def track(self, items, total, label):
        self.told = total, label
        for item in items:
            yield item
            self.done += 1
        self.ended = True


def test_every_tick_is_one_item_done():
    progress = Counting()
    with ticking(progress, total=3, label="steps") as tick:
        assert (progress.told, progress.done) == ((3, "steps"), 0)
        for count in range(1, 4):
            assert not progress.ended
            tick()
            assert progress.done == count
        assert progress.ended


def test_leaving_early_or_late_counts_nothing():
    for ticks in (0, 2, 3, 5):
        progress = Counting()
        with ticking(progress, total=3, label="steps") as tick:
            for _ in range(ticks):
                tick()
        assert progress.done == min(3, ticks)


def test_an_iterator_that_cannot_be_closed_will_do():
    class Plain:
        def track(self, items, total, label):
            return iter([*items])

    with ticking(Plain(), total=2, label="steps") as tick:
        assert tick() is None


def test_programs_get_a_last_event(capsys):
    with ticking(JsonProgress(), total=2, label="steps") as tick:
        tick()
        tick()
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (last["label"], last["done"], last["total"]) == ("steps", 2, 2)
