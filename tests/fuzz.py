"""Property tests with seeds drawn anew until the time is up: what `make fuzz` runs.

    python -m tests.fuzz --seconds 600

A property test is one with random inputs: it asks for ``seed`` or ``random``, or hypothesis draws for it. Each process
goes through their files in an order of its own, again and again. A test that takes a moment is drawn many times in
each round, one that takes long only in some rounds. A failure is told with its seed, and the others go on.
"""

import argparse
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

SHARE = 1.0
"""Seconds for each test in a round."""
MOST = 50
"""Draws of one test in a round."""
ENOUGH = 3
"""A test that failed so often is not drawn any more."""
GRACE = 300
"""Seconds after the end in which a test that had begun may finish."""


def is_property(item: pytest.Item) -> bool:
    """Whether a test has random inputs."""
    import hypothesis  # pytest has to come first

    if not isinstance(item, pytest.Function) or (hasattr(item, "callspec") and item.callspec.params.get("seed")):
        return False
    return bool({"seed", "random"} & set(item.fixturenames)) or hypothesis.is_hypothesis_test(item.obj)


class Rounds:
    """Runs the property tests of a session in rounds, in place of each test once."""

    def __init__(self, seconds: float, log: Path) -> None:
        self.seconds, self.until = seconds, 0.0
        self.draw = random.SystemRandom()
        self.log = log
        self.took: dict[str, float] = {}
        self.failed: Counter[str] = Counter()
        self.reports: list[pytest.TestReport] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Rounds over all files until the time is up, which begins when everything is imported."""
        self.until = time.monotonic() + self.seconds
        files = defaultdict(list)
        for item in filter(is_property, session.items):
            files[item.path].append(item)
        while files and time.monotonic() < self.until:
            for path in self.draw.sample(sorted(files), len(files)):
                for item in files[path]:
                    self.some(item, session)
                session._setupstate.teardown_exact(session)  # what the tests of a file share
        return True

    def some(self, item: pytest.Item, session: pytest.Session) -> None:
        """Draw one test as often as its share of the round allows."""
        node, begun = item.nodeid, time.monotonic()
        if self.draw.random() * self.took.get(node, 0) > SHARE:
            return
        for _ in range(MOST):
            now = time.monotonic()
            if now > self.until or self.failed[node] >= ENOUGH:
                return
            self.once(item, session)
            self.took[node] = min(time.monotonic() - now, self.took.get(node, math.inf))
            if time.monotonic() - begun + self.took[node] / 2 > SHARE:
                return

    def once(self, item: pytest.Item, session: pytest.Session) -> None:
        """Draw one test once."""
        seed = self.draw.randrange(2**31)
        os.environ["NTRM_TEST_SEED"] = str(seed)
        self.write(node=item.nodeid, seed=seed)
        # By way of the hook, around which pytest minds warnings; what follows is the file's next test.
        item.ihook.pytest_runtest_protocol(item=item, nextitem=item.parent)
        for report in filter(lambda each: each.failed, self.reports):
            self.failed[item.nodeid] += 1
            session.testsfailed += 1
            self.write(node=item.nodeid, seed=seed, failed=report.longreprtext)
            text = [f"\n{'_' * 30} {item.nodeid}", *(f"{name}\n{body}" for name, body in report.sections)]
            tell("\n".join([*text, report.longreprtext, again(item.nodeid, seed)]), session.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Keep the reports instead of showing them."""
        self.reports = runtestprotocol(item, log=False, nextitem=nextitem)
        return True

    def write(self, **entry: Any) -> None:
        """One line of what happens, for the process that sums up."""
        with self.log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry) + "\n")


def again(node: str, seed: int) -> str:
    """How a failure is seen again."""
    return f"to see this again: NTRM_TEST_SEED={seed} pytest '{node}'"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def tell(text: str, config: pytest.Config) -> None:
    """Write past the capture of the tests' output."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    reporter.write_line(text)
    reporter.flush()


def work(seconds: float, log: Path, paths: list[str]) -> int:
    """One process: import everything once, then go on until the time is up. 0, failures or not, if it came so far."""
    plain = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "tmp_path_retention_policy=failed"]
    code = pytest.main([*plain, "--basetemp", str(log.with_suffix("")), *paths], plugins=[Rounds(seconds, log)])
    return 0 if code == pytest.ExitCode.TESTS_FAILED else code


def entries(log: Path) -> list[dict[str, Any]]:
    """What one process has written."""
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # one that was killed may leave half a line


def ended(child: subprocess.Popen[bytes], log: Path, seconds: float) -> list[dict[str, Any]]:
    """What one process has written by its end, which is a failure of its last test if it came too soon or too late."""
    try:
        complaint = f"the process ended with {child.wait(seconds)}"
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        complaint = f"no end after {GRACE} s"
    found = entries(log)
    if child.returncode:
        found.append({"node": "before the first test", "seed": 0, **(found[-1] if found else {}), "failed": complaint})
        say(f"{found[-1]['node']}: {complaint}")
    return found


def summary(found: list[dict[str, Any]]) -> int:
    """Tell how many draws there were, and how to see every failure again; 1 if there is one."""
    draws = Counter(entry["node"] for entry in found if "failed" not in entry)
    failures = [entry for entry in found if "failed" in entry]
    for entry in failures:
        say(again(entry["node"], entry["seed"]))
    say(f"{draws.total():,} draws of {len(draws):,} tests, {len(failures)} failures")
    return int(bool(failures) or not draws)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workers", default="auto", help="processes; auto: one for each core")
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", default=["tests"], help="tests to draw from")
    args = parser.parse_args()
    if args.log:
        return work(args.seconds, args.log, args.paths)
    workers = os.cpu_count() or 1 if args.workers == "auto" else int(args.workers)
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", str(args.seconds), *args.paths]
    with tempfile.TemporaryDirectory(prefix="ntrm-fuzz-") as scratch:
        logs = [Path(scratch) / f"{number}.jsonl" for number in range(workers)]
        children = [subprocess.Popen([*command, "--log", str(log)]) for log in logs]
        latest = time.monotonic() + args.seconds + GRACE
        try:
            waited = [ended(child, log, latest - time.monotonic()) for child, log in zip(children, logs, strict=True)]
        except KeyboardInterrupt:
            waited = [entries(log) for log in logs]
        finally:
            for child in children:
                child.kill()
                child.wait()
        return summary(list(itertools.chain.from_iterable(waited)))


if __name__ == "__main__":
    sys.exit(main())
