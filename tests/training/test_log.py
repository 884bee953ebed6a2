import struct

import numpy as np
import pytest

from ntrm.training.log import COLUMNS, EventFile, read_log, write_log


def make_rows(random, count):
    rows = [dict(zip(COLUMNS, map(float, random.normal(size=len(COLUMNS))), strict=True)) for _ in range(count)]
    for step, row in enumerate(rows, start=1):
        row.update(step=100 * step, train_initial=None)
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
        assert b"train/initial" not in event  # there is none


def test_tensorboard_reads_them(tmp_path, random):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    rows = make_rows(random, 3)
    events = EventFile(tmp_path)
    for row in rows:
        events.write(row["step"], row)
    read = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(read.Tags()["scalars"]) == {
        key.replace("_", "/", 1) for key in COLUMNS if key not in ("step", "train_initial")
    }
    found = [(scalar.step, scalar.value) for scalar in read.Scalars("val/loss")]
    assert found == [(row["step"], float(np.float32(row["val_loss"]))) for row in rows]
