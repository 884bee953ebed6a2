"""Property tests with seeds drawn anew until the time is up: what `make fuzz` runs.

    python -m tests.fuzz --seconds 600

A property test is one with random inputs: it asks for ``seed`` or ``random``, or hypothesis draws for it. Each process
goes through their files in an order of its own, again and again; in each round a quick test is drawn many times. A
failure is told with its seed, and the others go on.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections import defaultdict

import pytest
from _pytest.runner import runtestprotocol

SHARE, MOST = 1.0, 50  # Seconds for each test in a round, and draws
GRACE = 300  # Seconds after the end in which a test that had begun may finish


def is_property(item: pytest.Item) -> bool:
    """Whether a test has random inputs."""
    import hypothesis  # pytest has to come first

    if not isinstance(item, pytest.Function) or (hasattr(item, "callspec") and item.callspec.params.get("seed")):
        return False
    return bool({"seed", "random"} & set(item.fixturenames)) or hypothesis.is_hypothesis_test(item.obj)


class Rounds:
    """Runs the property tests of a session in rounds, in place of each test once."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.draws = seconds, 0
        self.reports: list[pytest.TestReport] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Rounds over all files until the time is up, which begins when everything is imported."""
        until, draw = time.monotonic() + self.seconds, random.SystemRandom()
        files = defaultdict(list)
        for item in filter(is_property, session.items):
            files[item.path].append(item)
        while any(files.values()) and time.monotonic() < until:
            for path in draw.sample(sorted(files), len(files)):
                for item in [*files[path]]:
                    begun = time.monotonic()
                    for _ in range(MOST):
                        if not self.passes(item, draw.randrange(2**31), session):
                            files[path].remove(item)
                            break
                        if time.monotonic() > min(begun + SHARE, until):
                            break
                session._setupstate.teardown_exact(session)  # what the tests of a file share
        return True

    def passes(self, item: pytest.Item, seed: int, session: pytest.Session) -> bool:
        """Draw one test once; tell how to see its failure again."""
        os.environ["NTRM_TEST_SEED"] = str(seed)
        self.draws += 1
        # By way of the hook, around which pytest minds warnings; what follows is the file's next test.
        item.ihook.pytest_runtest_protocol(item=item, nextitem=item.parent)
        failed = [report for report in self.reports if report.failed]
        for report in failed:
            session.testsfailed += 1
            again = f"to see this again: NTRM_TEST_SEED={seed} pytest --hypothesis-profile fuzz '{item.nodeid}'"
            self.tell(session, f"\n{'_' * 30} {item.nodeid}\n{report.longreprtext}\n{again}")
        return not failed

    def tell(self, session: pytest.Session, text: str) -> None:
        """Write past the capture of the tests' output."""
        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        reporter.write_line(text)
        reporter.flush()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Keep the reports instead of showing them."""
        self.reports = runtestprotocol(item, log=False, nextitem=nextitem)
        return True

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Say how much was tried; to draw nothing is no success."""
        self.tell(session, f"{self.draws:,} draws, {session.testsfailed} failures")
        session.exitstatus = session.exitstatus or int(not self.draws)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workers", default="auto", help="processes; auto: one for each core")
    parser.add_argument("paths", nargs="*", default=["tests"], help="tests to draw from")
    args = parser.parse_args()
    workers = os.cpu_count() or 1 if args.workers == "auto" else int(args.workers)
    if workers == 1:
        plain = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-profile", "fuzz"]
        plain += ["-o", "tmp_path_retention_policy=failed"]
        return pytest.main([*plain, *args.paths], plugins=[Rounds(args.seconds)])
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", str(args.seconds), "--workers", "1", *args.paths]
    children = [subprocess.Popen(command) for _ in range(workers)]
    latest = time.monotonic() + args.seconds + GRACE
    try:
        return max(abs(child.wait(latest - time.monotonic())) for child in children)
    finally:
        for child in children:
            child.kill()
            child.wait()


if __name__ == "__main__":
    sys.exit(main())
