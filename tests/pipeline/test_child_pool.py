"""Pieces measured in child processes: the same findings, and nothing lost when a child is."""

import gc
import os
import signal
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.helpers import is_alive, wait_for

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.pipeline import child_pool
from ntrm.pipeline.child_pool import ChildPool, children_for
from ntrm.pipeline.measurements import measure_pieces, measure_task, scan_slide
from ntrm.wsi.pieces import PieceMap

MPP = Resolution.square(20.0)
LONG_S = 60


@pytest.fixture(scope="module")
def slide():
    """The regions of a mask of four pieces, and these."""
    mask = np.full((260, 260), SKIN.background_index, dtype=np.uint8)
    for number, (top, left) in enumerate(((10, 10), (10, 140), (140, 10), (140, 140))):
        for inset, tissue in enumerate(("KER", "EPI", "PAP", "RET")):
            mask[top + 4 * inset : top + 90 + number, left : left + 100] = SKIN.index(tissue)
        mask[top + 40 : top + 50 + number, left + 30 : left + 60] = SKIN.index("BCC")
    pieces = PieceMap.of(mask != SKIN.background_index, MPP)
    assert len(pieces.pieces) == 4
    sure = np.full(mask.shape, 255, dtype=np.uint8)
    return scan_slide(mask, sure, pieces, schema=SKIN, resolution=MPP), pieces


def told(slide, children=None):
    """All that is said of the pieces."""
    return [
        (each.piece, each.window, each.measured, each.cancers, each.text, each.areas_mm2, each.graph.as_node_link())
        for each in measure_pieces(*slide, schema=SKIN, children=children)
    ]


@pytest.fixture
def pool():
    with closing(ChildPool()) as made:
        made.ready(2)
        yield made


def processes(pool):
    """The ids of the children: the first, and its fork."""
    (first,) = pool._started
    forks = Path(f"/proc/{first.pid}/task/{first.pid}/children")
    until = time.monotonic() + LONG_S
    while not (found := forks.read_text().split()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return [first.pid, *map(int, found)]


def test_children_find_what_this_process_finds(slide, pool):
    expected = told(slide)
    assert any(each[2]["deep_clearance"].value is not None for each in expected)
    assert told(slide, pool) == expected
    assert all(map(is_alive, processes(pool)))


def test_the_largest_piece_comes_first_and_findings_are_in_the_order_of_their_numbers(slide):
    asked = []

    class Noting:
        size = 1

        def do(self, work, task):
            asked.append(task.piece.number)
            return work(task)

    assert told(slide, Noting()) == told(slide)
    assert asked == [4, 3, 2, 1]
    assert [each[0].number for each in told(slide, Noting())] == [1, 2, 3, 4]


@pytest.mark.parametrize("killed", [[0], [1], [0, 1]])
def test_what_a_lost_child_should_have_measured_is_measured_here(slide, pool, killed):
    numbers = processes(pool)
    for each in killed:
        os.kill(numbers[each], signal.SIGKILL)
    assert told(slide, pool) == told(slide)
    assert told(slide, pool) == told(slide)


def test_the_next_slide_has_a_child_in_place_of_each_that_was_lost(slide, pool):
    os.kill(processes(pool)[1], signal.SIGKILL)
    expected = told(slide)
    assert told(slide, pool) == expected
    pool.ready(2)
    assert [process.poll() for process in pool._started] == [None, None]
    assert len({pool.do(os.getpid) for _ in range(4)} - {os.getpid()}) == 2
    assert told(slide, pool) == expected


def test_a_child_that_does_not_answer_is_ended_and_its_piece_measured_here(slide, pool, monkeypatch):
    numbers = processes(pool)
    for each in numbers:
        os.kill(each, signal.SIGSTOP)
    monkeypatch.setattr(child_pool, "LONGEST_S", 0.1)
    assert told(slide, pool) == told(slide)
    assert pool._started[0].wait(LONG_S) == -signal.SIGKILL
    wait_for("the end of all children", lambda: not any(map(is_alive, numbers)))


def test_an_error_in_a_child_is_met_again_in_its_parent(pool):
    with pytest.raises(AttributeError, match="NoneType"):
        pool.do(measure_task, (None,) * 5)


def test_where_no_child_can_be_started_pieces_are_measured_here(slide, monkeypatch):
    def full(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr(child_pool.subprocess, "Popen", full)
    with closing(ChildPool()) as pool:
        pool.ready(2)
        assert told(slide, pool) == told(slide)


def test_children_end_with_their_pool_and_a_closed_one_can_start_others(slide, pool):
    numbers = processes(pool)
    (first,) = pool._started
    pool.close()
    pool.close()
    assert first.returncode == 0
    wait_for("the end of all children", lambda: not any(map(is_alive, numbers)))
    pool.ready(2)
    assert told(slide, pool) == told(slide)


def test_children_end_when_their_pipes_close_as_those_of_a_killed_parent_do(pool):
    numbers, (first,) = processes(pool), pool._started
    for child in pool._all:
        child.close()
    assert first.wait(LONG_S) == 0
    wait_for("the end of all children", lambda: not any(map(is_alive, numbers)))


def test_a_pool_that_nobody_closed_leaves_no_child():
    pool = ChildPool()
    pool.ready(2)
    numbers = processes(pool)
    del pool
    gc.collect()
    wait_for("the end of all children", lambda: not any(map(is_alive, numbers)))


def test_there_are_children_for_large_masks_where_there_are_cores(monkeypatch):
    large = child_pool.LEAST_PIXELS
    for cores, children in ((1, 0), (4, 0), (7, 0), (8, 4), (12, 6), (16, 8), (96, 8)):
        monkeypatch.setattr(child_pool, "most_threads", lambda cores=cores: cores)
        assert children_for(large) == children
        assert children_for(large - 1) == 0
    with closing(ChildPool()) as pool:
        assert pool.for_mask(large - 1) is None
        assert not pool.size
        assert pool.for_mask(large) is pool
        assert pool.for_mask(large) is pool
        assert pool.size == 8
        assert len(pool._started) == 1
