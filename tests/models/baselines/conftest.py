"""Weights and inputs drawn anew for each test, from the seed that a failure shows."""

import pytest
import torch


@pytest.fixture(autouse=True)
def drawn_anew(seed: int) -> None:
    torch.manual_seed(seed)
