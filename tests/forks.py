"""Programs in processes of their own that cost no import: each is forked from one process that has imported it all."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SERVER = """
import json, os, sys, traceback
import torch
torch.set_num_threads(1)
import ntrm.cli.main, ntrm.segment.batch, ntrm.slides.object_store
import tests.evaluation.small, tests.segment.small

for line in sys.stdin:
    code, words, environment, said = json.loads(line)
    child = os.fork()
    if child == 0:
        for stream in (1, 2):
            os.dup2(os.open(f"{said}.{stream}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv, status = ["-c", *words], 1
        try:
            exec(code, {"__name__": "__main__"})
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Ended(NamedTuple):
    """How a program ended, and what it wrote."""

    status: int  # The exit code; negative, the signal
    output: str
    errors: str


class Forks:
    """Runs one program after the other; each finds the environment as it is when it starts."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", SERVER]
        self.server = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.folder, self.count = folder, 0

    def start(self, code: str, *words: object) -> int:
        """Begin a program with these arguments; returns the number of its process."""
        self.count += 1
        request = code, [*map(str, words)], dict(os.environ), str(self.folder / str(self.count))
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def wait(self) -> Ended:
        status = int(self.server.stdout.readline())
        return Ended(status, *((self.folder / f"{self.count}.{stream}").read_text() for stream in (1, 2)))

    def run(self, code: str, *words: object) -> Ended:
        self.start(code, *words)
        return self.wait()

    def close(self) -> None:
        self.server.communicate()
