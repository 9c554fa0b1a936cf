"""Connections over a real socket: answers in one write, and limits on untrusted input."""

import asyncio
import contextlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest import mock

import msgspec
import orjson
import pytest
import uvloop

from app.http.bodies import DISCARDED_BYTES
from app.http.turns import LoopTurns
from infra.transport import connections, entrance, http_protocol
from infra.transport.connections import ConnectionLimits, Connections
from infra.transport.pairing_transport import PairingTransport
from tests.unit.app.sessions.sockets import listening
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("loop")]


class Wire(asyncio.Transport):
    """Records writes, one entry per system call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.calls.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        assert all(list_of_data), "asyncio's transport would keep an empty part"
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


async def test_nothing_is_written_to_disconnected_client() -> None:
    """It may close in the iteration of the loop that writes the answer: uvloop's transport then raises."""
    for writes in ([b"head"], [b"head", b"body"]):
        wire = Wire()
        transport = PairingTransport(wire, asyncio.get_running_loop())
        transport.write(writes[0])
        wire.close()
        for data in writes[1:]:
            transport.write(data)
        transport._write_first()
        assert wire.calls == []


@pytest.mark.parametrize("close", [False, True])
@pytest.mark.parametrize(
    ("writes", "calls"),
    [
        ([], []),
        ([b"head"], [b"head"]),
        ([b"head", b"body"], [b"headbody"]),
        ([b"head", b""], [b"head"]),
        ([b"", b"head", b"body"], [b"headbody"]),
        ([b"1", b"2", b"3"], [b"12", b"3"]),
    ],
)
async def test_writes_are_paired(writes: list[bytes], calls: list[bytes], close: bool) -> None:
    wire = Wire()
    transport = PairingTransport(wire, asyncio.get_running_loop())
    for data in writes:
        transport.write(data)
    if close:
        transport.close()
    assert transport.is_closing() is close
    await asyncio.sleep(0)
    assert wire.calls == calls


#: Paths of the requests that `application` got.
SERVED: list[str] = []
#: Answers of a length that is told.
BODIES = {"/whole": b"ok", "/closing": b"ok", "/large": bytes(2**24)}


async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer with a body, without one, in pieces, after the request, or with endless output."""
    path = scope["path"]
    SERVED.append(path)
    if path == "/read":
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        if message["type"] == "http.disconnect":
            return
    if path.startswith("/chunks/") or path == "/echo":
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})
        return
    if path == "/never":
        await asyncio.Event().wait()
    body = scope["client"][0].encode() if path == "/address" else BODIES.get(path, b"")
    headers = [(b"content-length", b"%d" % len(body))] if path in BODIES else []
    headers += [(b"connection", b"close")] if path == "/closing" else []
    status = {"/none": 204, "/closing": 413}.get(path, 200)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if path == "/pieces":
        for piece in (b"a", b"b"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": body})


LIMITS = ConnectionLimits(connections=20, per_address=None, idle_seconds=0.3, slowest=1000)
PATIENT = msgspec.structs.replace(LIMITS, idle_seconds=30.0)


class Client:
    """One connection to a server, and the server's side of all."""

    def __init__(self, door: Connections, address: tuple[str, int]) -> None:
        self.door = door
        self._address = address
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self._address)
        self._writers.append(writer)
        return reader, writer

    async def sends(self, *parts: bytes, pause: float = 0.0) -> bytes:
        """Send parts while they are accepted; return everything received until the server closes."""
        reader, writer = await self.open()
        reading = asyncio.create_task(reader.read())
        with contextlib.suppress(OSError, RuntimeError):  # uvloop has its own error for a closed connection.
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
        try:
            return await asyncio.wait_for(reading, 60)
        except ConnectionError:
            return b"reset"

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    """Run tests on the event loop of the service."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


@contextlib.asynccontextmanager
async def serving(limits: ConnectionLimits = LIMITS) -> AsyncIterator[Client]:
    """Run a server that checks its connections often."""
    with mock.patch.object(connections, "POLL_SECONDS", 0.02), mock.patch.object(http_protocol, "POLL_SECONDS", 0.02):
        async with listening(application, limits) as (server, door):
            client = Client(door, server.servers[0].sockets[0].getsockname())
            try:
                yield client
            finally:
                await client.close()
    assert len(door) == 0


async def said(*parts: bytes, pause: float = 0.0, limits: ConnectionLimits = LIMITS) -> bytes:
    """Return everything that a client receives for these parts."""
    async with serving(limits) as client:
        return await client.sends(*parts, pause=pause)


def request(line: str, *headers: str) -> bytes:
    return "\r\n".join((f"{line} HTTP/1.1", "Host: x", *headers, "", "")).encode()


CLOSE = "Connection: close"
CHUNKED = "Transfer-Encoding: chunked"


async def test_waiting_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds no room to wait is handled at once."""
    monkeypatch.setattr(http_protocol, "HELD_BYTES", 10)
    monkeypatch.setattr(LoopTurns, "is_free", lambda turns: False)
    monkeypatch.setattr(LoopTurns, "put", lambda turns, holder, work: None)
    async with serving() as client:
        answer = await client.sends(request("GET /none", CLOSE))
        assert answer.startswith(b"HTTP/1.1 204")


