"""Devices by name, and what becomes of memory that networks free."""

import os
import platform
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from ntrm.core import devices
from ntrm.core.devices import choose_device
from ntrm.core.errors import UsageError

GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")


def without_allocator(environment):
    chosen = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
    return {name: value for name, value in environment.items() if not name.startswith(chosen)}


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


@GLIBC
@pytest.mark.parametrize(
    ("device", "said", "asked"), [("cpu", {}, 2), ("cuda", {}, 0), ("cpu", {"MALLOC_TRIM_THRESHOLD_": "131072"}, 0)]
)
def test_the_allocator_is_left_alone_beside_other_devices_and_where_the_user_has_set_it(device, said, asked):
    calls = []
    library = SimpleNamespace(mallopt=lambda *words: calls.append(words))
    environment = mock.patch.dict(os.environ, {**without_allocator(os.environ), **said}, clear=True)
    with environment, mock.patch.object(devices.ctypes, "CDLL", return_value=library):
        devices.keep_freed_memory(torch.device(device))
    assert len(calls) == asked
