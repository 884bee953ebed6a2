"""Devices by name."""

import pytest
import torch

from ntrm.core.devices import choose_device
from ntrm.core.errors import UsageError


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_a_device_is_given_by_name_or_as_torch_has_it(device):
    assert choose_device(device) == torch.device("cpu")
    assert choose_device(torch.device("cpu", 0)) == choose_device("cpu:0") == torch.device("cpu")
    for unknown in (torch.device("meta"), None, 0, "cpu:1"):
        with pytest.raises(UsageError, match="unknown device"):
            choose_device(unknown)


def test_gpu_is_another_name_of_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (choose_device("gpu"), choose_device("gpu:1")) == (torch.device("cuda"), torch.device("cuda:1"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"(?s)no such device.*cuda.*cpu"):
        choose_device("gpu")
