"""Requests for another node's session are forwarded once, complete, and get the owner's answers."""

import asyncio
import base64
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import httpx2
import msgspec
import pytest
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from app.cluster import node_client
from app.cluster.forwarding import UNTRUSTED, Forwarder, Placement
from app.cluster.node_client import NoConnection, NodeClient, Request
from app.http.bodies import BodyQuota
from app.http.call import Call
from app.http.errors import ClientGone
from app.http.replies import NO_CONTENT, StreamReply
from tests.contract.api import RAW, Api, tone
from tests.contract.conftest import api
from tests.unit.app.conftest import KEY, OPTIONS, House, Running, behind_a_server
from tests.unit.app.sessions.sockets import opened, place
from tests.waiting import until
from topics.errors import OwnerAway, Unavailable

__all__ = ["api"]

DATA = {"data": base64.b64encode(tone(1.0)).decode()}


@pytest.fixture
def far(house: House, service: Running, api: Api) -> str:
    """A session of the other node, whose owner is known here."""
    session = api.create()
    house.sessions.elsewhere[session] = service.url
    return session


def test_uploads_and_reads_are_forwarded(http: TestClient, far: str) -> None:
    """The owner's answers are returned unchanged; nothing is appended here."""
    put = http.put(f"/audio_sessions/{far}/chunks/0", json=DATA, headers={"Idempotency-Key": "one"})
    assert (put.status_code, put.json()) == (200, {"session_id": far, "chunk_sequence": 1})
    again = http.put(f"/audio_sessions/{far}/chunks/0", json=DATA, headers={"Idempotency-Key": "one"})
    assert again.json() == put.json(), "the header is passed on"
    page = http.get(f"/audio_sessions/{far}/status", params={"count": "1"}).json()
    assert page["inference"]["page"]["count"] == 1, "the query is passed on"
    assert http.patch(f"/audio_sessions/{far}", json={"make_readonly": True}).status_code == 204
    late = http.put(f"/audio_sessions/{far}/chunks/1", json=DATA)
    assert (late.status_code, late.headers["content-type"]) == (403, "application/json")
    assert http.delete(f"/audio_sessions/{far}").status_code == 204


@pytest.mark.parametrize("number", ["0%3Fa=b", "0%23a", "%2E%2E", "0%C3%A4", "0%FF"])
def test_path_stays_the_same(http: TestClient, api: Api, far: str, number: str) -> None:
    """The owner must not take a part of the path for a query."""
    for client in http, api.http:
        answer = client.put(f"/audio_sessions/{far}/chunks/{number}", json=DATA)
        assert (answer.status_code, answer.json()["error"]) == (400, "chunk_sequence: not an integer")


@pytest.mark.parametrize(("method", "uncertain"), [("PUT", True), ("DELETE", True), ("GET", False)])
async def test_unanswered_write_may_still_succeed(method: str, uncertain: bool) -> None:
    """The owner dies after it has read the request; before, nothing can have been written."""

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    forwarder, scope = Forwarder(1.0), {"method": method, "path": "/", "query_string": b"", "headers": []}
    server = await asyncio.start_server(die, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(Unavailable) as failure:
            await forwarder.forward(scope, url, b"")
    assert str(failure.value).endswith("; the write may still succeed") == uncertain == failure.value.uncertain
    with pytest.raises(Unavailable, match=r"does not answer$"):
        await forwarder.forward(scope, url, b"")
    await forwarder.close()


@pytest.mark.parametrize(("method", "repeated"), [("DELETE", False), ("PUT", False), ("GET", True)])
async def test_only_reads_are_repeated(method: str, repeated: bool) -> None:
    """The owner closes a connection that was used before: it may have read the request or not."""
    asked, served = 0, list[asyncio.Task[None] | None]()

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        served.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError):
            for number in range(2):
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readuntil(b"0\r\n\r\n") if b"chunked" in head else b""
                asked += 1
                if number == 0:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    forwarder, scope = Forwarder(1.0), {"method": method, "path": "/", "query_string": b"", "headers": []}
    server = await asyncio.start_server(answer_once, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        assert (await forwarder.forward(scope, url, b"")).status == 200
        with nullcontext() if repeated else pytest.raises(Unavailable):
            await forwarder.forward(scope, url, b"")
        await forwarder.close()
        await asyncio.gather(*filter(None, served))
    assert asked == 2 + repeated


async def answered(sent: bytes, method: str = "GET") -> tuple[int, bytes, bool]:
    """Return the status and body of an answer of these bytes, and whether the connection is used again."""
    connections = 0

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                for byte in sent:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0)
                if b"length" not in sent and b"chunked" not in sent and b"204" not in sent:
                    break
        writer.close()

    forwarder, scope = Forwarder(1.0), {"method": method, "path": "/", "query_string": b"", "headers": []}
    async with await asyncio.start_server(send, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for _ in range(2):
            reply = await forwarder.forward(scope, url, b"")
            body = b"".join([piece async for piece in reply.pieces]) if isinstance(reply, StreamReply) else reply.body
        await forwarder.close()
        await asyncio.sleep(0.01)
    return reply.status, body, connections == 1


@pytest.mark.parametrize(
    ("sent", "method", "wanted"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\none", "GET", (200, b"one", True)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\none", "GET", (200, b"one", False)),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n", "HEAD", (200, b"", False)),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "DELETE", (204, b"", True)),
        (b"HTTP/1.1 102 Wait\r\n\r\nHTTP/1.1 404 No\r\ncontent-length: 1\r\n\r\nx", "GET", (404, b"x", True)),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "GET", (200, b"a", False)),
        # What comes after an answer belongs to no other.
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxHTTP", "GET", (200, b"x", False)),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", "GET", (200, b"until the end", False)),
    ],
)
async def test_answers_end_as_they_say(sent: bytes, method: str, wanted: tuple[int, bytes, bool]) -> None:
    assert await answered(sent, method) == wanted


