"""Connections that keep the service waiting are dropped, and others come in meanwhile."""

import asyncio
import json
import resource
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from tests.service.small import settings_of
from uvicorn.server import ServerState

from ntrm.service.serve import BoundedProtocol, configured, most_connections

PATIENCE = 60
LARGE = 50 * 2**20
"""Bytes of an answer: more than any system keeps for a client that does not read."""
UNFINISHED = b"GET / HTTP/1.1\r\n"
WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
ANSWER_END = b"\r\n\r\n\x00\x00"


class Patient(BoundedProtocol):
    """Limits so long that no client is too late by itself, however busy the machine is."""

    most = 5
    header_seconds = stall_seconds = 3600


class Loop(asyncio.SelectorEventLoop):
    """Its clock can be put forward: no test has to wait, nor to be fast."""

    ahead = 0.0
    patience: asyncio.Timeout

    def time(self):
        return super().time() + self.ahead


async def later(seconds):
    """Let so much time pass at once; everything that was due by then is done."""
    loop = asyncio.get_running_loop()
    loop.ahead += seconds
    loop.patience.reschedule(loop.patience.when() + seconds)
    await asyncio.sleep(0.005)


async def application(scope, receive, send):
    """Answers at once; at /wait once the body is there; at /large with much."""
    if scope["path"] == "/wait":
        while (await receive()).get("more_body"):
            pass
    size = LARGE if scope["path"] == "/large" else 2
    head = [(b"content-length", str(size).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    for start in range(0, size, 2**20):
        await send({"type": "http.response.body", "body": bytes(min(2**20, size - start)), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def asked(client):
    """What ``client(connect, state)`` gives, with a server of the patient protocol."""

    @asynccontextmanager
    async def serving():
        # uvicorn's own limit between two requests is none of those that are tested here.
        own = {"timeout_keep_alive": 10**9}
        config = uvicorn.Config(application, http=Patient, ws="none", lifespan="off", log_config=None, **own)
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(lambda: Patient(config, state, {}), "127.0.0.1", 0)
        writers = []

        async def connect(content=b""):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writers.append(writer)
            writer.write(content)
            return reader, writer

        try:
            yield connect, state
        finally:
            for writer in writers:
                writer.close()
            server.close()
            for item in [*state.connections]:
                item.transport.abort()

    async def all_of_it():
        async with asyncio.timeout(PATIENCE) as patience, serving() as (connect, state):
            asyncio.get_running_loop().patience = patience
            return await client(connect, state)

    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(all_of_it())


async def rest(reader):
    """Everything until the server ends the connection."""
    received = b""
    with suppress(ConnectionError):
        while piece := await reader.read(2**16):
            received += piece
    return received


def document_in(answer, status):
    """The error in an answer of this status, which ends with it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(status)
    assert b"content-length: %d\r\n" % len(body) in head + b"\r\n"
    return json.loads(body)["error"]


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("start", [b"", UNFINISHED, WHOLE + UNFINISHED])
def test_headers_that_never_end_are_given_up_even_if_bytes_keep_coming(start):
    async def client(connect, state):
        reader, writer = await connect(start)
        for _ in range(start.count(WHOLE)):
            assert b"200 OK" in await reader.readuntil(ANSWER_END)
        ended = asyncio.create_task(rest(reader))
        while not ended.done():
            writer.write(b"x" if start else b"")
            await later(Patient.header_seconds / 4)
        await until(lambda: not state.connections)
        return ended.result()

    assert asked(client) == b""


def test_one_connection_too_many_takes_the_place_of_the_oldest_without_a_request():
    async def client(connect, state):
        kept, kept_writer = await connect(WHOLE)
        await kept.readuntil(b"\r\n\r\n")
        waiting = []
        for number in range(Patient.most - 1):
            waiting.append(await connect(UNFINISHED))
            await until(lambda number=number: len(state.connections) == number + 2)
        newcomer, _ = await connect(WHOLE)
        assert b"200 OK" in await newcomer.readuntil(b"\r\n\r\n")
        assert await rest(waiting[0][0]) == b""
        for _, writer in waiting[1:]:
            writer.write(b"Host: x\r\n\r\n")
        answers = [await reader.readuntil(b"\r\n\r\n") for reader, _ in waiting[1:]]
        kept_writer.write(WHOLE)
        answers.append(await kept.readuntil(b"\r\n\r\n"))
        return answers, len(state.connections)

    answers, count = asked(client)
    assert all(b"200 OK" in item for item in answers)
    assert count == Patient.most


def test_where_all_are_busy_a_newcomer_is_told_at_once():
    async def client(connect, state):
        for _ in range(Patient.most):
            await connect(b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
        await until(lambda: len(state.tasks) == Patient.most)
        newcomer, _ = await connect(WHOLE)
        return await rest(newcomer)

    assert document_in(asked(client), b"HTTP/1.1 503 ")["code"] == "busy"


def test_what_is_no_http_is_answered_with_an_error_document():
    async def client(connect, _):
        reader, _ = await connect(b"GET /\r\n\r\n")
        return await rest(reader)

    assert document_in(asked(client), b"HTTP/1.1 400 ")["code"] == "malformed"


def test_an_answer_that_has_begun_is_cut_where_the_request_turns_out_malformed():
    async def client(connect, _):
        reader, writer = await connect(b"POST /large HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"no length\r\n")
        return head, await rest(reader)

    head, body = asked(client)
    assert b"200 OK" in head
    assert not body.strip(b"\0")


def test_the_rest_of_a_body_that_nobody_waits_for_has_to_come_soon():
    async def client(connect, _):
        reader, writer = await connect(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        ended = asyncio.create_task(rest(reader))
        while not ended.done():
            writer.write(b"x")
            await later(Patient.stall_seconds / 4)
        return True

    assert asked(client)


def test_a_client_that_does_not_read_its_answer_is_dropped():
    async def client(connect, state):
        await connect(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: state.tasks)
        while state.connections:
            await later(Patient.stall_seconds / 4)
        return True

    assert asked(client)


def test_those_that_ask_and_read_are_kept_however_long_they_take_between_requests():
    async def client(connect, _):
        reader, writer = await connect(WHOLE)
        received = [await reader.readuntil(ANSWER_END)]
        await later(3 * Patient.header_seconds)
        writer.write(WHOLE)
        return [*received, await reader.readuntil(ANSWER_END)]

    assert all(b"200 OK" in item for item in asked(client))


def test_connections_leave_half_of_the_descriptors_to_others(monkeypatch):
    limits = iter([(1024, 4096), (256, 256), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)])
    monkeypatch.setattr(resource, "getrlimit", lambda _: next(limits))
    assert [most_connections(512) for _ in range(3)] == [512, 128, 512]


def test_the_service_speaks_this_protocol_with_its_limits(tmp_path):
    limits = {"header_seconds": 3, "idle_seconds": 4, "idle_bytes": 5, "connections": 6}
    http = configured(application, settings_of(tmp_path, "bundled", limits=limits)).http
    assert issubclass(http, BoundedProtocol)
    assert (http.header_seconds, http.stall_seconds, http.least_bytes, http.most) == (3, 4, 5, 6)