async def test_requests_that_arrive_together_begin_in_different_iterations() -> None:
    """What a request takes is known once it has begun; parsing says nothing of it."""
    began, iteration = list[int](), 0
    loop = asyncio.get_running_loop()

    def count() -> None:
        nonlocal iteration
        iteration += 1
        counting[0] = loop.call_soon(count)

    async def noting(scope: dict[str, Any], receive: Any, send: Any) -> None:
        began.append(iteration)
        await application(scope, receive, send)

    counting = [loop.call_soon(count)]
    async with listening(noting, LIMITS) as (server, door):
        client = Client(door, server.servers[0].sockets[0].getsockname())
        opened = [await client.open() for _ in range(20)]
        for _, writer in opened:
            writer.write(request("GET /none", CLOSE))
        await asyncio.gather(*(reader.read() for reader, _ in opened))
        await client.close()
    counting[0].cancel()
    assert len(began) == 20
    # One that began before this round may run with the first of it.
    assert max(Counter(began).values()) <= 2


def chunk(body: bytes) -> bytes:
    return request("PUT /chunks/1", f"Content-Length: {len(body)}") + body


@pytest.mark.parametrize("pause", [0.0, 0.05])
@pytest.mark.parametrize("waits", [False, True])
async def test_connection_that_sent_a_chunk_serves_any_request(
    pause: float, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In parts or together, and whoever reads it."""
    if waits:
        monkeypatch.setattr(LoopTurns, "is_free", lambda turns: False)
    large = bytes(range(256)) * 4096
    parts = [
        chunk(b"one"), chunk(b"two"), chunk(b"three")[:-2], b"ee", request("GET /pieces"), chunk(large), chunk(b"four"),
        request("GET /read"), request("PUT /chunks/1", CHUNKED), b"4\r\nfive\r\n", b"0\r\n\r\n", request("GET /whole"),
        chunk(b"six") + request("GET /whole") + chunk(b"seven"), request("GET /address", CLOSE),
    ]  # fmt: skip
    async with serving(PATIENT) as client:
        answer = await client.sends(*parts, pause=pause)
        assert client.door.held == 0
    assert answer.count(b"HTTP/1.1 200") == 13
    bodies = [b"one", b"two", b"three", large, b"four", b"five", b"ok", b"six", b"ok", b"seven", b"127.0.0.1"]
    at = 0
    for body in bodies:
        at = answer.index(body, at) + len(body)


@pytest.mark.parametrize("after", [b"", request("GET /none")])
async def test_end_of_connection_that_sent_a_chunk_is_noticed(after: bytes) -> None:
    async with serving(PATIENT) as client:
        reader, writer = await client.open()
        writer.write(chunk(b"one"))
        await reader.readuntil(b"one")
        writer.write(after)
        writer.write_eof()
        assert (await asyncio.wait_for(reader.read(), 25)).startswith(b"HTTP/1.1 204" if after else b"")
        await until(lambda: len(client.door) == 0)


async def test_chunk_that_waits_at_the_entrance_is_served_before_the_server_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    SERVED.clear()
    monkeypatch.setattr(entrance.Gate, "_open", lambda gate: None)
    async with serving(PATIENT) as client:
        reader, writer = await client.open()
        writer.write(chunk(b"one"))
        await reader.readuntil(b"one")
        writer.write(chunk(b"two"))
        await asyncio.sleep(0.05)
        assert len(SERVED) == 1
    assert len(SERVED) == 2


async def test_client_that_closes_while_its_input_waits_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopTurns, "is_free", lambda turns: False)
    async with serving() as client:
        _, writer = await client.open()
        writer.write(request("GET /whole"))
        writer.transport.abort()
        await asyncio.sleep(0.1)
        assert client.door.held == 0


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        pytest.param(request("GET /whole", CLOSE), b"ok", id="with a body"),
        pytest.param(request("HEAD /whole", CLOSE), b"", id="HEAD"),
        pytest.param(request("GET /none", CLOSE), b"", id="204"),
        pytest.param(request("GET /pieces", CLOSE), b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n", id="in pieces"),
        pytest.param(request("GET /whole", "Upgrade: h2c", "Connection: upgrade, close"), b"ok", id="upgrade ignored"),
        pytest.param(b"GET /whole HTTP/1.0\r\n\r\n", b"ok", id="HTTP/1.0 needs no host"),
        pytest.param(b"GET /pieces HTTP/1.0\r\n\r\n", b"ab", id="HTTP/1.0 in pieces"),
        pytest.param(b"HEAD /pieces HTTP/1.0\r\n\r\n", b"", id="HTTP/1.0 HEAD"),
        pytest.param(
            b"POST /read HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx", b"", id="no interim answer"
        ),
    ],
)
async def test_every_answer_arrives_whole(asked: bytes, body: bytes) -> None:
    answer = await said(asked)
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 204" if b"/none" in asked else b"HTTP/1.1 200")
    assert (rest, answer.count(b"HTTP/1.1")) == (body, 1)
    if b"/pieces HTTP/1.0" in asked:
        assert b"transfer-encoding" not in head
        assert b"\r\nconnection: close" in head, "where the answer ends"


H2C = "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"
SOCKET = "Upgrade: websocket", "Connection: upgrade"


@pytest.mark.parametrize("pause", [0.0, 0.01])
@pytest.mark.parametrize("headers", [H2C, SOCKET, (*H2C, "Connection: keep-alive")])
@pytest.mark.parametrize(
    ("framing", "body"), [("Content-Length: 5", b"hello"), (CHUNKED, b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n")]
)
async def test_request_that_offers_other_protocol_keeps_its_body(
    headers: tuple[str, ...], framing: str, body: bytes, pause: float
) -> None:
    """As Java's own client sends it; further requests on the connection are answered too."""
    asked = request("POST /echo", *headers, framing) + body
    whole = asked + asked + request("GET /whole", *H2C) + request("GET /none", CLOSE)
    parts = [whole] if not pause else [whole[at : at + 50] for at in range(0, len(whole), 50)]
    answer = await said(*parts, pause=pause, limits=PATIENT)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"200", b"200", b"204"]
    assert answer.count(b"\r\n\r\nhello") == 2


