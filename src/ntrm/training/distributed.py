"""Several processes that train one network together, started by ``torchrun``: which one this is, how they add up."""

from __future__ import annotations

import atexit
import inspect
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ntrm.core.devices import choose_device
from ntrm.core.errors import UsageError, check_number
from ntrm.core.processes import terminated_like_interrupted
from ntrm.core.threads import cores_given

TORCHRUN = "torch.distributed.run"
MEETING = timedelta(minutes=30)  # How long processes wait for each other: some may take long to read the data
_T = TypeVar("_T")


@dataclass(frozen=True)
class Launch:
    """Processes of one training, and which of them this is."""

    device: torch.device  # The device of this process
    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes files and prints."""
        return self.rank == 0


def is_launched() -> bool:
    """Whether ``torchrun`` has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def run_by_torchrun(count: int, arguments: list[str]) -> int:
    """Run ``ntrm`` with these arguments in so many processes on this machine; returns the exit code."""
    command = [sys.executable, "-m", TORCHRUN, "--standalone", f"--nproc-per-node={count}", "-m", "ntrm", *arguments]
    threads = {"OMP_NUM_THREADS": str(max(1, cores_given() // count))}
    # A session of its own: torchrun hears of Ctrl-C from here, once, and ends with 1 where we say 130.
    with (
        terminated_like_interrupted(),
        subprocess.Popen(command, env={**threads, **os.environ}, start_new_session=True) as torchrun,  # noqa: S603
    ):
        try:
            return torchrun.wait()
        except KeyboardInterrupt:
            torchrun.terminate()
            torchrun.wait()
            return 130


def find_launch(device: str, num_devices: int, environment: Mapping[str, str] | None = None) -> Launch:
    """Which process this is, from the variables that ``torchrun`` sets; a process alone without them."""
    check_number("number of devices", num_devices, 1, 4096, whole=True)
    env = os.environ if environment is None else environment
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE") if "TORCHELASTIC_RUN_ID" in env else ()
    rank, world, local_rank, local_world = [int(env[name]) for name in names] or (0, 1, 0, 1)
    if num_devices not in (1, local_world):
        raise UsageError(
            "wrong number of processes for one training",
            got=f"{local_world} on this machine",
            expected=f"{num_devices}, one for each device",
            hint=f"start them with torchrun --standalone --nproc-per-node {num_devices}, or use the command ntrm train",
        )
    chosen = choose_device(device)
    if local_world > 1 and chosen.type != "cpu":
        if str(chosen) != "cuda" or torch.cuda.device_count() < local_world:
            raise UsageError(
                "not a device for each process",
                got=f"--device {device} for {local_world} processes, {torch.cuda.device_count()} GPUs",
                expected="cuda with as many GPUs, or cpu",
                hint="lower --num-devices (or --nproc-per-node), or give --device cuda",
            )
        chosen = torch.device("cuda", local_rank)
    return Launch(chosen, rank, world)


def connect(launch: Launch) -> None:
    """Connect the processes of a training: once, for all trainings in this process."""
    if launch.world == 1 or dist.is_initialized():
        return
    cuda = launch.device.type == "cuda"
    dist.init_process_group("nccl" if cuda else "gloo", timeout=MEETING, device_id=launch.device if cuda else None)
    atexit.register(dist.destroy_process_group)


def world_size() -> int:
    """Processes that are connected; 1 for a process alone."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def summed(values: Tensor) -> Tensor:
    """Values without gradient, summed over all processes."""
    if world_size() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def from_first(value: _T) -> _T:
    """What the first process has, in every process."""
    box = [value]
    if world_size() > 1:
        dist.broadcast_object_list(box, src=0)
    return box[0]


def share_gradients(network: nn.Module, device: torch.device) -> nn.Module:
    """``network`` with gradients that are the mean over all processes; of a single process, itself."""
    if world_size() == 1:
        return network
    # Statistics of batch norm are averaged once a round, before they are used: not at every step.
    known = inspect.signature(DistributedDataParallel).parameters
    sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # by version of torch
    options: dict[str, Any] = {sync: False, "device_ids": [device.index] if device.type == "cuda" else None}
    return DistributedDataParallel(network, gradient_as_bucket_view=True, **options)
