import hashlib
import io
import pickle
from collections import OrderedDict
from functools import partial

import pytest
import torch
from tests.helpers import Trap

from ntrm.core.errors import DataError, RefusedError
from ntrm.training.checkpoint import MAGIC, CheckpointFolder, on_host, read_checkpoint, write_checkpoint


def make_state(random, step=5, kept=None):
    weights = OrderedDict(a=torch.from_numpy(random.normal(size=(3, 4))), b=torch.tensor([1, 2]))
    return {
        "step": step,
        "kept": kept,
        "network": weights,
        "rows": [[1.0, float("nan")]],
        "nested": {"lr": (0.1, None)},
    }


def same(one, other):
    buffers = []
    for state in (one, other):
        buffers.append(io.BytesIO())
        torch.save(on_host(state), buffers[-1])
    return buffers[0].getvalue() == buffers[1].getvalue()


def test_a_state_comes_back_bit_by_bit(tmp_path, random):
    state = make_state(random)
    write_checkpoint(tmp_path / "x.ckpt", state)
    assert same(read_checkpoint(tmp_path / "x.ckpt"), state)
    assert [path.name for path in tmp_path.iterdir()] == ["x.ckpt"]


def test_a_file_that_is_cut_or_has_a_changed_bit_is_refused(tmp_path, random):
    path = tmp_path / "x.ckpt"
    write_checkpoint(path, make_state(random))
    content = path.read_bytes()
    lengths = [0, 3, len(MAGIC), len(MAGIC) + 32, len(content) - 1, *map(int, random.integers(0, len(content), 10))]
    damaged = [content[:length] for length in lengths]
    for place in random.integers(0, len(content), 10):
        changed = bytearray(content)
        changed[place] ^= 1 << int(random.integers(8))
        damaged.append(bytes(changed))
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(DataError, match="damaged"):
            read_checkpoint(path)


@pytest.mark.parametrize("write", [torch.save, partial(pickle.dump, protocol=2)])
def test_nothing_in_a_file_is_run_even_with_a_good_checksum(tmp_path, write):
    stream = io.BytesIO()
    write({"step": 1, "kept": None, "trap": Trap(tmp_path / "sprung")}, stream)
    payload = stream.getvalue()
    (tmp_path / "x.ckpt").write_bytes(MAGIC + hashlib.sha256(payload).digest() + payload)
    with pytest.raises(DataError, match="cannot read the checkpoint"):
        read_checkpoint(tmp_path / "x.ckpt")
    assert not (tmp_path / "sprung").exists()


@pytest.fixture
def folder(tmp_path):
    opened = CheckpointFolder(tmp_path / "checkpoints")
    yield opened
    opened.close()


def fill(folder, random, steps):
    for step in steps:
        folder.write(step, make_state(random, step, {"weights": {"w": torch.full((3,), float(step))}}))
    folder.wait()


def test_the_last_two_stay_and_where_the_last_is_truncated_the_one_before_counts(folder, random):
    fill(folder, random, range(2, 14, 2))
    assert [path.name for path in folder.names()] == ["step-00000012.ckpt", "step-00000010.ckpt"]
    assert folder.latest(print)["step"] == 12
    last = folder.folder / "step-00000012.ckpt"
    last.write_bytes(last.read_bytes()[: int(random.integers(0, last.stat().st_size))])
    said = []
    state = folder.latest(said.append)
    assert (state["step"], state["kept"]["weights"]["w"].tolist()) == (10, [10, 10, 10])
    assert "using the one before" in said[0]
    for path in folder.names():
        path.write_bytes(b"x")
    with pytest.raises(RefusedError, match="can be used") as caught:
        folder.latest(lambda text: None)
    assert "step-00000010.ckpt" in str(caught.value.got)


def test_the_state_is_that_of_the_moment(folder, random):
    state = make_state(random)
    before = state["network"]["a"].clone()
    folder.write(5, state)
    state["network"]["a"].zero_()
    folder.wait()
    assert torch.equal(folder.latest(print)["network"]["a"], before)


def test_a_failed_write_is_raised(tmp_path, random):
    (tmp_path / "file").write_bytes(b"")
    folder = CheckpointFolder(tmp_path / "file")
    folder.write(1, make_state(random))
    with pytest.raises(DataError, match="cannot write"):
        folder.close()
