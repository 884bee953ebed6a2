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
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ntrm.core.errors import NtrmError, RefusedError, UsageError, check_number
from ntrm.core.processes import terminated_like_interrupted
from ntrm.core.progress import Progress
from ntrm.core.threads import cores_given
from ntrm.results.manifest import Manifest
from ntrm.results.slide_state import remember_failure
from ntrm.segment.file_transfer import FileTransfer, Storage
from ntrm.segment.options import Options
from ntrm.segment.segmenter import Outcome, Segmenter
from ntrm.segment.slide import SlideTask

THREADS = 2  # Cores of a worker without a GPU: several slides at a time use cores better than threads in one slide
MOST_CORES = 8  # Of a worker on a GPU: its files keep no more of them busy
LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch for "the loopback interface alone", if it is 0; in spite of its name it works on Linux."""
LOOPBACK = "127.0.0.1"
START_S = 900  # How long to wait for the first worker: a cluster that grows on demand takes minutes to add a machine
LOCAL = {
    "_node_ip_address": LOOPBACK,
    "include_dashboard": False,
    "object_store_memory": 100 * 2**20,  # The smallest without complaint, since no pixels travel through it
}
"""How a cluster of our own is started."""


def divide_resources(
    machines: Sequence[Mapping[str, float]], device: str, workers: int | None
) -> tuple[int, str, int, float]:
    """Number of workers, their device, and the cores and GPUs that each reserves.

    That is a worker on each GPU, or several where more are asked for than there are; without GPUs one for two cores.
    ``machines`` are the resources of each. A worker on a GPU has its share of the cores beside it, for the files of a
    slide: as many as there are on the machine with the fewest, so that it can start on every one.

    >>> divide_resources([{"CPU": 32, "GPU": 4}, {"CPU": 16, "GPU": 4}, {"CPU": 64}], "auto", None)
    (8, 'cuda', 4, 1.0)
    """
    if workers is not None:
        check_number("number of workers", workers, 1, 100_000, whole=True)
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError("on a cluster no single device can be chosen", got=device, expected="auto, cpu or cuda")
    gpus, cpus = (int(sum(machine.get(kind, 0) for machine in machines)) for kind in ("GPU", "CPU"))
    if device == "cuda" and not gpus:
        raise UsageError("the cluster has no GPU", got="--device cuda", hint="use --device auto or cpu")
    if gpus and device != "cpu":
        count = workers or gpus
        # Equal fractions of a GPU: seven workers on four GPUs are two on each, not 1.75.
        on_each = math.ceil(count / gpus)
        beside = min(machine.get("CPU", 0) / machine["GPU"] for machine in machines if machine.get("GPU"))
        return count, "cuda", min(MOST_CORES, max(1, int(beside / on_each))), 1 / on_each
    count = workers or max(1, cpus // THREADS)
    return count, "cpu", min(THREADS, max(1, cpus // count)), 0.0


@dataclass(frozen=True)
class Orders:
    """What every worker must know before the first slide."""

    model: str
    out: Path
    options: Options
    device: str
    batch: int
    covariates: tuple[str, ...]
    storage: Storage | None = None  # Of slides and results at addresses


class SlideWorker:
    """Runs in an actor; Ray starts it anew where its process has died, and gives it the slide once more."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    @cached_property
    def _segmenter(self) -> Segmenter:
        orders, transfer = self._orders, FileTransfer(self._orders.storage)
        options: dict[str, Any] = {"device": orders.device, "batch": orders.batch, "transfer": transfer}
        segmenter = Segmenter(orders.model, orders.out, orders.options, **options)
        segmenter.check_folder(orders.covariates)
        return segmenter

    def ready(self) -> Manifest:
        """Load the network, and check that its results belong into the folder."""
        return self._segmenter.run

    def segment(self, task: SlideTask) -> Outcome:
        """Do what is missing of a slide."""
        return self._segmenter.segment(task)


def segment_on_ray(
    tasks: Sequence[SlideTask], orders: Orders, *, workers: int | None, progress: Progress
) -> tuple[list[Outcome], Manifest]:
    """Segment slides on the cluster; outcomes come in the order of ``tasks``."""
    ray = _import_ray()
    # Actors run in another folder, perhaps on another machine.
    tasks = [SlideTask(replace(task.slide, path=task.slide.path.absolute()), task.slide_id) for task in tasks]
    # Ray takes SIGTERM for itself when it starts, so that ours comes after it.
    with _connected(ray, workers), terminated_like_interrupted():
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        count, device, cpus, gpus = divide_resources(machines, orders.device, workers)
        limits = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": -1, "max_task_retries": 2}
        actor, orders = ray.remote(**limits)(SlideWorker), replace(orders, device=device)
        actors = [actor.remote(orders) for _ in range(min(count, len(tasks)))]
        try:
            run = _first_run(ray, actors[0])
            ended = progress.track(_outcomes(ray, actors, tasks, orders.out), len(tasks), "slides")
            outcomes = {outcome.slide_id: outcome for outcome in ended}
        finally:
            for each in actors:
                ray.kill(each)
    return [outcomes[task.slide_id] for task in tasks], run


