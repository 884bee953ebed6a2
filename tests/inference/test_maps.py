"""Maps in memory and on disk are the same arrays; a disk without room is an error before anything is predicted."""

import resource

import numpy as np
import pytest

from ntrm.core.errors import DataError
from ntrm.inference import maps
from ntrm.inference.maps import Maps, new_map


@pytest.mark.parametrize("in_memory", [0, 2 * 30 * 40 - 1, 2 * 30 * 40])
def test_large_maps_lie_on_disk_and_say_nothing_at_first(tmp_path, monkeypatch, in_memory):
    monkeypatch.setattr(maps, "IN_MEMORY", in_memory)
    found = Maps.new(30, 40, tmp_path / "maps", coarse=False)
    files = sorted(path.name for path in tmp_path.rglob("*.u8"))
    assert files == ([] if in_memory == 2 * 30 * 40 else ["confidence.u8", "labels.u8"])
    assert found.coarse is None
    assert (found.labels == 255).all()
    assert not found.confidence.any()
    found.labels[3, 4] = 7
    if files:
        assert np.fromfile(tmp_path / "maps" / "labels.u8", np.uint8)[3 * 40 + 4] == 7


def test_a_file_that_is_there_is_never_written_to(tmp_path):
    (tmp_path / "mine.u8").write_text("mine")
    (tmp_path / "link.u8").symlink_to(tmp_path / "mine.u8")
    for name in ("mine.u8", "link.u8"):
        with pytest.raises(DataError, match="cannot write"):
            new_map((2, 2), 0, tmp_path / name)
    assert (tmp_path / "mine.u8").read_text() == "mine"


def test_all_room_is_taken_at_once(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(DataError, match="cannot write"):
            new_map((10, 101), 0, tmp_path / "a.u8")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
