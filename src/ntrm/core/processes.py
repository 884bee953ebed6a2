"""Child processes: how they are started, which environment variables they get, how they end.

A child gets only the variables it needs, by name, so that secrets of others (``NTRM_TOKEN``, cloud keys) never reach
what decodes files from anywhere. Trainings of ``ntrm reproduce``, ``multiprocessing`` and Ray's workers have all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from multiprocessing import get_context, parent_process
from pathlib import Path
from types import FrameType

from ntrm.core.errors import DataError, UsageError
from ntrm.core.io import APPEND
from ntrm.core.threads import Item, Result, in_order


def parallel_map(work: Callable[[Item], Result], items: Iterable[Item], jobs: int = 1) -> Generator[Result, None, None]:
    """Results of ``work`` in the order of ``items``, whatever ``jobs`` is, while items are still being made.

    ``work`` and the items must be picklable, at most twice ``jobs`` items wait, and a script that asks for several jobs
    needs the usual ``if __name__ == "__main__"``. An error or an interrupt drops what has not begun; none outlives this
    process.

    >>> list(parallel_map(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    if jobs < 1:
        raise UsageError("wrong number of jobs", got=jobs, expected="1 or more")
    if jobs == 1 or (isinstance(items, Sequence) and len(items) < 2):
        yield from map(work, items)
        return
    # Fresh processes rather than forks: a fork of a process with threads (torch has some) may hang.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=begin_worker)
    try:
        yield from in_order(pool, work, items, 2 * jobs)
    except (BrokenProcessPool, BrokenPipeError) as error:
        # The pipe breaks if a process dies before it gets its first task; a command would end without a message.
        hint = "the memory may not suffice for so many: lower --jobs"
        raise DataError("a worker process was killed", got=error, hint=hint) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def begin_worker() -> None:
    """Leave interrupts to the parent, and end with it, however that ends; files are written whole or not at all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


BASE = (
    *("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "TMPDIR", "LANG", "LANGUAGE", "LC_*", "TZ"),
    *("PYTHONHOME", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONUTF8", "PYTHONWARNINGS"),
)
HOME = ("HOME", "USER", "LOGNAME", "XDG_*")
MODEL = (
    *(*HOME, "NTRM_CACHE", "NTRM_WEIGHTS", "OMP_*", "MKL_*", "OPENBLAS_*", "KMP_*", "GOMP_*", "MALLOC_*"),
    *("CUDA_*", "NVIDIA_*", "CUBLAS_*", "CUDNN_*", "HIP_*", "HSA_*", "ROCR_*", "TORCH*", "PYTORCH_*", "TRITON_*"),
    # the hub, and the way to it; its token is for whoever loads a model and for nobody else
    *("HF_*", "HUGGINGFACE_*", "*_proxy", "*_PROXY", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
)
"""What a process that loads a model needs in addition."""


def child_environment(*wanted: str) -> dict[str, str]:
    """Variables of ``BASE`` and those that ``wanted`` names (``*`` at either end stands for anything)."""
    patterns = (*BASE, *wanted)
    return {key: value for key, value in os.environ.items() if any(fnmatchcase(key, pattern) for pattern in patterns)}


def module_environment(*wanted: str) -> dict[str, str]:
    """``child_environment`` for a module of ours, with this process's import path.

    The working folder is not part of it: a hostile dataset may bring its own modules.
    """
    return {**child_environment(*wanted), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def module_command(module: str, *arguments: object) -> list[str]:
    """The command that runs a module of ours."""
    return [sys.executable, "-P", "-m", module, *(str(argument) for argument in arguments)]


def start_module(module: str, told: bytes, log: Path, *wanted: str) -> subprocess.Popen[bytes]:
    """Start one of our modules as a child process, ``told`` a line on stdin; its stderr is appended to ``log``.

    It gets the variables ``wanted``, and no Ctrl-C: whoever started it ends it in order.
    """
    with os.fdopen(os.open(log, APPEND, 0o600), "ab") as stream:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            module_command(module),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            env=module_environment(*wanted),
            start_new_session=True,
        )
    with suppress(OSError):  # one that has died is noticed by whoever waits for it
        if process.stdin is not None:
            process.stdin.write(told + b"\n")
            process.stdin.flush()
    return process


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close a child's input and output on our side."""
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


def limit_memory(more: int) -> None:
    """Limit the memory that this process may reserve from now on, and forbid core files (they would hold pixels).

    Nothing happens on Windows, which has no such limits; without /proc it is unknown what the process has reserved.
    """
    try:
        import resource
    except ModuleNotFoundError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(FileNotFoundError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        before = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = pages * resource.getpagesize() + more
        limit = limit if before == resource.RLIM_INFINITY else min(limit, before)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt inside the block, so that the same command can continue later.

    Only the main thread can do so; in others nothing changes. Nor does it in a child of ``multiprocessing``: its parent
    ends it with SIGTERM, also where it hangs in a library and would never come to raise anything.
    """
    if threading.current_thread() is not threading.main_thread() or parent_process() is not None:
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        # None: the previous handler was not Python's, and cannot be set from here.
        if before is not None:
            signal.signal(signal.SIGTERM, before)
