"""Pieces measured in child processes: the same findings, and nothing lost when a child is."""

import os
import signal

import numpy as np
import pytest

from ntrm.core.labels import SKIN
from ntrm.core.mpp import Resolution
from ntrm.pipeline import measuring_process
from ntrm.pipeline.measurements import measure_pieces, scan_slide
from ntrm.pipeline.measuring_process import MeasuringPool, children_for, measuring_pool
from ntrm.wsi.pieces import PieceMap

MPP = Resolution.square(20.0)
LONG_S = 60


@pytest.fixture(scope="module")
def slide():
    """The regions of a mask of four pieces, and these."""
    mask = np.full((260, 260), SKIN.background_index, dtype=np.uint8)
    for number, (top, left) in enumerate(((10, 10), (10, 140), (140, 10), (140, 140))):
        for inset, tissue in enumerate(("KER", "EPI", "PAP", "RET")):
            mask[top + 4 * inset : top + 90, left : left + 100] = SKIN.index(tissue)
        mask[top + 40 : top + 50 + number, left + 30 : left + 60] = SKIN.index("BCC")
    pieces = PieceMap.of(mask != SKIN.background_index, MPP)
    assert len(pieces.pieces) == 4
    sure = np.full(mask.shape, 255, dtype=np.uint8)
    return scan_slide(mask, sure, pieces, schema=SKIN, resolution=MPP), pieces


def told(slide, measurers=None):
    """All that is said of the pieces."""
    return [
        (each.piece, each.window, each.measured, each.cancers, each.text, each.areas_mm2, each.graph.as_node_link())
        for each in measure_pieces(*slide, schema=SKIN, measurers=measurers)
    ]


@pytest.fixture
def pool():
    made = MeasuringPool(2)
    yield made
    made.close()


def processes(pool):
    return [child._process for child in pool._all]


def test_children_find_what_this_process_finds(slide, pool):
    expected = told(slide)
    assert any(each[2]["deep_clearance"].value is not None for each in expected)
    assert told(slide, pool) == expected
    assert [process.poll() for process in processes(pool)] == [None, None]


@pytest.mark.parametrize("killed", [1, 2])
def test_what_a_lost_child_should_have_measured_is_measured_here(slide, pool, killed):
    for process in processes(pool)[:killed]:
        os.kill(process.pid, signal.SIGKILL)
    assert told(slide, pool) == told(slide)
    assert told(slide, pool) == told(slide)


def test_an_error_in_a_child_is_met_again_in_its_parent(pool):
    with pytest.raises(AttributeError, match="NoneType"):
        pool.measure((None,) * 5)


def test_where_no_child_can_be_started_pieces_are_measured_here(slide, monkeypatch):
    def full(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr(measuring_process.subprocess, "Popen", full)
    assert told(slide, MeasuringPool(2)) == told(slide)


def test_children_end_with_their_pool_and_when_their_pipe_closes(pool):
    first, second = processes(pool)
    pool._all[0]._pipe.close()
    assert first.wait(LONG_S) == 0
    pool.close()
    pool.close()
    assert second.poll() == -signal.SIGKILL


def test_there_are_children_for_large_masks_where_there_are_cores(monkeypatch):
    large = measuring_process.LEAST_PIXELS
    for cores, children in ((1, 0), (4, 0), (7, 0), (8, 2), (12, 3), (16, 4), (96, 4)):
        monkeypatch.setattr(measuring_process, "most_threads", lambda cores=cores: cores)
        assert children_for(large) == children
        assert children_for(large - 1) == 0
    with measuring_pool(large - 1) as none:
        assert none is None
    with measuring_pool(large) as some:
        assert some.children == 4
        assert len({process.pid for process in processes(some)}) == 4
    assert all(process.poll() is not None for process in processes(some))
