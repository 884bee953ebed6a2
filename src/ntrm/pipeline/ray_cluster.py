"""Slides on a Ray cluster: actors that hold the network, one for each GPU or as many as asked for.

Everything sent to an actor is plain data: paths, options, names. Results go to the shared folder by the same code as in
one process. With RAY_ADDRESS a running cluster is joined. Without, a cluster of this machine is started, reachable from
this machine alone and with a token of its own, and ended again.
"""

from __future__ import annotations

import importlib
import math
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ntrm.core.errors import NtrmError, RefusedError, UsageError, check_number
from ntrm.core.processes import terminated_like_interrupted
from ntrm.core.progress import Progress
from ntrm.core.threads import cores_given
from ntrm.pipeline.file_transfer import FileTransfer, Storage
from ntrm.pipeline.options import Options
from ntrm.pipeline.scheduler import Job, Scheduler, SlideTask, Worker, WorkerLostError
from ntrm.pipeline.segmenter import Outcome, Segmenter
from ntrm.results.run_record import Run

THREADS = 2
"""Cores of a worker without a GPU: several slides at a time use cores better than threads in one slide."""
MOST_CORES = 8
"""Of a worker on a GPU: its files keep no more of them busy."""
ADDRESS = "RAY_ADDRESS"
LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch for "the loopback interface alone", if it is 0; in spite of its name it works on Linux."""
REACH_S = 20.0
"""How long the head of a cluster may take to answer; Ray itself would try for minutes."""
CLIENT = "ray://"
"""Before the address of a Ray client's server."""
HERE = ("localhost", "127.0.0.1", "::1")
"""Hosts that Ray replaces by what it takes for the address of this machine."""
LOOPBACK = "127.0.0.1"
START_S = 900.0
"""How long to wait for the first worker: a cluster that grows on demand takes minutes to add a machine."""
TICK_S = 1.0
"""Between two looks at the clock and at signals while waiting."""
STARTS = 3
"""Attempts to start a cluster of this machine."""
STORE_BYTES = 100 * 2**20
"""Ray's object store; the smallest that it takes without complaint, since no pixels travel through it."""
LONGEST_FOLDER = 40
"""Characters: Ray adds about sixty, and the path of a socket may have 107."""
QUIET = {"log_to_driver": False, "logging_level": "error"}


@dataclass(frozen=True)
class WorkerResources:
    """Number of workers, and what each reserves."""

    workers: int
    device: str
    cpus: int
    gpus: float


