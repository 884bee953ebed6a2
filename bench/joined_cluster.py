"""A Ray cluster that is there already: the command joins it, a worker is killed, addresses are wrong.

    python bench/joined_cluster.py [--slides 4] [--side 1200] [--workers 2]

Starts the head of a cluster on the loopback interface, with a token and without a dashboard, segments drawn slides in
one process and through ``RAY_ADDRESS``, and kills a worker inside a slide. Tells whether the files are the same bytes,
where the cluster listens, and how soon a wrong address is an error. About three minutes on two busy cores; everything
that was started is ended, by its own mark in the environment.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parent)]

from many_workers import drawn_sections, write_slides
from ntrm.results.paths import DONE, HIDDEN

LOOPBACK = "127.0.0.1"
BUNDLED_MPP = 6.7
LIMIT_S = 300
MARK = "NTRM_BENCH_MARK"


def marked(mark: str) -> list[int]:
    """Processes that bear the mark: those that we started, and what they started."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                if f"{MARK}={mark}".encode() in (place / "environ").read_bytes().split(b"\0"):
                    found.append(int(place.name))
    return found


@contextmanager
def cluster(folder: Path, environment: dict[str, str]) -> Iterator[int]:
    """The head of a cluster; gives its port."""
    with socket.create_server((LOOPBACK, 0)) as free:
        port = free.getsockname()[1]
    words = ["start", "--head", "--block", "--node-ip-address", LOOPBACK, "--port", str(port), "--num-cpus", "2"]
    quiet = ["--include-dashboard", "false", "--disable-usage-stats", "--temp-dir", str(folder / "ray")]
    with (folder / "head.log").open("w") as log:
        subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *words, *quiet], env=environment, stdout=log, stderr=log
        )
    try:
        until(lambda: "Ray runtime started" in (folder / "head.log").read_text())
        yield port
    finally:
        for kind in (signal.SIGTERM, signal.SIGKILL):
            for pid in marked(environment[MARK]):
                with suppress(ProcessLookupError):
                    os.kill(pid, kind)
            time.sleep(5)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("it never came to that")
        time.sleep(0.01)


def command(slides: Path, out: Path, *more: str) -> list[str]:
    head = [sys.executable, "-m", "ntrm", "segment", str(slides), "--out", str(out), "--device", "cpu"]
    return [*head, "--progress", "none", "--quiet", *more]


def kill_a_worker(out: Path, mark: str) -> str:
    """The first that is at work on a slide."""
    found: list[tuple[str, int]] = []

    def at_work() -> bool:
        for lock in out.glob(f"*/{HIDDEN}/lock"):
            if not (lock.parent / DONE).exists():
                found.extend((f"at {lock.parents[1].name}", pid) for pid in marked(mark) if holds(pid, lock))
        return bool(found)

    until(at_work)
    os.kill(found[0][1], signal.SIGKILL)
    return found[0][0]


def holds(pid: int, lock: Path) -> bool:
    with suppress(OSError):
        return any(handle.readlink() == lock for handle in Path(f"/proc/{pid}/fd").iterdir())
    return False


def prints(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and "lock" not in path.name)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def listening(mark: str) -> set[str]:
    """Addresses at which the cluster listens."""
    rows = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=False).stdout.splitlines()
    ours = [row.split()[3].rpartition(":")[0] for row in rows if any(f"pid={pid}," in row for pid in marked(mark))]
    return {address.strip("[]").removeprefix("::ffff:") for address in ours}


def wrong(name: str, slides: Path, folder: Path, environment: dict[str, str]) -> None:
    begun = time.monotonic()
    ended = subprocess.run(
        command(slides, folder / f"wrong {name}", "--cluster", "ray"),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    said = next((line for line in ended.stderr.splitlines() if line.startswith("error")), ended.stderr[-200:])
    print(f"| {name} | exit code {ended.returncode} after {time.monotonic() - begun:.0f} s: {said} |", flush=True)


def study(asked: argparse.Namespace, folder: Path) -> None:
    sections = drawn_sections(folder / "skin", 7)
    (folder / "in").mkdir()
    write_slides(folder / "in", sections, asked.side, asked.slides, BUNDLED_MPP)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    plain = {**clean, "OMP_NUM_THREADS": "1", MARK: secrets.token_hex(8)}
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    settings = {**plain, **secret, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    subprocess.run(
        command(folder / "in", folder / "single"), env=plain, check=True, capture_output=True, timeout=LIMIT_S
    )
    print("| | |\n|---|---|")
    with cluster(folder, settings) as port:
        address = {"RAY_ADDRESS": f"{LOOPBACK}:{port}"}
        words = command(folder / "in", folder / "joined", "--cluster", "ray", "--workers", str(asked.workers))
        running = subprocess.Popen(words, env={**settings, **address}, stdout=subprocess.DEVNULL)
        killed = kill_a_worker(folder / "joined", settings[MARK])
        print(f"| a worker killed | {killed} |\n| listens at | {', '.join(sorted(listening(settings[MARK])))} |")
        code = running.wait(timeout=LIMIT_S)
        single, joined = prints(folder / "single"), prints(folder / "joined")
        print(f"| joined | exit code {code}, {len(single)} files, the same bytes: {single == joined} |", flush=True)
        wrong("a token of another cluster", folder / "in", folder, {**settings, **address, "RAY_AUTH_TOKEN": "0" * 64})
        del settings["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]
        wrong("without the loopback setting", folder / "in", folder, {**settings, **address})
    wrong("nobody there", folder / "in", folder, {**settings, **address})
    wrong("no address", folder / "in", folder, {**settings, "RAY_ADDRESS": "garbage"})
    with socket.create_server((LOOPBACK, 0)) as other:
        deaf = {"RAY_ADDRESS": f"{LOOPBACK}:{other.getsockname()[1]}", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        wrong("not Ray", folder / "in", folder, {**settings, **deaf})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slides", type=int, default=4)
    parser.add_argument("--side", type=int, default=1200)
    parser.add_argument("--workers", type=int, default=2)
    # Sockets of Ray have long names.
    with tempfile.TemporaryDirectory(prefix="n", ignore_cleanup_errors=True) as place:
        study(parser.parse_args(), Path(place))


if __name__ == "__main__":
    main()
