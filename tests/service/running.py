"""A service as its user starts it: the command in a process of its own, which tests may kill."""

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.helpers import PATIENCE, wait_for
from tests.service.small import TOKEN


def children_of(pid, word=""):
    """Processes that live, whose parent is ``pid`` and whose command holds ``word``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:2]
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if int(parent) == pid and state != "Z" and word in command:
            found.append(int(folder.name))
    return found


class Running:
    """``ntrm serve`` and how to talk to it."""

    def __init__(self, out, model, *more, environment=None):
        command = [sys.executable, "-m", "ntrm", "serve", str(out), "--model", str(model), "--port", "0", "--no-open"]
        self.process = subprocess.Popen(
            [*command, "--json", "--quiet", "--device", "cpu", *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NTRM_TOKEN": TOKEN, "OMP_NUM_THREADS": "1", **(environment or {})},
        )
        lines = []
        while not lines or lines[-1] != "}\n":
            line = self.process.stdout.readline()
            assert line, self.process.stderr.read()
            lines.append(line)
        document = json.loads("".join(lines))
        self.address, self.link = document["address"], document["link"]
        self.port = int(self.address.rsplit(":", 1)[1])

    def ask(self, method, path, body=None, headers=None, *, token=TOKEN):
        """Status and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            plain = {} if token is None else {"Authorization": f"Bearer {token}"}
            if isinstance(body, dict):
                body, plain["Content-Type"] = json.dumps(body), "application/json"
            connection.request(method, path, body, {**plain, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, path):
        status, content = self.ask("GET", path)
        assert status == 200, content
        return json.loads(content)

    def new_link(self):
        """Lets one browser in."""
        return self.address + json.loads(self.ask("POST", "/v1/links")[1])["path"]

    def add(self, path, name):
        """Name a slide of the server; returns its id."""
        status, content = self.ask("POST", "/v1/slides", {"path": str(path), "slide_id": name})
        assert status == 202, content
        return json.loads(content)["id"]

    def wait_for(self, key, *statuses, least=0.0):
        """Wait until a slide is in one of these states, at least so far."""

        def there():
            slide = self.json(f"/v1/slides/{key}")
            assert slide["status"] in ("queued", "running", *statuses), slide
            return slide if slide["status"] in statuses and slide["progress"] >= least else None

        return wait_for(f"{key} to be {statuses}", there)

    @property
    def workers(self):
        return children_of(self.process.pid, "ntrm.service.jobs.worker")

    def kill(self):
        """Without any warning."""
        self.process.kill()
        self.process.communicate()

    def stop(self, number=signal.SIGTERM):
        """In order; returns the exit code, the output of errors and the processes that were there."""
        below = children_of(self.process.pid)
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, errors, below

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            pipe.close()
