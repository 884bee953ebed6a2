"""Fixtures for every test: fresh random inputs whose seed is shown when a test fails."""

import os
import secrets
import signal
import sys

import numpy as np
import pytest
from hypothesis import settings


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
