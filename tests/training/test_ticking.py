import json

from ntrm.core.progress import JsonProgress
from ntrm.training.ticking import Ticker


class Recorder:
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
    progress = Recorder()
    ticker = Ticker(progress, total=3, label="steps")
    assert (progress.told, progress.done) == ((3, "steps"), 0)
    for tick in range(1, 4):
        assert not progress.ended
        ticker.tick()
        assert progress.done == tick
    assert progress.ended


def test_closing_early_or_late_counts_nothing():
    for ticks in (0, 2, 3, 5):
        progress = Recorder()
        ticker = Ticker(progress, total=3, label="steps")
        for _ in range(ticks):
            ticker.tick()
        for _ in range(2):
            ticker.close()
        assert progress.done == min(3, ticks)


def test_an_iterator_that_cannot_be_closed_will_do():
    class Plain:
        def track(self, items, total, label):
            return iter([*items])

    ticker = Ticker(Plain(), total=2, label="steps")
    ticker.tick()
    assert ticker.close() is None


def test_programs_get_a_last_event(capsys):
    ticker = Ticker(JsonProgress(), total=2, label="steps")
    ticker.tick()
    ticker.tick()
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (last["label"], last["done"], last["total"]) == ("steps", 2, 2)
