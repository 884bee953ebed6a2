"""Children that read are started ahead: each slide has its own, and none is left behind."""

import os
import signal
from contextlib import closing

import numpy as np
import pytest
from tests.wsi import making

from ntrm.core.errors import DataError
from ntrm.wsi.isolated import ReaderPool
from ntrm.wsi.readers.formats import open_slide


@pytest.fixture
def slide(tmp_path, random):
    return making.write_png(tmp_path / "a.png", making.tissue(random, 40, 60))


def child(process):
    return process._child


def test_every_slide_has_a_child_of_its_own_and_the_next_one_waits(slide):
    expected = open_slide(slide)
    with closing(ReaderPool(2)) as readers:
        first = readers.waiting
        one = readers.open(slide)
        second = readers.waiting
        other = readers.open(slide)
        assert (one._process, other._process) == (first, second)
        assert child(first).pid != child(second).pid
        # Two were announced, so that no third one waits; a third slide is opened all the same.
        assert readers.waiting is None
        third = readers.open(slide)
        for reader in (one, other, third):
            assert reader.info == expected.info
            np.testing.assert_array_equal(reader.read(3, 4, 30, 20, 0), expected.read(3, 4, 30, 20, 0))
            reader.close()
            assert child(reader._process).poll() is not None


def test_one_that_dies_while_it_waits_costs_nothing(slide):
    with closing(ReaderPool(1)) as readers:
        waiting = readers.waiting
        os.kill(child(waiting).pid, signal.SIGKILL)
        child(waiting).wait()
        reader = readers.open(slide)
        assert reader._process is not waiting
        assert reader.read(0, 0, 10, 10, 0).shape == (10, 10, 3)
        reader.close()


def test_what_waits_ends_with_the_reserve_and_a_bad_slide_takes_its_child_along(tmp_path, slide):
    with closing(ReaderPool(0)) as readers:
        assert readers.waiting is None
    (tmp_path / "b.svs").write_bytes(b"no slide")
    with closing(ReaderPool(3)) as readers:
        first = readers.waiting
        with pytest.raises(DataError):
            readers.open(tmp_path / "b.svs")
        assert child(first).poll() is not None
        readers.open(slide).close()
        last = readers.waiting
        assert last.alive
    assert child(last).poll() is not None
    readers.close()


def test_where_no_child_can_be_started_ahead_the_slide_tells(slide, monkeypatch):
    def fails(*_):
        raise OSError("no more processes")

    with monkeypatch.context() as full:
        full.setattr("ntrm.wsi.isolated.ReadingProcess", fails)
        readers = ReaderPool(1)
    with closing(readers):
        assert readers.waiting is None
        readers.open(slide).close()