async def test_answer_that_is_not_http_is_none() -> None:
    with pytest.raises(OwnerAway):
        await answered(b"SSH-2.0\r\n")


async def test_silent_owner_costs_one_request_at_a_time_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, answers = 0, asyncio.Event()
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def connecting(*given: Any, **named: Any) -> Any:
        nonlocal tried
        tried += 1
        await answers.wait()
        return await connect(*given, **named)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client, request = NodeClient(), Request("GET", b"/", (), None, 10.0, 10.0)

    async def fails(seconds: float) -> None:
        with pytest.raises(NoConnection):
            await client.ask(url, request, seconds)

    monkeypatch.setattr(loop, "create_connection", connecting)
    monkeypatch.setattr(node_client, "SILENT_SECONDS", 3600.0)
    async with server:
        await fails(0.01)
        await fails(60.0)
        assert tried == 1
        monkeypatch.setattr(node_client, "SILENT_SECONDS", 0.0)
        trying = asyncio.create_task(client.ask(url, request, 60.0))
        await until(lambda: tried == 2)
        monkeypatch.setattr(node_client, "SILENT_SECONDS", 3600.0)
        await fails(60.0)
        answers.set()
        for answered in [await trying, await client.ask(url, request, 60.0)]:
            assert answered.status == 204
            answered.close()
    assert tried == 3


