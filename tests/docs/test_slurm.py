"""The SLURM scripts of the pages, run by bash: stand-ins for SLURM's programs note how they were called."""

import os
import re
import subprocess

import pytest
from tests.docs.markdown import ROOT, blocks

SCRIPTS = [block for block in blocks(ROOT / "docs" / "cluster.md") if "#SBATCH" in block.text]
ARRAY = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
SLURM = {"SLURM_JOB_ID": "9", "SLURM_CPUS_PER_TASK": "4", **ARRAY}


@pytest.fixture
def run(tmp_path):
    """Runs a script in which ``ntrm`` ends with a code; gives the script's own code and what was called."""
    programs = {
        "srun": 'echo "srun $SRUN_CPUS_PER_TASK" >> calls\nwhile [ "$1" != ntrm ]; do shift; done\nexec "$@"',
        "scontrol": 'echo "scontrol $*" >> calls',
        "ntrm": 'echo "ntrm $*" >> calls\nexit "$CODE"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)

    def go(script, code, **more):
        (tmp_path / "calls").write_text("")
        (tmp_path / "script").write_text(script.text)
        place = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "CODE": str(code), "DATA": "skin"}
        ended = subprocess.run(
            ["bash", "-u", "script"], cwd=tmp_path, env={**place, **SLURM, **more}, check=False, timeout=300
        )
        return ended.returncode, (tmp_path / "calls").read_text().splitlines()

    return go


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda block: block.where)
@pytest.mark.parametrize("code", [130, 143, 0, 1, 2, 3, 137])
def test_what_was_interrupted_is_requeued_and_nothing_else(run, script, code):
    ended, calls = run(script, code)
    job = "7_3" if "--array" in script.text else "9"
    requeued = [call for call in calls if call.startswith("scontrol")]
    assert requeued == ([f"scontrol requeue {job}"] if code in (130, 143) else [])
    assert ended == code
    assert calls[0] == "srun 4"


def test_the_tasks_of_the_array_take_every_slide_once(run):
    (script,) = [block for block in SCRIPTS if "ntrm segment" in block.text]
    first, last = map(int, re.search(r"--array=(\d+)-(\d+)", script.text).groups())
    shards = []
    for task in range(first, last + 1):
        calls = run(script, 0, SLURM_ARRAY_TASK_ID=str(task))[1]
        shards.append(re.search(r"--shard (\d+)/(\d+)", calls[-1]).groups())
    parts = str(last)
    assert shards == [(str(part), parts) for part in range(1, last + 1)]
