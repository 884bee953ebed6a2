"""Joining a Ray cluster that is there already: a wrong address is told soon, where Ray would try for minutes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ntrm.errors import RefusedError

ADDRESS = "RAY_ADDRESS"
LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's switch for "the loopback interface alone", if it is 0; in spite of its name it works on Linux."""
REACH_S = 20.0
"""How long the head of a cluster may take to answer."""
CLIENT = "ray://"
"""Before the address of a Ray client's server."""
HERE = ("localhost", "127.0.0.1", "::1")
"""Hosts in whose place Ray puts what it takes for the address of this machine."""


def join_settings() -> dict[str, str]:
    """What Ray reads from the environment: one attempt, of about 40 s, and not twenty of them."""
    return {"RAY_gcs_server_port_wait_time_s": "1"}


@contextmanager
def joined(ray: Any, address: str, quiet: dict[str, Any]) -> Iterator[None]:
    """Be part of the cluster at ``address``."""
    _check_reachable(ray, address)
    try:
        _join(ray, address, quiet)
        yield
    finally:
        ray.shutdown()


def _join(ray: Any, address: str, quiet: dict[str, Any]) -> None:
    try:
        ray.init(address=address, **quiet)
    except Exception as error:
        # Ray raises plain exceptions, too; any other kind is a bug.
        if type(error) is not Exception and not isinstance(error, OSError | RuntimeError | ValueError):
            raise
        raise RefusedError(
            f"the cluster of {ADDRESS} cannot be joined",
            got=f"{address}: {str(error).strip().partition(os.linesep)[0]}",
            expected="host:port of `ray start --head`, the same versions of Python and Ray, and the same token",
            mend="look with `ray status` whether it runs; see docs/cluster.md for tokens",
        ) from error


def _check_reachable(ray: Any, address: str) -> None:
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdigit():
        return  # "auto" and the like: Ray's own words
    error = _refusal(host, int(port))
    if error is not None:
        raise RefusedError(
            f"no cluster answers at {ADDRESS}", got=f"{address}: {error}", mend="start it with `ray start --head`"
        )
    taken = host if address.startswith(CLIENT) or host not in HERE else str(ray.util.get_node_ip_address())
    if taken != host and (error := _refusal(taken, int(port))) is not None:
        raise RefusedError(
            f"Ray takes {host} for {taken}, where no cluster answers",
            got=f"{taken}:{port}: {error}",
            expected=f"a cluster that listens at {taken}, or the setting that keeps Ray on the loopback interface",
            mend=f"set {LOOPBACK_ONLY}=0 here as where the cluster was started",
        )


def _refusal(host: str, port: int) -> OSError | None:
    """Why nobody answers there."""
    try:
        socket.create_connection((host, port), timeout=REACH_S).close()
    except OSError as error:
        return error
    return None