def _first_run(ray: Any, actor: Any) -> Manifest:
    """The run of a worker once it is ready; raises what keeps it from starting."""
    try:
        run: Manifest = ray.get(actor.ready.remote(), timeout=START_S)
    except ray.exceptions.GetTimeoutError as error:
        raise RefusedError(
            "the cluster starts no worker",
            got=f"none within {START_S:.0f} s",
            expected="free GPUs, or free CPUs with --device cpu",
            hint="look with `ray status` whether others hold them, or use fewer --workers",
        ) from error
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, NtrmError):
            raise cause from None
        hint = "look into the logs of Ray on its machine"
        raise NtrmError("a worker did not start", got=type(cause).__name__, hint=hint) from error
    return run


def _outcomes(ray: Any, actors: Sequence[Any], tasks: Sequence[SlideTask], out: Path) -> Iterator[Outcome]:
    """Every slide once, in the order in which they end. A free worker gets the next one."""
    free, waiting, again = deque(actors), deque(tasks), set[str]()
    working: dict[Any, tuple[Any, SlideTask]] = {}
    while waiting or working:
        while waiting and free:
            worker, task = free.popleft(), waiting.popleft()
            working[worker.segment.remote(task)] = worker, task
        (job, *_), _ = ray.wait([*working])
        worker, task = working.pop(job)
        try:
            outcome: Outcome = ray.get(job)
        except ray.exceptions.RayTaskError as error:
            # A slide's errors are outcomes: this worker was started anew, and could not load the network again.
            waiting.appendleft(task)
            if not (free or working):
                raise NtrmError("no worker is left", got=error, hint="look into the logs of Ray") from error
            continue
        except ray.exceptions.RayError as error:
            reason = f"the worker process was lost; {type(error).__name__}"
            remember_failure(out / task.slide_id, task.slide_id, reason, task.slide.covariates)
            free.append(worker)
            yield Outcome(task.slide_id, "failed", reason, unexpected=True)
            continue
        free.append(worker)
        if outcome.unexpected:
            # A GPU after an illegal address answers nothing more.
            ray.kill(worker, no_restart=False)
        if (outcome.unexpected or outcome.status == "busy") and task.slide_id not in again:
            # Who works on a busy slide may be through later.
            again.add(task.slide_id)
            waiting.append(task)
        else:
            yield outcome


def _import_ray() -> Any:
    """Ray reads its settings from the environment when it is imported."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if not os.environ.get("RAY_ADDRESS"):
        # Whoever reaches a port of Ray can run programs as its user: other users of this machine reach the loopback
        # interface, too. A token in the environment leaves no file.
        own = {LOOPBACK_ONLY: "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        for name, value in own.items():
            os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError("--cluster ray needs an extra", got=error, hint='pip install "ntrm[cluster]"') from error


@contextmanager
def _connected(ray: Any, workers: int | None) -> Iterator[None]:
    """Join the cluster of RAY_ADDRESS or one that the caller has joined, else start and end one of our own."""
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": "error"}
    # Ray's logs go with the run: they may hold names of files. The path of a socket in it must be short.
    with TemporaryDirectory(prefix="ntrm-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        if address == "local":
            options |= {"_temp_dir": folder, "num_cpus": max(cores_given(), workers or 1), **LOCAL}
        try:
            _start(ray, options)
            yield
        finally:
            ray.shutdown()


def _start(ray: Any, options: Mapping[str, Any]) -> None:
    try:
        ray.init(**options)
    except Exception as error:  # of any kind: Ray raises plain exceptions, too
        raise RefusedError(
            "Ray did not start, or its cluster cannot be joined",
            got=f"{options['address']}: {str(error).strip().partition(os.linesep)[0]}",
            expected="a core to spare; or, with RAY_ADDRESS, host:port of `ray start --head`, the same versions of "
            "Python and Ray, and the same token",
            hint="try again later, or run without --cluster; docs/cluster.md says how clusters are started",
        ) from error
    listening = ", ".join(sorted({node["NodeManagerAddress"] for node in ray.nodes()}))
    if options["address"] == "local" and listening != LOOPBACK:
        hint = f"import ntrm before ray, or set {LOOPBACK_ONLY}=0 before"
        raise RefusedError("Ray would listen to the network", got=listening, expected=LOOPBACK, hint=hint)
