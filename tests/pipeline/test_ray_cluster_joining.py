"""Joining a cluster: whatever is wrong with its address is one of our errors, and soon."""

import socket
from types import SimpleNamespace

import pytest

from ntrm.core.errors import RefusedError
from ntrm.pipeline import ray_cluster
from ntrm.pipeline.ray_cluster import joined


class Cluster:
    """As much of Ray as joining uses; ``taken`` is what it takes for the address of this machine."""

    def __init__(self, error=None, taken="127.0.0.1"):
        self.error, self.calls = error, []
        self.util = SimpleNamespace(get_node_ip_address=lambda: taken)

    def init(self, **options):
        self.calls.append(options)
        if self.error is not None:
            raise self.error

    def shutdown(self):
        self.calls.append("shutdown")


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def nobody():
    """A port of this machine at which nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield closed.getsockname()[1]


def join(ray, address):
    with joined(ray, address, {"logging_level": "error"}):
        ray.calls.append("work")


def test_a_cluster_is_joined_and_left(listener):
    ray = Cluster()
    join(ray, f"127.0.0.1:{listener}")
    assert ray.calls == [{"address": f"127.0.0.1:{listener}", "logging_level": "error"}, "work", "shutdown"]


def test_errors_of_the_work_are_not_taken_for_those_of_joining(listener):
    ray = Cluster()
    with pytest.raises(ConnectionError, match="of the work"), joined(ray, f"localhost:{listener}", {}):
        raise ConnectionError("of the work")
    assert ray.calls[-1] == "shutdown"


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "localhost:{}", "ray://127.0.0.1:{}"])
def test_an_address_at_which_nobody_listens_is_not_tried(nobody, form):
    ray = Cluster()
    with pytest.raises(RefusedError, match="no cluster answers"):
        join(ray, form.format(nobody))
    assert ray.calls == []


def test_a_name_that_nobody_knows_is_told(monkeypatch):
    def unknown(*_arguments, **_more):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(ray_cluster.socket, "create_connection", unknown)
    with pytest.raises(RefusedError, match="Name or service not known"):
        join(Cluster(), "no-such-host:6379")


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("Failed to connect to Ray cluster at …\nTraceback"),
        RuntimeError("Version mismatch: The cluster was started with:\n Ray: 1"),
        ValueError("Invalid address format: garbage"),
        Exception("No node info found for head node in GCS."),
    ],
    ids=["no Ray", "another version", "no address", "no node"],
)
def test_what_ray_says_of_a_cluster_is_told_in_a_line(listener, error):
    ray = Cluster(error)
    with pytest.raises(RefusedError, match="cannot be joined") as raised:
        join(ray, "garbage" if isinstance(error, ValueError) else f"127.0.0.1:{listener}")
    assert str(error).split("\n")[0] in str(raised.value.got)
    assert "\n" not in str(raised.value.got)
    assert ray.calls[-1] == "shutdown"


def test_bugs_are_not_taken_for_a_wrong_address(listener):
    ray = Cluster(TypeError("an argument that this version does not know"))
    with pytest.raises(TypeError):
        join(ray, f"127.0.0.1:{listener}")
    assert ray.calls[-1] == "shutdown"


def test_a_cluster_on_the_loopback_interface_alone_is_not_looked_for_elsewhere(listener):
    # 127.0.0.2 is of this machine, too, and the listener is not to be found there.
    ray = Cluster(taken="127.0.0.2")
    with pytest.raises(RefusedError, match=r"takes 127\.0\.0\.1 for 127\.0\.0\.2") as raised:
        join(ray, f"127.0.0.1:{listener}")
    assert f"{ray_cluster.LOOPBACK_ONLY}=0" in str(raised.value.hint)
    assert ray.calls == []
    join(ray, f"ray://127.0.0.1:{listener}")
    assert "work" in ray.calls


@pytest.mark.parametrize(("address", "token"), [("127.0.0.1:1", False), ("", True), (None, True)])
def test_settings_are_those_of_the_cluster_that_is_used(monkeypatch, address, token):
    environment = {} if address is None else {"RAY_ADDRESS": address}
    monkeypatch.setattr(ray_cluster.os, "environ", environment)
    monkeypatch.setattr(ray_cluster.importlib, "import_module", lambda name: name)
    assert ray_cluster._import_ray() == "ray"
    assert environment["RAY_USAGE_STATS_ENABLED"] == "0"
    assert ("RAY_AUTH_TOKEN" in environment) is token
    assert (environment.get(ray_cluster.LOOPBACK_ONLY) == "0") is token
    # Else Ray tries for a quarter of an hour.
    assert (environment.get("RAY_gcs_server_port_wait_time_s") == "1") is not token
