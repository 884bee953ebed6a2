"""Slides on a Ray cluster: actors that hold the network, one for each GPU or as many as asked for.

Everything sent to an actor is plain data: paths, options, names. Results go to the shared folder by the same code as
in one process. Without RAY_ADDRESS a cluster of this machine alone is started, reachable from this machine alone and
with a token of its own, and ended again.
"""

from __future__ import annotations

import importlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ntrm.errors import NtrmError, RefusedError, UsageError
from ntrm.progress import Progress
from ntrm.segmentation.identity import Identity, Options
from ntrm.segmentation.joining import ADDRESS, LOOPBACK_ONLY, join_settings, joined
from ntrm.segmentation.segmenter import Outcome, Segmenter
from ntrm.segmentation.shares import Share, share_out
from ntrm.segmentation.spreading import Job, Spreading, Task, Worker, WorkerLostError
from ntrm.stopping import terminated_like_interrupted

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


@dataclass(frozen=True)
class Orders:
    """What every worker needs to know before the first slide."""

    model: str
    out: Path
    options: Options
    device: str
    batch: int
    covariates: tuple[str, ...]


class SlideWorker:
    """What an actor does."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._segmenter: Segmenter | None = None

    def ready(self) -> Identity:
        """Load the network, and see that its results belong into the folder."""
        orders = self._orders
        self._segmenter = Segmenter(orders.model, orders.out, orders.options, device=orders.device, batch=orders.batch)
        self._segmenter.claim(orders.covariates)
        return self._segmenter.identity

    def segment(self, task: Task, patience_s: float) -> Outcome:
        """Do what is missing of a slide; one that seems held is asked for again until ``patience_s`` are over."""
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

    def __init__(self, ray: Any, orders: Orders, share: Share) -> None:
        self._ray = ray
        self._orders = orders
        # Ray must not restart or repeat anything behind our back: the slide's bands and attempts are counted here.
        limits = {"num_cpus": share.cpus, "num_gpus": share.gpus, "max_restarts": 0, "max_task_retries": 0}
        self._actor = ray.remote(**limits)(SlideWorker)
        self._actors: set[Any] = set()
        self._ready_once = False
        self._asked = time.monotonic()

    def start(self) -> tuple[Worker, Job]:
        """As ``Pool.start``."""
        actor = self._actor.remote(self._orders)
        self._actors.add(actor)
        return actor, actor.ready.remote()

    def submit(self, worker: Worker, task: Task, patience_s: float) -> Job:
        """As ``Pool.submit``."""
        job: Job = worker.segment.remote(task, patience_s)  # type: ignore[attr-defined]
        return job

    def wait(self, jobs: Collection[Job]) -> Job:
        """As ``Pool.wait``; refuses to wait for ever for a first worker."""
        while True:
            ended: list[Job] = self._ray.wait([*jobs], num_returns=1, timeout=TICK_S)[0]
            if ended:
                return ended[0]
            if not self._ready_once and time.monotonic() - self._asked > START_S:
                raise RefusedError(
                    "the cluster starts no worker",
                    got=f"none within {START_S:.0f} s",
                    expected="free GPUs, or free CPUs with --device cpu",
                    mend="look with `ray status` whether others hold them, or take fewer --workers",
                )

    def result(self, job: Job) -> Identity | Outcome:
        """As ``Pool.result``."""
        try:
            answer: Identity | Outcome = self._ray.get(job)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, NtrmError):
                raise error.cause from None
            cause = type(error.cause).__name__
            raise WorkerLostError(
                f"a worker failed: {cause}", mend="look into the logs of Ray on its machine"
            ) from error
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(
                "the worker process was lost", got=type(error).__name__, mend="it was killed, or its memory was full"
            ) from error
        self._ready_once = True
        return answer

    def discard(self, worker: Worker) -> None:
        """As ``Pool.discard``."""
        self._actors.discard(worker)
        self._ray.kill(worker, no_restart=True)

    def close(self) -> None:
        """End every actor; what one was doing loses a band at most."""
        for actor in [*self._actors]:
            self.discard(actor)


def segment_on_ray(
    tasks: Sequence[Task], orders: Orders, *, workers: int | None, progress: Progress
) -> tuple[list[Outcome], Identity]:
    """Segment slides on the cluster; outcomes come in the order of ``tasks``."""
    ray = _import_ray()
    orders = replace(orders, out=orders.out.absolute())
    # Actors run in another folder, perhaps on another machine.
    tasks = [replace(task, slide=replace(task.slide, path=task.slide.path.absolute())) for task in tasks]
    # Ray takes SIGTERM for itself when it starts, so that ours comes after it.
    with _connected(ray, workers), terminated_like_interrupted():
        share = share_out(ray.cluster_resources(), orders.device, workers)
        pool = RayPool(ray, replace(orders, device=share.device), share)
        spreading = Spreading(pool, share.workers, orders.out)
        try:
            ended = {each.slide_id: each for each in progress.track(spreading.run(tasks), len(tasks), "slides")}
        finally:
            pool.close()
    if spreading.identity is None:
        raise WorkerLostError("no worker was ever ready")
    return [ended[task.slide_id] for task in tasks], spreading.identity


def _import_ray() -> Any:
    """Ray reads its settings when it is imported, so that they stand in the environment before."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for name, value in (join_settings() if os.environ.get(ADDRESS) else _own_settings()).items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError("--cluster ray needs an extra", got=error, mend='pip install "ntrm[cluster]"') from error


def _own_settings() -> dict[str, str]:
    """For a cluster that we start ourselves: whoever reaches a port of Ray can run programs as its user."""
    return {
        LOOPBACK_ONLY: "0",
        # Other users of this machine reach the loopback interface, too. A token that stands in the environment
        # alone leaves no file behind.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }


@contextmanager
def _connected(ray: Any, workers: int | None) -> Iterator[None]:
    """Join the cluster of RAY_ADDRESS or one that the caller has joined, else start and end one of our own."""
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if ray.is_initialized():
        yield
    elif address := os.environ.get(ADDRESS):
        with joined(ray, address, quiet):
            yield
    else:
        with _own_cluster(ray, workers, quiet):
            yield


@contextmanager
def _own_cluster(ray: Any, workers: int | None, quiet: dict[str, Any]) -> Iterator[None]:
    cores = max(len(os.sched_getaffinity(0)), workers or 1)
    own = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": STORE_BYTES, **quiet}
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
                    mend="try again later, or run without --cluster",
                ) from error


def _check_loopback(ray: Any) -> None:
    addresses = {node["NodeManagerAddress"] for node in ray.nodes()}
    if addresses != {LOOPBACK}:
        raise RefusedError(
            "Ray would listen to the network",
            got=", ".join(sorted(addresses)),
            expected=LOOPBACK,
            mend=f"import ntrm before ray, or set {LOOPBACK_ONLY}=0 before",
        )


def _short_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ntrm-"))
    if len(str(folder)) <= LONGEST_FOLDER:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="ntrm-", dir="/tmp"))
