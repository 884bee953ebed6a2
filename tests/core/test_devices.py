"""Where convolutions lie in memory, which code computes their gradients, and what becomes of memory that they free."""

import os
import platform
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import nn

from ntrm.core import devices
from ntrm.core.devices import choose_device, fast_gradients
from ntrm.core.errors import UsageError
from ntrm.models.blocks import conv_bn_relu

OWN = torch.backends.mkldnn
NETWORK = nn.Sequential(conv_bn_relu(3, 8), nn.Conv2d(8, 4, 1))
GROUPED = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4))


@pytest.fixture
def processor(monkeypatch):
    """``processor(machine, capability)`` makes this machine look like another."""

    def pretend(machine, capability="DEFAULT"):
        monkeypatch.setattr(platform, "machine", lambda: machine)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)

    return pretend


@pytest.mark.parametrize(
    ("machine", "capability", "network", "left"),
    [
        ("aarch64", "DEFAULT", NETWORK, False),
        ("aarch64", "SVE256", NETWORK, True),
        ("aarch64", "DEFAULT", GROUPED, True),
        ("x86_64", "DEFAULT", NETWORK, True),
    ],
)
def test_onednn_is_left_out_where_its_gradients_are_slow(processor, machine, capability, network, left):
    processor(machine, capability)
    before = OWN.enabled
    with fast_gradients(network):
        assert OWN.enabled is (before and left)
    assert OWN.enabled is before


def test_a_failure_and_a_users_own_choice_leave_onednn_as_it_was(processor):
    processor("aarch64")
    before = OWN.enabled
    try:
        with pytest.raises(ZeroDivisionError), fast_gradients(NETWORK):
            _ = 1 / 0
        assert OWN.enabled is before
        OWN.enabled = False
        with fast_gradients(NETWORK):
            assert not OWN.enabled
        assert not OWN.enabled
    finally:
        OWN.enabled = before


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_gradients_are_the_same(processor, layout):
    torch.manual_seed(0)
    network = nn.Sequential(conv_bn_relu(3, 8, 7), nn.Conv2d(8, 8, 3, padding=2, dilation=2), conv_bn_relu(8, 4, 1))
    network.to(memory_format=layout)
    images = torch.randn(2, 3, 20, 24).contiguous(memory_format=layout)
    gradients = []
    for machine in ("x86_64", "aarch64"):
        processor(machine)
        loss = network(images).square().mean()
        with fast_gradients(network):
            gradients.append(torch.autograd.grad(loss, [*network.parameters()]))
    torch.testing.assert_close(*gradients)


GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
FAULTS = """
import resource, torch
from ntrm.core.devices import keep_freed_memory
keep_freed_memory(torch.device("cpu"))
def faults():
    bytearray(100 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = faults()
print([faults() for _ in range(5)][-1] - first)
"""


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
def test_freed_memory_is_kept_where_networks_run_on_the_processor():
    command = [sys.executable, "-c", FAULTS]
    ran = subprocess.run(command, env=without_allocator(os.environ), capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 1000  # five times a hundred megabytes are 128,000 pages of 4 KiB


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
