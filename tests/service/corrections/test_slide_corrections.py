"""What is kept of corrections between requests: nothing stale, nothing replayed in vain."""

import numpy as np
import pytest
from tests.evaluation.small import NAMES, schema_of

from ntrm.correction.log import REDO, UNDO, Step, append
from ntrm.correction.mask import open_mask
from ntrm.correction.pixels import PixelSet
from ntrm.correction.state import Corrections
from ntrm.service.corrections.slide_corrections import CorrectionStore, KnownCorrections

KEY = ("id", 1)


@pytest.fixture
def folder(tmp_path, results):
    return tmp_path / "out" / "a"


@pytest.fixture
def store():
    return CorrectionStore()


def add(folder, action="draw", tissue="SCC", first=0):
    mask = open_mask(folder)
    named = PixelSet(np.array([first]), np.array([first + 3])).text if action == "draw" else ""
    return append(folder, mask.record, Step(action=action, tissue=tissue if named else None, named=named))


def first_pixels(corrections):
    labels = corrections.paint(np.full((190, 130), NAMES.index("BKG"), dtype=np.uint8))
    return [NAMES[label] for label in labels[0, :6:3]]


def test_a_log_that_has_changed_is_read_again(store, folder):
    assert store.of(KEY, folder).log.version == 0
    add(folder)
    assert store.of(KEY, folder).log.version == 1
    there = store.of(KEY, folder)
    assert store.of(KEY, folder).log is there.log
    assert first_pixels(there.now) == ["SCC", "BKG"]
    (folder / "corrections.jsonl").unlink()
    assert store.of(KEY, folder).log.version == 0


def test_only_new_steps_are_replayed_and_an_undo_replays_nothing(store, folder, monkeypatch):
    replayed, with_step = [], Corrections.with_step
    monkeypatch.setattr(
        Corrections, "with_step", lambda own, step: replayed.append(step.number) or with_step(own, step)
    )
    for action, first, expected, pixels in [
        ("draw", 0, [1], ["SCC", "BKG"]),
        ("draw", 3, [2], ["SCC", "SCC"]),
        (UNDO, 0, [], ["SCC", "BKG"]),
        (REDO, 0, [], ["SCC", "SCC"]),
        (UNDO, 0, [], ["SCC", "BKG"]),
        (UNDO, 0, [], ["BKG", "BKG"]),
        ("draw", 3, [7], ["BKG", "SCC"]),
    ]:
        add(folder, action, first=first)
        replayed.clear()
        assert first_pixels(store.of(KEY, folder).now) == pixels
        assert replayed == expected


def test_every_version_can_be_looked_at(store, folder):
    add(folder)
    add(folder, first=3)
    add(folder, UNDO)
    states = [first_pixels(store.at_version(KEY, folder, version)[1]) for version in range(4)]
    assert states == [["BKG", "BKG"], ["SCC", "BKG"], ["SCC", "SCC"], ["SCC", "BKG"]]
    assert store.at_version(KEY, folder, None)[0] == store.at_version(KEY, folder, 9)[0] == 3


def test_a_new_log_with_the_same_numbers_is_not_taken_for_the_old_one(store, folder):
    add(folder)
    add(folder, first=3)
    assert first_pixels(store.of(KEY, folder).now) == ["SCC", "SCC"]
    (folder / "corrections.jsonl").rename(folder / "old.jsonl")
    add(folder, tissue="EPI")
    add(folder, tissue="EPI", first=3)
    assert first_pixels(store.of(KEY, folder).now) == ["EPI", "EPI"]


def test_corrections_are_counted_without_reading_the_log_again(store, folder, monkeypatch):
    assert store.count(folder) == 0
    add(folder)
    add(folder)
    add(folder, UNDO)
    assert store.count(folder) == 1
    monkeypatch.setattr("ntrm.service.corrections.slide_corrections.read_log", lambda _: pytest.fail("read again"))
    assert store.count(folder) == 1


def test_a_slide_that_is_gone_is_forgotten(store, folder):
    add(folder)
    before = store.of(KEY, folder)
    store.forget("id")
    assert store.of(KEY, folder).opened is not before.opened


def test_of_too_many_corrections_the_oldest_go(monkeypatch):
    monkeypatch.setattr("ntrm.service.corrections.slide_corrections.KNOWN", 2)
    known, steps = KnownCorrections(), [Corrections((2, 2), schema_of()) for _ in range(3)]
    known.keep(KEY, steps[0])
    known.keep(KEY, steps[1])  # after the same steps: in its place
    assert known.of(KEY) == [steps[1]]
    known.keep(("id", 2), steps[2])
    known.keep(("other", 1), steps[0])
    assert (known.of(KEY), known.of(("id", 2))) == ([], [steps[2]])
    known.forget("id")
    assert (known.of(("id", 2)), known.of(("other", 1))) == ([], [steps[0]])
