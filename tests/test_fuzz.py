"""`make fuzz`: a failure is told with its seed, and ends in an error."""

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_failures_are_told_with_their_seeds(tmp_path):
    file = tmp_path / "test_own.py"
    file.write_text("def test_a(seed):\n    assert seed < 0\n\ndef test_b():\n    assert False\n")
    file.with_name("conftest.py").write_text("from tests.conftest import *")
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", "1", "--workers", "1", file]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.search(r"NTRM_TEST_SEED=\d+ pytest --hypothesis-profile fuzz '.*test_a'", ended.stdout)
    assert "1 draws, 1 failures" in ended.stdout
