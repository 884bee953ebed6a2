"""Where this process stands among those that train together, before any of them has spoken to another."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ntrm.core.devices import choose_device
from ntrm.core.errors import UsageError, check_number


@dataclass(frozen=True)
class Launch:
    """Processes of one training, and which of them this is."""

    device: torch.device
    """The device of this process."""
    rank: int = 0
    world: int = 1
    local_world: int = 1
    """Processes on this machine."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world or not 1 <= self.local_world <= self.world:
            raise UsageError("impossible place among processes", got=self, expected="rank < world, local_world ≤ world")
        if self.world % self.local_world:
            raise UsageError(
                "machines differ in their number of processes",
                got=f"{self.world} processes, {self.local_world} of them here",
                expected="the same number on every machine",
            )

    @property
    def nodes(self) -> int:
        """Machines."""
        return self.world // self.local_world

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes files and speaks."""
        return self.rank == 0


def find_launch(device: str, num_devices: int, environment: Mapping[str, str] | None = None) -> Launch:
    """Read the place of this process from what ``torchrun``, ``srun`` or Lightning's own launcher has set.

    Without any of them this is the first process, and Lightning starts the other ``num_devices - 1`` of them.
    """
    check_number("number of devices", num_devices, 1, 4096, whole=True)
    env = os.environ if environment is None else environment
    if "TORCHELASTIC_RUN_ID" in env:
        rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
        local_rank, local_world = int(env["LOCAL_RANK"]), int(env["LOCAL_WORLD_SIZE"])
    elif under_slurm(env):
        rank, world = int(env["SLURM_PROCID"]), int(env["SLURM_NTASKS"])
        local_rank, local_world = int(env["SLURM_LOCALID"]), world // int(env.get("SLURM_NNODES", "1"))
    else:
        rank = local_rank = int(env.get("LOCAL_RANK", "0")) if num_devices > 1 else 0
        world = local_world = num_devices
    if num_devices not in (1, local_world):
        raise UsageError(
            "two numbers of devices", got=f"--num-devices {num_devices}", expected=f"the {local_world} of the launcher"
        )
    return Launch(_own_device(choose_device(device), local_rank, local_world), rank, world, local_world)


def under_slurm(environment: Mapping[str, str] | None = None) -> bool:
    """Whether ``srun`` has started several processes, each of which is one of the training's."""
    env = os.environ if environment is None else environment
    # Inside a torchrun on each machine of a job, srun's numbers count the torchruns.
    return "TORCHELASTIC_RUN_ID" not in env and "SLURM_PROCID" in env and int(env.get("SLURM_NTASKS", "1")) > 1


def _own_device(device: torch.device, local_rank: int, local_world: int) -> torch.device:
    if local_world == 1 or device.type == "cpu":
        return device
    if str(device) != "cuda":
        raise UsageError(
            "one device for several processes", got=device, expected="cuda or cpu", mend="give --device cuda"
        )
    if torch.cuda.device_count() < local_world:
        raise UsageError(
            "not enough devices",
            got=f"{local_world} processes",
            expected=f"at most {torch.cuda.device_count()}",
            mend="lower --num-devices (or --nproc-per-node)",
        )
    return torch.device("cuda", local_rank)
