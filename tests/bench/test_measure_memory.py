"""The drawn piece is as it is said, and every stage is watched."""

import numpy as np

from bench import measure_memory as bench


def test_a_ragged_piece_is_drawn_and_watched(tmp_path, seed, monkeypatch):
    monkeypatch.setattr(bench, "TILE", 512)
    height, width = 1300, 1100
    paths = bench.draw(tmp_path, height, width, 20.0, seed)
    labels, confidence = (np.memmap(path, np.uint8, "r", shape=(height, width)) for path in paths)
    mask = np.asarray(labels)
    assert {*np.unique(mask[: bench.FRAME])} == {*np.unique(mask[:, -bench.FRAME :])} == {bench.BKG}
    assert (mask[2 * bench.FRAME - 1, bench.FRAME : -bench.FRAME] == bench.KER).all()
    inside = mask[3 * bench.FRAME : -bench.FRAME, bench.FRAME : -bench.FRAME]
    assert bench.BKG not in inside
    assert len(np.unique(inside)) > 5
    stages = bench.study(labels, confidence)
    assert len(stages) == 4
    assert all(seconds > 0 for _, seconds in stages.values())
