"""Damaged documents of every kind give our own errors, and the fuzzer sees what is not one of them."""

import json

import numpy as np
import pytest
from bench.damage import OF_KIND
from bench.fuzz_loaders import fuzz, outcome
from bench.loadable import TARGETS

from ntrm.core.errors import DataError

COUNT = 150


def test_damaged_documents_give_our_own_errors(tmp_path, seed):
    found = fuzz(tmp_path / "documents", seed, COUNT)
    assert found["failures"] == []
    assert sum(found["outcomes"].values()) == COUNT
    # Of 5,500 documents 70 % were refused.
    assert found["outcomes"]["refused"] > 0.45 * COUNT
    assert found["outcomes"]["read"] > 0.1 * COUNT


def fail(error):
    raise error


def test_other_errors_are_failures(tmp_path):
    assert outcome(lambda _: fail(DataError("wrong")), tmp_path) == "refused"
    assert outcome(lambda _: None, tmp_path) == "read"
    for error in (KeyError("x"), RecursionError(), MemoryError()):
        assert outcome(lambda _, error=error: fail(error), tmp_path).startswith(f"FAILED: {type(error).__name__}")


@pytest.mark.parametrize("kind", OF_KIND)
def test_every_damage_changes_documents(kind, random):
    sound = {
        "json": json.dumps({"a": [1, 2.5, {"b": "c"}], "d": None}).encode(),
        "csv": b"name,r,g\nEPI,1,2\nRET,3,4\n",
        "text": b"lr: 0.1\nsteps: 100\n",
        "bytes": random.bytes(300),
    }[kind]
    for damage in OF_KIND[kind].values():
        changed = [bytes(damage(bytearray(sound), np.random.default_rng(k))) for k in range(20)]
        assert sum(each != sound for each in changed) >= 10
        assert len(set(changed)) > 3


def test_targets_have_names_of_their_own_and_known_kinds():
    assert len({target.name for target in TARGETS}) == len(TARGETS)
    assert all(target.kind in OF_KIND for target in TARGETS)
