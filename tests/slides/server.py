"""A real S3 server in a process of its own, on the loopback interface."""

import json
import os
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.helpers import wait_for

SECRET = "a-secret-of-nobody"
SERVE = """
import sys
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

WSGIRequestHandler.log_request = lambda *_: None
# Keep-alive connections, as every real service has them.
WSGIRequestHandler.protocol_version = "HTTP/1.1"
server = make_server("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


@contextmanager
def served(port=0):
    """Yields the server's process and its address."""
    for module in ("moto", "flask_cors", "s3fs"):
        pytest.importorskip(module)
    command = [sys.executable, "-W", "ignore", "-c", SERVE, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            port = int(wait_for("the server", server.stdout.readline))
            yield server, f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def environment(endpoint):
    """What a user would set."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


class Bucket:
    """One bucket by plain HTTP: what is under test goes another way. The server asks nobody who they are."""

    def __init__(self, endpoint, name):
        self.url = f"{endpoint}/{name}"
        self.name = name
        self._ask("PUT", "", b"")

    def _ask(self, method, key, data=None):
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=nobody/20260101/us-east-1/s3/aws4_request"}
        signed["Content-Type"] = "application/octet-stream"
        quoted = "/".join(urllib.request.quote(part, safe="?=&") for part in key.split("/"))
        request = urllib.request.Request(f"{self.url}/{quoted}", data=data, method=method, headers=signed)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def put(self, key, content):
        self._ask("PUT", key, content if isinstance(content, bytes) else Path(content).read_bytes())

    def get(self, key):
        return self._ask("GET", key)

    def delete(self, key):
        self._ask("DELETE", key)

    def keys(self, prefix=""):
        text = self._ask("GET", f"?list-type=2&max-keys=1000&prefix={prefix}").decode()
        return [part.partition("</Key>")[0] for part in text.split("<Key>")[1:]]

    def deny(self, *actions):
        about = {"Effect": "Deny", "Principal": "*", "Action": list(actions), "Resource": "*"}
        self._ask("PUT", "?policy", json.dumps({"Version": "2012-10-17", "Statement": [about]}).encode())

    def download(self, prefix, folder):
        for key in self.keys(prefix):
            path = folder / key.removeprefix(prefix).lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.get(key))
        return folder