@pytest.mark.parametrize(("proxies", "expected"), [(0, b"127.0.0.1"), (1, b"192.0.2.1"), (2, b"127.0.0.1")])
async def test_client_address_comes_from_trusted_proxies(proxies: int, expected: bytes) -> None:
    asked = request("GET /address", "X-Forwarded-For: 192.0.2.1", CLOSE)
    limits = msgspec.structs.replace(LIMITS, trusted_proxies=proxies)
    assert (await said(asked, limits=limits)).endswith(b"\r\n" + expected + b"\r\n0\r\n\r\n")


# --- size limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        pytest.param([b"GET /", *[b"x" * 1000] * 100], 431, id="a request line without an end"),
        pytest.param([request("GET /whole")[:-2] + b"A: b", *[b"c" * 1000] * 100], 431, id="a header without an end"),
        pytest.param([request("GET /whole")[:-2], *[b"a: b\r\n"] * 200], 431, id="headers without an end"),
        pytest.param([request("GET /whole", *[f"X-{n}: b" for n in range(200)])], 431, id="many headers at once"),
        pytest.param([request("GET /whole", f"X: {'x' * 40_000}")], 431, id="a large header at once"),
        pytest.param([request("GET /whole?" + "x" * 40_000)], 431, id="a large request line at once"),
        pytest.param(
            [request("POST /read", CHUNKED) + b"0\r\na: " + b"b" * 40_000 + b"\r\n\r\n"], 431, id="trailer at once"
        ),
        pytest.param([request("POST /read", CHUNKED) + b"0\r\n", *[b"a: b\r\n"] * 200], 431, id="trailers"),
        pytest.param([request("POST /read", CHUNKED) + b"0\r\na: ", *[b"b" * 1000] * 100], 431, id="a long trailer"),
        pytest.param([request("POST /read", CHUNKED) + b"1;", *[b"b" * 1000] * 100], 431, id="a long chunk extension"),
        pytest.param([b"\x16\x03\x01 hello \r\n\r\n"], 400, id="no HTTP"),
        pytest.param([request("POST /read", "Content-Length: 1", "Content-Length: 2")], 400, id="two lengths"),
        pytest.param([request("POST /read", "Content-Length: -1")], 400, id="a negative length"),
        pytest.param([request("POST /read", "Content-Length: 4", CHUNKED) + b"0\r\n\r\n"], 400, id="length and chunks"),
        pytest.param([request("POST /read", CHUNKED) + b"ZZ\r\nabc\r\n0\r\n\r\n"], 400, id="an invalid chunk size"),
        pytest.param([b"GET /whole HTTP/1.1\r\nHost: x\r\n X-Folded: 1\r\n\r\n"], 400, id="a folded header"),
        pytest.param([b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n"], 400, id="a null character"),
        pytest.param([b"GET /whole HTTP/9.9\r\nHost: x\r\n\r\n"], 400, id="an unknown version"),
        pytest.param([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], 400, id="HTTP/2"),
        pytest.param([b"GET /whole HTTP/1.1\r\n\r\n"], 400, id="no host"),
        pytest.param([request("GET /whole", "Host: y")], 400, id="two hosts"),
        pytest.param([request("POST /read", "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n"], 501, id="compressed"),
        pytest.param(
            [request("POST /read", "Transfer-Encoding: gzip", CHUNKED) + b"0\r\n\r\n"], 501, id="compressed, in two"
        ),
    ],
)
async def test_oversized_or_malformed_request_is_rejected(parts: list[bytes], status: int) -> None:
    answer = await said(*parts, pause=0.0005, limits=PATIENT)
    # Whoever still sends when the service closes may not get the answer.
    if len(parts) == 1 or answer != b"reset":
        assert answer.startswith(b"HTTP/1.1 %d" % status), answer
        assert orjson.loads(answer.partition(b"\r\n\r\n")[2])["status_code"] == status


async def test_pipelined_requests_are_answered_in_order() -> None:
    asked = request("GET /pieces") + request("GET /whole") * (http_protocol.PIPELINED - 2) + request("GET /none", CLOSE)
    answer = await said(asked)
    assert answer.count(b"HTTP/1.1 200") == http_protocol.PIPELINED - 1
    assert answer.count(b"HTTP/1.1 204") == 1


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (request("POST /whole", "Transfer-Encoding: gzip"), 501),
        (request("POST /whole", "Transfer-Encoding: chunked") + b"nonsense\r\n", 400),
    ],
)
@pytest.mark.parametrize("before", [1, 3])
async def test_requests_before_an_invalid_one_are_answered(last: bytes, status: int, before: int) -> None:
    answer = await said(request("GET /pieces") * before + last + request("GET /whole"))
    assert answer.count(b"HTTP/1.1 200") == before
    assert answer.count(b"HTTP/1.1 ") == before + 1, "nothing after the invalid one is served"
    assert f"HTTP/1.1 {status}".encode() in answer.rpartition(b"HTTP/1.1 ")[1] + answer.rpartition(b"HTTP/1.1 ")[2]


