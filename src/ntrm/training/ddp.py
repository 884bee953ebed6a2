"""Several processes that train one network together: which one this is, how they start, connect and add up.

``torchrun`` and ``srun`` start the processes by themselves. Without them the first process starts the others: each of
them runs the module ``train``, reads on its standard input what to train, and ends when that input closes.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from ntrm.core.devices import choose_device
from ntrm.core.errors import NtrmError, UsageError, check_number
from ntrm.core.processes import MODEL, module_command, module_environment
from ntrm.core.threads import cores_given

NETWORK = ("NCCL_*", "GLOO_*", "FI_*", "UCX_*")
"""Variables by which a site says how processes reach each other."""

GRACE_S = 20.0
"""How long the first process waits for another one to end, and may itself take to notice that one died."""
MEETING_S = 1800.0
"""How long processes wait for each other to connect: some may take long to read the data."""
PATIENCE_S = 5.0
"""After so long a process says that it waits."""
INTERRUPTED = 130
"""Exit code of a process that was asked to stop and did."""

_HERE = "127.0.0.1"
_T = TypeVar("_T")


# --- which process this is ---


@dataclass(frozen=True)
class Launch:
    """Processes of one training, and which of them this is."""

    device: torch.device
    """The device of this process."""
    rank: int = 0
    world: int = 1
    local_world: int = 1
    """Processes on this machine."""
    meeting: str = ""
    """Where the processes connect, as torch's ``init_method``; empty before this process has started the others."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world or not 1 <= self.local_world <= self.world:
            raise UsageError("impossible rank", got=self, expected="rank < world, local_world ≤ world")
        if self.world % self.local_world:
            raise UsageError(
                "machines differ in their number of processes",
                got=f"{self.world} processes, {self.local_world} of them here",
                expected="the same number on every machine",
            )

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes files and prints."""
        return self.rank == 0


def find_launch(device: str, num_devices: int, environment: Mapping[str, str] | None = None) -> Launch:
    """Read the rank of this process from the variables that ``torchrun``, ``srun`` or the first process has set.

    Without any of them this is the first process, and has to start the other ``num_devices - 1`` of them.
    """
    check_number("number of devices", num_devices, 1, 4096, whole=True)
    env = os.environ if environment is None else environment
    meeting = "env://"
    if "TORCHELASTIC_RUN_ID" in env:  # before SLURM: where srun starts a torchrun per machine, it counts those
        rank, world = int(env["RANK"]), int(env["WORLD_SIZE"])
        local_rank, local_world = int(env["LOCAL_RANK"]), int(env["LOCAL_WORLD_SIZE"])
    elif "SLURM_PROCID" in env and int(env.get("SLURM_NTASKS", "1")) > 1:
        rank, world = int(env["SLURM_PROCID"]), int(env["SLURM_NTASKS"])
        local_rank, local_world = int(env["SLURM_LOCALID"]), world // int(env.get("SLURM_NNODES", "1"))
        # The first machine of the job, at a port from the job's number: every process knows both.
        host = env.get("MASTER_ADDR") or first_host(env.get("SLURM_NODELIST", _HERE))
        meeting = f"tcp://{host}:{env.get('MASTER_PORT') or 15000 + int(env.get('SLURM_JOB_ID', '0')[-4:])}"
    else:
        rank = local_rank = int(env.get("LOCAL_RANK", "0")) if num_devices > 1 else 0
        world = local_world = num_devices
        meeting = "env://" if num_devices > 1 and "LOCAL_RANK" in env else ""
    if num_devices not in (1, local_world):
        raise UsageError(
            "two numbers of devices", got=f"--num-devices {num_devices}", expected=f"the {local_world} of the launcher"
        )
    return Launch(_own_device(choose_device(device), local_rank, local_world), rank, world, local_world, meeting)


def first_host(nodes: str) -> str:
    """The first machine in a list as SLURM writes it.

    >>> first_host("gpu[07-09,12],big1"), first_host("node1,node2"), first_host("node[3]-ib")
    ('gpu07', 'node1', 'node3-ib')
    """
    match = re.match(r"([^,\[\s]+)(?:\[([^\],-]+)[^\]]*\])?([^,\[\s]*)", nodes)
    return "".join(group or "" for group in match.groups()) if match else nodes


def _own_device(device: torch.device, local_rank: int, local_world: int) -> torch.device:
    if local_rank >= local_world:
        raise UsageError(
            "machines differ in their number of processes",
            got=f"process {local_rank + 1} of a machine",
            expected=f"{local_world} on every machine",
            hint="give --ntasks-per-node, not --ntasks",
        )
    if local_world == 1 or device.type == "cpu":
        return device
    if str(device) != "cuda":
        raise UsageError(
            "one device for several processes", got=device, expected="cuda or cpu", hint="give --device cuda"
        )
    if torch.cuda.device_count() < local_world:
        raise UsageError(
            "not enough devices",
            got=f"{local_world} processes",
            expected=f"at most {torch.cuda.device_count()}",
            hint="lower --num-devices (or --nproc-per-node)",
        )
    return torch.device("cuda", local_rank)


# --- starting the other processes ---


@contextmanager
def other_processes(launch: Launch, request: Mapping[str, Any]) -> Iterator[Launch]:
    """Start the other processes of a training where no launcher has; they end with the block.

    ``request`` are the arguments of ``train``. Yields the launch with the address where all processes connect.
    """
    if launch.world == 1 or launch.meeting:
        yield launch
        return
    port = _free_port()
    others = [_Other(rank, launch.world, port, request) for rank in range(1, launch.world)]
    over = threading.Event()
    watch = threading.Thread(target=_watch, args=(others, over), name="other processes", daemon=True)
    watch.start()
    try:
        yield replace(launch, meeting=f"tcp://{_HERE}:{port}")
        disconnect()
        for other in others:
            other.wait()
    except NtrmError:
        raise
    except RuntimeError as error:  # what torch raises where another process is gone
        reason = _failure(others, wait_s=5.0)
        if reason is None:
            raise
        raise reason from error
    finally:
        over.set()
        watch.join()
        disconnect()
        for other in others:
            other.end()


class _Other:
    """One of the other processes of a training."""

    def __init__(self, rank: int, world: int, port: int, request: Mapping[str, Any]) -> None:
        ranks = {"LOCAL_RANK": rank, "RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": _HERE, "MASTER_PORT": port}
        self.rank = rank
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process is ended
        self.process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            module_command("ntrm.training.train"),
            env={**module_environment(*MODEL, *NETWORK), **{key: str(value) for key, value in ranks.items()}},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C comes to the first process, which stops the others
        )
        if self.process.stdin is not None:
            with suppress(OSError):  # it has died already, which ``failure`` will report
                self.process.stdin.write(json.dumps(request, default=str).encode() + b"\n")
                self.process.stdin.flush()

    def failure(self) -> NtrmError | None:
        """What went wrong there, if it has ended and was neither finished nor interrupted."""
        code = self.process.poll()
        if code in (None, 0, INTERRUPTED):
            return None
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return NtrmError(
            f"process {self.rank} of the training has ended",
            got=f"{how}: {text}" if text else how,
            hint="the same command with --resume continues from the last checkpoint",
        )

    def wait(self) -> None:
        """Let it come to its end, which is near."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE_S)

    def end(self) -> None:
        """End it and all that it has started, whatever they do."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self._errors.close()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind((_HERE, 0))
        return int(one.getsockname()[1])


def _failure(others: Sequence[_Other], wait_s: float) -> NtrmError | None:
    """What went wrong in one of the other processes, if that shows within some time."""
    until = time.monotonic() + wait_s
    while True:
        reason = next(filter(None, (other.failure() for other in others)), None)
        if reason is not None or time.monotonic() > until:
            return reason
        time.sleep(0.05)


def _watch(others: Sequence[_Other], over: threading.Event) -> None:
    """End this process, too, if it does not notice that another one died: torch may wait for that one forever."""
    while not over.wait(0.5):
        reason = _failure(others, wait_s=0.0)
        if reason is not None and not over.wait(GRACE_S):
            sys.stderr.write(f"error: {reason}\n")
            sys.stderr.flush()
            os._exit(1)  # no exception reaches a thread that waits inside torch


# --- connected processes ---


@contextmanager
def connected(launch: Launch, say: Callable[[str], None]) -> Iterator[None]:
    """Connect the processes of a training, and share the cores of a machine among them."""
    if launch.world == 1:
        yield
        return
    threads = torch.get_num_threads()
    try:
        if "OMP_NUM_THREADS" not in os.environ:
            torch.set_num_threads(max(1, cores_given() // launch.local_world))
        if not dist.is_initialized():  # a launcher's processes connect once, for all trainings in them
            cuda = launch.device.type == "cuda"
            dist.init_process_group(
                "nccl" if cuda else "gloo",
                store=PrefixStore("training", _meet(launch, say)),
                rank=launch.rank,
                world_size=launch.world,
                device_id=launch.device if cuda else None,
            )
            atexit.register(disconnect)
        yield
    finally:
        torch.set_num_threads(threads)


def _meet(launch: Launch, say: Callable[[str], None]) -> Store:
    """Wait until all processes have come to where they meet."""
    met: Future[Store] = Future()

    def meet() -> None:
        try:
            limit = timedelta(seconds=MEETING_S)
            met.set_result(next(rendezvous(launch.meeting, launch.rank, launch.world, timeout=limit))[0])
        except Exception as error:  # noqa: BLE001 - raised again where it is waited for
            met.set_exception(error)

    # In a thread of its own: inside torch no signal is heard.
    threading.Thread(target=meet, name="meeting", daemon=True).start()
    if not wait([met], PATIENCE_S).done:
        say(f"waiting at {launch.meeting} for the other processes of this training, {launch.world} in all")
    try:
        return met.result()
    except dist.DistError as error:
        raise NtrmError(
            "the processes of this training do not find each other",
            got=str(error).splitlines()[0],
            expected=f"{launch.world} processes at {launch.meeting} within {MEETING_S / 60:g} minutes",
            hint="let srun or torchrun start all of them, or ask for one task; MASTER_ADDR and MASTER_PORT say where",
        ) from error


def disconnect() -> None:
    """Disconnect from the other processes, if there are any."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


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


def share_batch_norm(network: nn.Module, device: torch.device) -> None:
    """One batch norm over the joined batch, so that the result does not depend on how many GPUs share it."""
    if world_size() > 1 and device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]


def share_gradients(network: nn.Module, device: torch.device) -> nn.Module:
    """``network`` with gradients that are the mean over all processes; of a single process, itself."""
    if world_size() == 1:
        return network
    # Statistics of batch norm are averaged once a round, before they are used: not at every step.
    known = inspect.signature(DistributedDataParallel).parameters
    sync = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # by version of torch
    options: dict[str, Any] = {sync: False, "device_ids": [device.index] if device.type == "cuda" else None}
    return DistributedDataParallel(network, gradient_as_bucket_view=True, **options)
