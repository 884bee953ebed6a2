"""Fixtures for every test: fresh random inputs whose seed is shown when a test fails."""

import os
import secrets
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

LONGEST = (
    "docs/test_commands.py",
    "docs/test_notebook.py",
    "reproduction/test_reproduce.py",
    "segmentation/test_cluster_runs.py",
    "training/test_distributed.py",
    "service/test_serve.py",
    "training/test_resume.py",
    "bench/test_relation_study.py",
    "cli/test_phantom_and_demo.py",
)
"""Files with a test that takes ten seconds or more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first: at the end, short ones are left for the processes to share. Files stay whole."""
    first = [Path(__file__).parent / name for name in LONGEST]
    items.sort(key=lambda item: first.index(item.path) if item.path in first else len(first))


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> None:
    """A shell lets what it starts in the background ignore Ctrl-C, and so would every command under test."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tests already run one process per core: more threads would only wait for each other."""
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # and so do the processes that tests start


@pytest.fixture
def seed() -> int:
    """A seed drawn anew for each test, or NTRM_TEST_SEED to see a failure again."""
    drawn = int(os.environ.get("NTRM_TEST_SEED") or secrets.randbelow(2**31))
    sys.stdout.write(f"to see this again: NTRM_TEST_SEED={drawn}\n")  # pytest shows it with a failure
    return drawn


@pytest.fixture
def random(seed: int) -> np.random.Generator:
    """A numpy generator of that seed."""
    return np.random.default_rng(seed)


# Machines under test are often busy; a slow draw is no failure.
settings.register_profile("ntrm", deadline=None)
settings.load_profile("ntrm")