def divide_resources(machines: Sequence[Mapping[str, float]], device: str, workers: int | None) -> WorkerResources:
    """A worker on each GPU, or several where more are asked for than there are; without GPUs one for two cores.

    ``machines`` are the resources of each. A worker on a GPU has its share of the cores beside it, for the files of a
    slide: as many as there are on the machine with the fewest, so that it can start on every one.

    >>> divide_resources([{"CPU": 32, "GPU": 4}, {"CPU": 16, "GPU": 4}, {"CPU": 64}], "auto", None)
    WorkerResources(workers=8, device='cuda', cpus=4, gpus=1.0)
    >>> divide_resources([{"CPU": 32, "GPU": 4}], "auto", 6).gpus
    0.5
    """
    if workers is not None:
        check_number("number of workers", workers, 1, 100_000, whole=True)
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(
            "on a cluster no single device can be chosen", got=device, expected="auto, cpu or cuda", hint="leave it out"
        )
    gpus, cpus = (int(sum(machine.get(kind, 0) for machine in machines)) for kind in ("GPU", "CPU"))
    if device == "cuda" and not gpus:
        raise UsageError("the cluster has no GPU", got="--device cuda", hint="use --device auto or cpu")
    if gpus and device != "cpu":
        count = workers or gpus
        # Equal fractions of a GPU: seven workers on four GPUs are two on each, not 1.75.
        on_each = math.ceil(count / gpus)
        beside = min(machine.get("CPU", 0) / machine["GPU"] for machine in machines if machine.get("GPU"))
        return WorkerResources(count, "cuda", min(MOST_CORES, max(1, int(beside / on_each))), 1 / on_each)
    count = workers or max(1, cpus // THREADS)
    return WorkerResources(count, "cpu", min(THREADS, max(1, cpus // count)), 0.0)


@contextmanager
def joined_cluster(ray: Any, address: str) -> Iterator[None]:
    """Be part of the cluster at ``address``."""
    _check_reachable(ray, address)
    try:
        _join(ray, address)
        yield
    finally:
        ray.shutdown()


def _join(ray: Any, address: str) -> None:
    try:
        ray.init(address=address, **QUIET)
    except Exception as error:
        # Ray raises plain exceptions, too; any other kind is a bug.
        if type(error) is not Exception and not isinstance(error, OSError | RuntimeError | ValueError):
            raise
        raise RefusedError(
            f"the cluster of {ADDRESS} cannot be joined",
            got=f"{address}: {str(error).strip().partition(os.linesep)[0]}",
            expected="host:port of `ray start --head`, the same versions of Python and Ray, and the same token",
            hint="look with `ray status` whether it runs; see docs/cluster.md for tokens",
        ) from error


def _check_reachable(ray: Any, address: str) -> None:
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdigit():
        return  # "auto" and the like: Ray's own words
    error = _refusal(host, int(port))
    if error is not None:
        raise RefusedError(
            f"no cluster answers at {ADDRESS}", got=f"{address}: {error}", hint="start it with `ray start --head`"
        )
    taken = host if address.startswith(CLIENT) or host not in HERE else str(ray.util.get_node_ip_address())
    if taken != host and (error := _refusal(taken, int(port))) is not None:
        raise RefusedError(
            f"Ray uses {taken} instead of {host}, and no cluster answers there",
            got=f"{taken}:{port}: {error}",
            expected=f"a cluster that listens at {taken}, or the setting that keeps Ray on the loopback interface",
            hint=f"set {LOOPBACK_ONLY}=0 here as where the cluster was started",
        )


def _refusal(host: str, port: int) -> OSError | None:
    """Why nobody answers there."""
    try:
        socket.create_connection((host, port), timeout=REACH_S).close()
    except OSError as error:
        return error
    return None


@dataclass(frozen=True)
class Orders:
    """What every worker must know before the first slide."""

    model: str
    out: Path
    options: Options
    device: str
    batch: int
    covariates: tuple[str, ...]
    storage: Storage | None = None
    """Of slides and results at addresses."""


class SlideWorker:
    """Runs in an actor."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._segmenter: Segmenter | None = None

    def ready(self) -> Run:
        """Load the network, and check that its results belong into the folder."""
        orders = self._orders
        transfer = FileTransfer(orders.storage)
        self._segmenter = Segmenter(
            orders.model, orders.out, orders.options, device=orders.device, batch=orders.batch, transfer=transfer
        )
        self._segmenter.claim(orders.covariates)
        return self._segmenter.run

    def segment(self, task: SlideTask, patience_s: float) -> Outcome:
        """Do what is missing of a slide; one that seems locked is tried again until ``patience_s`` are over."""
        if self._segmenter is None:
            self.ready()
            return self.segment(task, patience_s)
        until = time.monotonic() + patience_s
        while True:
            outcome = self._segmenter.segment(task.slide, task.slide_id)
            if outcome.status != "busy" or time.monotonic() >= until:
                return outcome
            time.sleep(TICK_S)


class RayPool:
    """Actors of one run; ends with all of them."""

    def __init__(self, ray: Any, orders: Orders, resources: WorkerResources) -> None:
        self._ray = ray
        self._orders = orders
        # Ray must not restart or repeat anything itself: the scheduler counts the attempts.
        limits = {"num_cpus": resources.cpus, "num_gpus": resources.gpus, "max_restarts": 0, "max_task_retries": 0}
        self._actor = ray.remote(**limits)(SlideWorker)
        self._actors: set[Any] = set()
        self._ready_once = False
        self._asked = time.monotonic()

    def start(self) -> tuple[Worker, Job]:
        """Ask for one more worker; the job ends with its ``Run`` when it is ready."""
        actor = self._actor.remote(self._orders)
        self._actors.add(actor)
        return actor, actor.ready.remote()

    def submit(self, worker: Worker, task: SlideTask, patience_s: float) -> Job:
        """Give a slide to a worker; the job ends with its ``Outcome``."""
        return worker.segment.remote(task, patience_s)

    def wait(self, jobs: Collection[Job]) -> Job:
        """The first of ``jobs`` that has ended; refuses to wait for ever for a first worker."""
        while True:
            ended: list[Job] = self._ray.wait([*jobs], num_returns=1, timeout=TICK_S)[0]
            if ended:
                return ended[0]
            if not self._ready_once and time.monotonic() - self._asked > START_S:
                raise RefusedError(
                    "the cluster starts no worker",
                    got=f"none within {START_S:.0f} s",
                    expected="free GPUs, or free CPUs with --device cpu",
                    hint="look with `ray status` whether others hold them, or use fewer --workers",
                )

    def result(self, job: Job) -> Run | Outcome:
        """What the job ended with; raises ``WorkerLostError``, or the error that kept a worker from starting."""
        try:
            answer: Run | Outcome = self._ray.get(job)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, NtrmError):
                raise error.cause from None
            cause = type(error.cause).__name__
            raise WorkerLostError(
                f"a worker failed: {cause}", hint="look into the logs of Ray on its machine"
            ) from error
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(
                "the worker process was lost", got=type(error).__name__, hint="it was killed, or its memory was full"
            ) from error
        self._ready_once = True
        return answer

    def discard(self, worker: Worker) -> None:
        """End a worker that is dead or no longer trusted."""
        self._actors.discard(worker)
        self._ray.kill(worker, no_restart=True)

    def close(self) -> None:
        """End every actor; what one was doing loses a band at most."""
        for actor in [*self._actors]:
            self.discard(actor)


def segment_on_ray(
    tasks: Sequence[SlideTask], orders: Orders, *, workers: int | None, progress: Progress
) -> tuple[list[Outcome], Run]:
    """Segment slides on the cluster; outcomes come in the order of ``tasks``."""
    ray = _import_ray()
    orders = replace(orders, out=orders.out.absolute())
    # Actors run in another folder, perhaps on another machine.
    tasks = [replace(task, slide=replace(task.slide, path=task.slide.path.absolute())) for task in tasks]
    # Ray takes SIGTERM for itself when it starts, so that ours comes after it.
    with _connected(ray, workers), terminated_like_interrupted():
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        resources = divide_resources(machines, orders.device, workers)
        pool = RayPool(ray, replace(orders, device=resources.device), resources)
        scheduler = Scheduler(pool, resources.workers, orders.out)
        try:
            ended = progress.track(scheduler.run(tasks), len(tasks), "slides")
            outcomes = {outcome.slide_id: outcome for outcome in ended}
        finally:
            pool.close()
    if scheduler.made_with is None:
        raise WorkerLostError("no worker was ever ready")
    return [outcomes[task.slide_id] for task in tasks], scheduler.made_with


def _import_ray() -> Any:
    """Ray reads its settings from the environment when it is imported."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # Joining: one attempt, of about 40 s, and not twenty of them.
    settings = {"RAY_gcs_server_port_wait_time_s": "1"} if os.environ.get(ADDRESS) else _own_settings()
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError("--cluster ray needs an extra", got=error, hint='pip install "ntrm[cluster]"') from error


def _own_settings() -> dict[str, str]:
    """For a cluster that we start ourselves: whoever reaches a port of Ray can run programs as its user."""
    return {
        LOOPBACK_ONLY: "0",
        # Other users of this machine reach the loopback interface, too. A token in the environment leaves no file.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }


@contextmanager
def _connected(ray: Any, workers: int | None) -> Iterator[None]:
    """Join the cluster of RAY_ADDRESS or one that the caller has joined, else start and end one of our own."""
    if ray.is_initialized():
        yield
    elif address := os.environ.get(ADDRESS):
        with joined_cluster(ray, address):
            yield
    else:
        with _own_cluster(ray, workers):
            yield


@contextmanager
def _own_cluster(ray: Any, workers: int | None) -> Iterator[None]:
    cores = max(cores_given(), workers or 1)
    own = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": STORE_BYTES, **QUIET}
    # Ray's logs go with the run: they may hold names of files.
    folder = _short_folder()
    try:
        _start(ray, folder, own)
        _check_loopback(ray)
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def _start(ray: Any, folder: Path, options: dict[str, Any]) -> None:
    """Ray gives its own processes half a minute to start, which a busy machine may exceed."""
    for left in reversed(range(STARTS)):
        try:
            ray.init(address="local", _node_ip_address=LOOPBACK, _temp_dir=str(folder), **options)
            return
        except Exception as error:
            ray.shutdown()
            if type(error) is not Exception and not isinstance(error, RuntimeError | ConnectionError):
                raise
            if not left:
                raise RefusedError(
                    "Ray did not start",
                    got=f"{STARTS} attempts; {type(error).__name__}",
                    expected="a machine with a core to spare",
                    hint="try again later, or run without --cluster",
                ) from error


def _check_loopback(ray: Any) -> None:
    addresses = {node["NodeManagerAddress"] for node in ray.nodes()}
    if addresses != {LOOPBACK}:
        raise RefusedError(
            "Ray would listen to the network",
            got=", ".join(sorted(addresses)),
            expected=LOOPBACK,
            hint=f"import ntrm before ray, or set {LOOPBACK_ONLY}=0 before",
        )


def _short_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ntrm-"))
    if len(str(folder)) <= LONGEST_FOLDER:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="ntrm-", dir="/tmp"))