async def test_owner_that_reads_nothing_is_given_up() -> None:
    """A process that stands still: its machine still acknowledges what its buffers hold."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1 << 20)

    forwarder, scope = Forwarder(1.0), {"method": "PUT", "path": "/", "query_string": b"", "headers": []}
    forwarder._seconds = 0.5
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(Unavailable, match="may still succeed"):
        await forwarder.forward(scope, f"http://127.0.0.1:{silent.getsockname()[1]}", endless())
    await forwarder.close()


@pytest.mark.parametrize("error", [ClientGone(), ValueError(), TimeoutError()])
async def test_error_of_body_passes_through(error: Exception) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"one"
        raise error

    forwarder, scope = Forwarder(1.0), {"method": "PUT", "path": "/", "query_string": b"", "headers": []}
    with socket.create_server(("127.0.0.1", 0)) as owner, pytest.raises(type(error)) as raised:
        await forwarder.forward(scope, f"http://127.0.0.1:{owner.getsockname()[1]}", broken())
    assert raised.value is error
    await forwarder.close()


@pytest.mark.parametrize("url", ["http://:::8000", "http://" + 64 * "a", "ftp://node"])
async def test_owner_with_unusable_url_does_not_answer(url: str) -> None:
    """A node of another version may publish such a URL."""
    forwarder, scope = Forwarder(1.0), {"method": "PUT", "path": "/", "query_string": b"", "headers": []}
    with pytest.raises(Unavailable, match=r"does not answer$"):
        await forwarder.forward(scope, url, b"")
    await forwarder.close()


async def test_owner_whose_certificate_is_not_trusted_gets_no_key(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=x -keyout k -out c"
    await asyncio.to_thread(subprocess.run, ["openssl", *made.split()], cwd=tmp_path, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "c", tmp_path / "k")
    heard = list[bytes]()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1))

    forwarder, scope = Forwarder(1.0), {"method": "PUT", "path": "/", "query_string": b"", "headers": []}
    async with await asyncio.start_server(hear, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(OwnerAway, match=f"^{UNTRUSTED}self-signed certificate$"):
            await forwarder.forward(scope, url, b"body")
    await forwarder.close()
    assert not any(heard)


async def test_streamed_answer_releases_its_connection_even_if_nobody_reads_it() -> None:
    """Such as the 502 of a proxy between the nodes, which has no Content-Length."""
    released: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\ntransfer-encoding: chunked\r\n\r\n6\r\n<html>\r\n")
        ended, _ = await asyncio.wait([asyncio.create_task(reader.read())], timeout=30)
        writer.close()
        released.set_result(bool(ended))

    forwarder, scope = Forwarder(1.0), {"method": "GET", "path": "/", "query_string": b"", "headers": []}
    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        reply = await forwarder.forward(scope, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", b"")
        assert isinstance(reply, StreamReply)
        assert reply.status == 502
        await reply.pieces.aclose()
        assert await released
    await forwarder.close()


def test_answer_keeps_its_headers(http: TestClient, house: House) -> None:
    owner = House()
    owner.sessions.stands_in = True
    with behind_a_server(owner.app) as url:
        body = {"content_type": RAW, "type": "stream"}
        with httpx2.Client(base_url=url, headers={"X-Api-Key": KEY}, timeout=60) as direct:
            session = direct.post("/audio_sessions/", json=body).json()["session_id"]
            house.sessions.elsewhere[session] = url
            path = f"/audio_sessions/{session}/status"
            own, passed = direct.get(path), http.get(path)
    assert passed.headers["earshot-note"]
    assert set(own.headers) - set(passed.headers) == {"date"}


@pytest.mark.parametrize("path", ["/audio_sessions/{}/chunks/0", "/sense/api/v1/audio_sessions/{}/predict"])
@pytest.mark.parametrize(("body", "encoding", "status"), [(bytes(4 << 20), "identity", 413), (b"{}", "gzip", 415)])
async def test_owner_checks_key_and_session_before_body(path: str, body: bytes, encoding: str, status: int) -> None:
    locked = msgspec.structs.replace(OPTIONS, sessions_need_key=True)
    owner, house, unknown = House(locked), House(locked), "A" * 24
    session = await opened(owner)
    method = "POST" if path.endswith("predict") else "PUT"
    async with place(owner) as there, place(house) as here, httpx2.AsyncClient(timeout=60) as client:
        house.sessions.elsewhere = dict.fromkeys((session, unknown), f"http://127.0.0.1:{there.port}")
        for key, id, wanted in (("wrong", session, 401), (KEY, unknown, 404), (KEY, session, status)):
            headers = {"X-Api-Key": key, "Content-Encoding": encoding}
            for node in (there, here):
                url = f"http://127.0.0.1:{node.port}{path.format(id)}"
                for content in (body, _pieces(body)):
                    answer = await client.request(method, url, content=content, headers=headers)
                    assert answer.status_code == wanted


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """Yield a body without its length."""
    yield body


def test_request_is_forwarded_only_once(http: TestClient, house: House, far: str) -> None:
    """If two nodes disagree about the owner, the second answers."""
    answer = http.get(f"/audio_sessions/{far}/status", headers={"X-Earshot-Forwarded": "1"})
    assert (answer.status_code, answer.json()["error"]) == (503, "another node owns it")


def test_log_names_owner_that_refuses_or_is_away(house: House, http: TestClient, far: str) -> None:
    with capture_logs() as lines:
        http.put(f"/audio_sessions/{far}/chunks/9", json=DATA)
        owner, house.sessions.elsewhere[far] = house.sessions.elsewhere[far], "http://127.0.0.1:9"
        http.get(f"/audio_sessions/{far}/status")
    refusal, away = (line for line in lines if "owner" in line)
    assert (refusal["owner"], refusal["session_id"], refusal["status"]) == (owner, far[:8], 409)
    assert "owns it" in refusal["reason"]
    assert (away["owner"], away["error"], away["status"]) == (
        "http://127.0.0.1:9",
        "the node that owns it does not answer",
        503,
    )


def forwarded(*parts: bytes, gone: bool = False) -> bytes:
    """Return what a node without memory for bodies forwards of a body in parts."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.disconnect"} if gone else {"type": "http.request"})

    async def forward(scope: object, owner: str, body: AsyncIterable[bytes], small: bool) -> object:
        passed.extend([part async for part in body])
        return NO_CONTENT

    passed: list[bytes] = []
    placement = Placement(mock.Mock(spec=Forwarder, forward=forward), mock.Mock(), {}, mock.Mock(), 10)
    call = Call({"method": "PUT", "headers": []}, mock.AsyncMock(side_effect=messages), BodyQuota(0))
    assert asyncio.run(placement.forward(call, "owner")) is NO_CONTENT
    return b"".join(passed)


def test_body_is_streamed_without_using_memory() -> None:
    """This node can check neither the session nor its key, so forwarded bodies must not use its memory."""
    assert forwarded(b"one ", b"two ", b"3") == b"one two 3"
    assert forwarded(b"one ", b"two ", b"three", b"four") == b"one two thr", "enough for the owner to refuse it"
    with pytest.raises(ClientGone):
        forwarded(b"one ", gone=True)