async def test_pipelined_requests_are_bounded() -> None:
    """Both for requests that arrive at once, and for those sent while answers are unread."""
    async with serving(PATIENT) as client:
        assert (await client.sends(request("GET /whole") * 10_000)).count(b"HTTP/1.1") <= http_protocol.PIPELINED + 2
        reader, writer = await client.open()
        for _ in range(http_protocol.PIPELINED):
            writer.write(request("GET /large"))
        await asyncio.sleep(0.05)
        writer.write(request("GET /whole") * 500_000)
        await asyncio.sleep(0.1)
        assert writer.transport.get_write_buffer_size() > 1_000_000
        assert not reader.at_eof()


UNREAD = 40_000_000


@pytest.mark.parametrize(
    ("head", "status", "closes"),
    [
        pytest.param(request("POST /whole", f"Content-Length: {UNREAD}"), 200, False, id="kept open"),
        pytest.param(request("POST /whole", f"Content-Length: {UNREAD}", CLOSE), 200, True, id="closed by the client"),
        pytest.param(request("POST /closing", f"Content-Length: {UNREAD}"), 413, True, id="closed by the service"),
        pytest.param(f"POST /whole HTTP/1.0\r\nContent-Length: {UNREAD}\r\n\r\n".encode(), 200, True, id="HTTP/1.0"),
    ],
)
async def test_client_that_writes_before_it_reads_gets_the_answer(head: bytes, status: int, closes: bool) -> None:
    SERVED.clear()
    async with serving(PATIENT) as client:
        reader, writer = await client.open()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(head)
        for _ in range(UNREAD // 1_000_000 - 1):
            await asyncio.sleep(0.002)
            writer.write(bytes(1_000_000))
            await writer.drain()
        writer.write(bytes(1_000_000) + request("GET /none", CLOSE))
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        answer = await reader.read()
    statuses = [int(found) for found in re.findall(rb"HTTP/1.1 (\d+)", answer)]
    assert statuses == ([status] if closes else [status, 204])
    assert len(SERVED) == len(statuses), "after a request that closes, the next one has no effect"


async def test_refused_client_that_stops_sending_is_closed_without_second_answer() -> None:
    asked = request("POST /closing", "Content-Length: 9999") + b"1234"
    assert (await said(asked)).count(b"HTTP/1.1") == 1


async def test_discarding_does_not_delay_the_stop() -> None:
    async with listening(application, msgspec.structs.replace(LIMITS, idle_seconds=600.0)) as (server, _):
        server.config.timeout_graceful_shutdown = None
        reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
        writer.write(request("POST /closing", "Content-Length: 9999") + b"1234")
        assert (await reader.read()).endswith(b"ok")
        stopping = time.monotonic()
    writer.close()
    assert time.monotonic() - stopping < 60, "the client may take ten minutes for the rest"


@pytest.mark.parametrize("path", ["/whole", "/closing"])
async def test_unread_body_is_discarded_up_to_limit(path: str) -> None:
    async with serving(PATIENT) as client:
        _, writer = await client.open()
        writer.write(request(f"POST {path}", CHUNKED))
        sent, block = 0, b"10000\r\n" + bytes(0x10000) + b"\r\n"
        with contextlib.suppress(OSError):
            while sent < 4 * DISCARDED_BYTES:
                writer.write(block)
                await writer.drain()
                sent += 0x10000
    assert DISCARDED_BYTES <= sent < 3 * DISCARDED_BYTES


async def test_chunk_framing_overhead_is_bounded() -> None:
    chunks = b"1\r\nx\r\n" * 30_000
    answer = await said(request("POST /read", CHUNKED, CLOSE), chunks, b"0\r\n\r\n")
    # Six bytes of overhead per byte of data exceed the limit; with sixty bytes of data they do not.
    assert b"431" in answer or answer == b"reset"
    chunks = (b"3c\r\n" + b"x" * 60 + b"\r\n") * 30_000
    answer = await said(request("POST /read", CHUNKED, CLOSE), chunks, b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")


# --- time limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "pause", "answer"),
    [
        pytest.param([], 0, b"", id="a silent connection"),
        pytest.param([request("GET /whole")[:10]], 0, b"HTTP/1.1 408", id="half a head"),
        pytest.param([bytes([byte]) for byte in request("GET /whole")], 0.02, b"HTTP/1.1 408", id="a head that drips"),
        pytest.param([request("POST /read", "Content-Length: 9")], 0, b"HTTP/1.1 408", id="no body"),
        pytest.param([request("POST /read", "Content-Length: 9"), b"1234"], 0, b"HTTP/1.1 408", id="half a body"),
        pytest.param(
            [request("POST /read", "Content-Length: 999"), *[b"x"] * 100], 0.02, b"HTTP/1.1 408", id="a body that drips"
        ),
    ],
)
async def test_slow_request_times_out(parts: list[bytes], pause: float, answer: bytes) -> None:
    assert (await said(*parts, pause=pause)).startswith(answer)


async def test_steady_client_does_not_time_out() -> None:
    """By the clock of the service: on a busy machine a pause of the client is longer."""
    async with serving() as client:
        reader, writer = await client.open()
        writer.write(request("POST /read", "Content-Length: 900", CLOSE))
        await until(lambda: len(client.door) == 1)
        began = client.door.now
        for number in range(30):
            await until(lambda number=number: client.door.now - began >= 0.025 * number)  # type: ignore[misc]
            writer.write(bytes(30))
        assert (await reader.read()).startswith(b"HTTP/1.1 200")


async def test_client_waiting_for_answer_does_not_time_out() -> None:
    """A slow answer, and a body that the application has not requested yet."""
    async with serving() as client:
        for asked in (request("GET /never"), request("POST /never", "Expect: 100-continue", "Content-Length: 9")):
            reader, writer = await client.open()
            writer.write(asked)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 1)
            writer.close()
        await until(lambda: len(client.door) == 0)


