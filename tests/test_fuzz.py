"""`make fuzz`: quick tests are drawn often, a failure is told with its seed."""

import re
import subprocess
import sys


def test_failures_are_told_with_their_seeds_and_others_go_on(tmp_path):
    file = tmp_path / "test_own.py"
    file.write_text(
        "def test_a(seed):\n    assert seed < 0\n\ndef test_b(seed):\n    pass\n\ndef test_c():\n    pass\n"
    )
    file.with_name("conftest.py").write_text("from tests.conftest import *")
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", "1", "--workers", "1", file]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.search(r"NTRM_TEST_SEED=\d+ pytest '.*test_a'", ended.stdout)
    draws, failures = re.search(r"(\d+) draws, (\d+) failures", ended.stdout).groups()
    assert (int(draws) > 5, failures) == (True, "1")
