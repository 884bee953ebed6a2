"""One thread for small networks: on a busy machine, threads that wait for each other take ten times as long."""

from collections.abc import Iterator

import pytest
import torch
from tests.models.shallow import shallow

__all__ = ["shallow"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
