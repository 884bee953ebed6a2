"""What commands share."""

import os

import pytest

from ntrm.cli.common import keep_freed_memory


@pytest.mark.parametrize(("said", "used"), [(None, "1000"), ("10", "10")])
def test_freed_memory_is_kept_a_second_unless_the_user_says_otherwise(monkeypatch, said, used):
    name = "MIMALLOC_PURGE_DELAY"
    monkeypatch.setenv(name, said or "")  # put back to what it was, whatever happens
    if said is None:
        monkeypatch.delenv(name)
    keep_freed_memory()
    assert os.environ[name] == used
