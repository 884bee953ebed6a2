"""Fixtures for every test: random inputs that only its name decides, so that one commit has one verdict."""

import gc
import os
import random as plain
import signal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests.forks import Forks

SLOW = (
    "docs/test_commands.py",
    "docs/test_notebook.py",
    "paper/test_reproduce.py",
    "segment/test_ray_cluster_runs.py",
    "segment/test_file_transfer.py",
    "training/test_distributed.py",
    "service/test_serve.py",
    "service/test_serve_corrections.py",
    "service/browser/test_slide_view.py",
    "service/browser/test_list.py",
    "service/browser/test_correct_view.py",
    "service/browser/test_correct_keys.py",
    "service/browser/test_familiarity_view.py",
    "service/browser/test_annotate_view.py",
    "training/test_resume.py",
    "cli/test_demo.py",
)
"""Files with a test that takes ten seconds or more: they begin first, and only `make test-all` runs them."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Imports and thousands of tests make millions of objects that stay: looking for garbage among them takes time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests come first: at the end, short ones are left for the processes to share. Files stay whole."""
    first = [Path(__file__).parent / name for name in SLOW]
    for item in items:
        if item.path in first:
            item.add_marker("slow")
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


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Decoded sections of tests do not end in the user's cache; they are kept by content, so that tests may share."""
    os.environ["NTRM_CACHE"] = str(tmp_path_factory.getbasetemp() / "cache")
    os.environ["NTRM_STATE"] = os.devnull  # where slides lay in one test is nothing that another may know


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Runs programs in processes of their own."""
    made = Forks(tmp_path_factory.mktemp("forks"))
    yield made
    made.close()


def seed_of(name: str) -> int:
    """A seed that is the same for a name on every machine and in every run."""
    return zlib.crc32(name.encode()) >> 1


def seed_libraries(seed: int) -> None:
    """What draws from a library's own generator, such as the first weights of a network, draws the same, too."""
    import torch

    plain.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - code under test may draw from it
    torch.manual_seed(seed)


def seed_for(item: pytest.Item) -> int:
    """A test's seed is that of its name, or NTRM_TEST_SEED to see a failure of `make fuzz` again."""
    kept = item.callspec.params["seed"] if item.get_closest_marker("failed_once") else None
    return int(kept or os.environ.get("NTRM_TEST_SEED") or seed_of(item.nodeid))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Seeds with which a test once failed: it runs with each of them, too."""
    for marker in metafunc.definition.iter_markers("failed_once"):
        seeds = [None, *marker.args]
        metafunc.parametrize("seed", seeds, indirect=True, ids=lambda seed: "name" if seed is None else str(seed))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The test's seed."""
    return seed_for(request.node)


@pytest.fixture
def random(seed: int) -> np.random.Generator:
    """A numpy generator of that seed."""
    return np.random.default_rng(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Everything else that a test draws from begins with its seed, too."""
    seed = seed_for(item)
    seed_libraries(seed)
    if isinstance(item, pytest.Function) and hypothesis.is_hypothesis_test(item.obj):
        hypothesis.seed(seed)(item.function)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """What several tests share is drawn from its own name: whichever of them comes first finds the same."""
    import torch

    if fixturedef.scope == "function":
        return (yield)
    before = plain.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    seed_libraries(seed_of(f"{fixturedef.baseid}::{fixturedef.argname}[{request.param_index}]"))
    try:
        return (yield)
    finally:
        plain.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])


# Machines under test are often busy: neither a slow draw nor slow drawing is a failure.
settings.register_profile(
    "ntrm", max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fuzz", settings.get_profile("ntrm"), max_examples=100)
settings.load_profile("ntrm")
# Hypothesis also tries numbers and words from those of our modules that happen to be imported, which differ from one
# process to the next.
providers._get_local_constants = lambda: providers._local_constants