@pytest.mark.parametrize(
    ("rest", "limits", "refusal"),
    [(b"", LIMITS, "an answer that was not taken"), (b"no request\r\n\r\n", PATIENT, "the request is not HTTP")],
    ids=["unread answer", "refused client"],
)
async def test_client_that_reads_nothing_is_reset(
    rest: bytes, limits: ConnectionLimits, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the kernel would keep megabytes of its answers for minutes."""
    monkeypatch.setattr(http_protocol, "LINGER_SECONDS", 0.1)
    async with serving(limits) as client:
        reader, writer = await client.open()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(request("GET /large") + rest)
        await until(lambda: client.door.refused[refusal])
        await until(lambda: len(client.door) == 0)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_blocked_process_does_not_time_out_clients() -> None:
    async with serving() as client:
        reader, writer = await client.open()
        writer.write(b"GET /whole HTTP/1.1\r\n")
        await until(lambda: len(client.door) == 1)
        began = client.door.now
        time.sleep(2 * LIMITS.idle_seconds)
        await until(lambda: client.door.now - began > LIMITS.idle_seconds / 3)
        writer.write(b"Host: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"ok")


# --- connection limits ----------------------------------------------------------------------------------------------


async def test_connections_over_limit_are_rejected_until_one_closes() -> None:
    async with serving(PATIENT) as client:
        keep = [await client.open() for _ in range(LIMITS.connections)]
        await until(lambda: len(client.door) == LIMITS.connections)
        refused = await client.sends(request("GET /whole"))
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"retry-after" in refused
        keep[0][1].transport.abort()
        await until(lambda: len(client.door) < LIMITS.connections)
        assert (await client.sends(request("GET /whole", CLOSE))).endswith(b"ok")


class Place:
    """A connection with an address."""

    def __init__(self, address: str) -> None:
        self.address = address

    def check(self, now: float) -> None:
        pass


def test_connections_per_address_are_limited() -> None:
    door = Connections(msgspec.structs.replace(LIMITS, per_address=2))
    ours = [Place("10.0.0.1"), Place("10.0.0.1")]
    assert [door.admit(one) for one in (*ours, Place("10.0.0.1"), Place("10.0.0.2"))] == [True, True, False, True]
    six = [Place("2001:db8::1"), Place("2001:db8::2%eth0"), Place("2001:db8::3"), Place("2001:db8:0:1::1")]
    assert [door.admit(one) for one in six] == [True, True, False, True]
    assert not door.admit(Place("::ffff:10.0.0.1"))
    door.leave(ours[0])
    door.leave(ours[0])
    assert door.admit(Place("::ffff:10.0.0.1"))
    assert door.refused == {"too many connections of one address": 3}


def test_refusals_are_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    door = Connections(LIMITS)
    door.report()
    door.refused["a reason"] += 3
    door.report()
    door.report()
    assert capsys.readouterr().out.count("a reason") == 1


async def test_connection_checks_yield_to_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "POLL_SECONDS", 0.0)
    door, looks = Connections(msgspec.structs.replace(LIMITS, connections=1000)), list[int]()
    turn = 0

    class Checked(Place):
        def check(self, now: float) -> None:
            looks.append(turn)
            for one in (self, *pair):
                door.leave(one)

    pair = [Checked("10.0.0.2") for _ in range(2)]
    for one in [*(Checked("10.0.0.1") for _ in range(10 * connections.TOGETHER)), *pair]:
        door.admit(one)
    watching = asyncio.create_task(door.watch())
    while len(door):
        turn += 1
        await asyncio.sleep(0)
    watching.cancel()
    assert max(looks.count(one) for one in looks) == connections.TOGETHER
    assert len(looks) <= 10 * connections.TOGETHER + 1, "those that left meanwhile are not looked at"
