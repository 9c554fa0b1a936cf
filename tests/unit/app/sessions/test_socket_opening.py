"""Opening a live socket: keys, origins, protocols, created sessions, and sessions of another node."""

import asyncio
import base64
import json
from collections.abc import Awaitable
from itertools import accumulate, product
from unittest import mock

import msgspec
import pytest
import uvloop
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol

from app.http.errors import ClientGone
from app.identity import authentication
from app.identity import keys as keys_module
from app.sessions import live, socket_opening, socket_quota
from infra.transport.socket_upgrade import SocketUpgrade
from infra.transport.tunnel import FrameCount
from tests.contract.api import RAW, tone
from tests.unit.app.conftest import KEY, OPTIONS, House
from tests.unit.app.double import BEGINNING
from tests.unit.app.sessions.sockets import (
    END,
    HALF,
    MAKING,
    PROTOCOL,
    forwarded,
    handshake,
    of_type,
    opened,
    path_of,
    place,
    refused,
    refused_either_way,
)
from tests.waiting import turn, until
from topics import keys
from topics.errors import Unavailable
from topics.folding import Verdict
from topics.ports.directory import Principal
from topics.ports.lists import Coverage
from topics.sessions.records import Chunk, Deleted, Opened


async def test_socket_creates_session(house: House) -> None:
    query = (
        MAKING + "&metadata=%7B%22room%22%3A%22barn%22%7D&default_sensitivity=1&tags_sensitivity=%7B%22Siren%22%3A2%7D"
    )
    async with place(house) as here, here.line(query, x_api_key=KEY) as line:
        session = (await line.next())["session_id"]
        known = house.sessions.sessions[session].opened
    assert (known.project, known.kind, known.content_type) == ("project", "stream", RAW)
    assert (known.metadata, known.default_sensitivity, known.tags_sensitivity) == ({"room": "barn"}, 1, {"Siren": 2})
    assert (known.window_ms, known.hop_ms) == (1000, 500)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("", "content_type"),
        ("?content_type=audio/none", "content_type"),
        ("?content_type=audio/wav&metadata=x", "metadata"),
        (f"?content_type=audio/wav;%20rate={'0' * 255}", "content_type"),
        ("?content_type=audio/wav&type=file", "type"),
        ("?content_type=audio/wav&mode=both", "mode"),
        ("?content_type=audio/wav&events=all", "events"),
        ("?content_type=audio/wav&after=yesterday", "after"),
        ("?content_type=audio/wav&request_id=short", "request_id"),
        ("?content_type=audio/wav&request_id=", "request_id"),
        ("?content_type=audio/wav&request_id=request-%ff", "UTF-8"),
        ("?content_type=audio/wav&file_name=%ed%a0%80", "UTF-8"),
        ("?content_type=audio/wav&total_size=0", "total_size"),
    ],
)
async def test_invalid_parameters_are_rejected(house: House, query: str, named: str) -> None:
    async with place(house) as here:
        for error in await refused_either_way(here, "/api/v1/socket" + query, 4400, 400, x_api_key=KEY):
            assert named in error
    assert not house.sessions.sessions


@pytest.mark.parametrize("why", ["no socket", "no listener", "no verdict", "hung up"])
async def test_refused_creation_leaves_no_session(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    """The session is stored before the refusal; without a `request_id`, nobody has its id."""
    if why == "no socket":
        monkeypatch.setattr(socket_quota, "PROJECT_SOCKETS", 0)
    elif why == "no listener":
        monkeypatch.setattr(live, "PROJECT_LISTENERS", 0)
    elif why == "hung up":
        monkeypatch.setattr(SocketUpgrade, "accept", mock.Mock(side_effect=ClientGone))
    house = House()
    if why == "no verdict":
        store = house.sessions.submit
        monkeypatch.setattr(house.sessions, "submit", lambda *command: _without_verdict(store(*command)))
    async with place(house) as here:
        for query, appended in (("", [Opened, Deleted]), ("&request_id=request-1", [Opened])):
            house.sessions.appended.clear()
            reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
            writer.write(handshake(f"{MAKING}&events=level{query}", here.port, f"X-Api-Key: {KEY}"))
            await asyncio.wait_for(reader.read(1), 30)
            await turn()
            writer.close()
            assert [type(command) for command in house.sessions.appended] == appended
    assert len(house.sessions.sessions) == 1


async def _without_verdict(submitted: Awaitable[Verdict]) -> Verdict:
    await submitted
    raise Unavailable("the log was too slow", uncertain=True)


async def test_same_request_id_joins_same_session(house: House) -> None:
    async with place(house) as here:
        sessions = []
        for request in ("request-1", "request-1", "request-2"):
            async with here.line(f"{MAKING}&request_id={request}", x_api_key=KEY) as line:
                sessions.append((await line.next())["session_id"])
    assert sessions[0] == sessions[1] != sessions[2]
    assert len(house.sessions.sessions) == 2


async def test_request_id_of_deleted_session_opens_no_other(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_opening, "time", mock.Mock(time=lambda: BEGINNING // 1000))
    async with place(house) as here:
        async with here.line(f"{MAKING}&request_id=request-1", x_api_key=KEY) as line:
            session = (await line.next())["session_id"]
        await house.sessions.submit(session, Deleted("d"))
        async with here.line(f"{MAKING}&request_id=request-1", x_api_key=KEY) as line:
            await refused(line, 4404, 404)
    assert not house.sessions.sessions


async def test_request_id_is_valid_across_hour_boundary(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of a session also owns those that the same request created before."""
    house.sessions.covered = Coverage(frozenset(range(64)), 64, frozenset())
    turn = (BEGINNING // 3_600_000 + 1) * 3600
    sessions = []
    async with place(house) as here:
        for now in (turn - 1, turn, turn + 3600):
            monkeypatch.setattr(socket_opening, "time", mock.Mock(time=lambda now=now: now))
            async with here.line(f"{MAKING}&request_id=request-1", x_api_key=KEY) as line:
                sessions.append((await line.next())["session_id"])
    assert sessions[0] == sessions[1] != sessions[2]
    assert len({keys.partition_of(session, 64) for session in sessions}) == 1


def in_protocol(key: str) -> str:
    return "earshot.key64." + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


async def test_key_is_accepted_in_headers_and_protocol_only(house: House) -> None:
    async with place(house) as here:
        async with here.line(MAKING, x_api_key=KEY) as line, here.line(MAKING, authorization=f"Bearer {KEY}") as other:
            assert (await line.next())["type"] == (await other.next())["type"] == "hello"
        async with here.line(MAKING, protocols=("earshot.v1", in_protocol(KEY))) as line:
            assert (await line.next())["type"] == "hello"
            assert line.socket.subprotocol == "earshot.v1"
        for protocols in (("earshot.v1",), ("earshot.v1", in_protocol("wrong")), ("earshot.v1", "earshot.key64.%")):
            async with here.line(f"{MAKING}&x_api_key={KEY}&key={KEY}", protocols=protocols) as line:
                await refused(line, 4401, 401)
        with pytest.raises(InvalidStatus, match="401"):
            async with here.line(MAKING, protocols=()):
                pass


async def test_socket_opens_without_subprotocol(house: House) -> None:
    session = await opened(house)
    async with place(house) as here, here.line(path_of(session), protocols=()) as line:
        assert (await line.next())["type"] == "hello"
        assert line.socket.subprotocol is None


async def test_deployment_may_require_key_for_sessions(house: House) -> None:
    locked = House(msgspec.structs.replace(OPTIONS, sessions_need_key=True))
    own, foreign = await opened(locked), await opened(locked, "others")
    async with place(locked) as here:
        for session in (own, "malformed"):
            async with here.line(path_of(session)) as line:
                await refused(line, 4401, 401)
        async with here.line(path_of(foreign), x_api_key=KEY) as line:
            await refused(line, 4404, 404)
        async with here.line(path_of(own), x_api_key=KEY) as line:
            assert (await line.next())["type"] == "hello"


async def test_spent_free_seconds_refuse_no_session(house: House) -> None:
    """Sessions spend none, and the contract has 402 for jobs only."""
    house.directory.keys[KEY] = Principal("project", "organization", free_seconds=1200)
    house.directory.spent.add("project")
    session = await opened(house)
    async with place(house) as here:
        for path in MAKING, path_of(session):
            async with here.line(path, x_api_key=KEY) as line:
                assert (await line.next())["type"] == "hello"


@pytest.mark.parametrize(
    ("origin", "welcome"), [("https://page.example", True), ("https://evil.example", False), ("http://[", False)]
)
async def test_only_allowed_origins_may_open_sockets(origin: str, welcome: bool) -> None:
    house = House(msgspec.structs.replace(OPTIONS, cors_origins=("https://page.example",)))
    session = await opened(house)
    async with place(house) as here:
        async with here.line(path_of(session), origin=f"http://127.0.0.1:{here.port}") as line:
            assert (await line.next())["type"] == "hello"
        if welcome:
            async with here.line(path_of(session), origin=origin) as line:
                assert (await line.next())["type"] == "hello"
        else:
            await refused_either_way(here, path_of(session), 4403, 403, origin=origin)


@pytest.mark.parametrize(
    ("host", "origin", "own"),
    [
        ("service.example:443", "https://service.example", True),
        ("service.example", "http://service.example:80", True),
        ("service.example:443", "http://service.example", False),
        ("service.example:8443", "https://service.example", False),
    ],
)
async def test_default_port_does_not_change_own_origin(host: str, origin: str, own: bool) -> None:
    house = House()
    url = f"ws://{host}{path_of(await opened(house))}"
    async with (
        place(house) as here,
        connect(
            url,
            host="127.0.0.1",
            port=here.port,
            additional_headers={"Origin": origin},
            subprotocols=[Subprotocol(PROTOCOL)],
            proxy=None,
        ) as socket,
    ):
        assert json.loads(await socket.recv())["type"] == ("hello" if own else "error")


@pytest.mark.parametrize("session", ["nothing", "A" * 24])
async def test_unknown_session_is_rejected(house: House, session: str) -> None:
    async with place(house) as here:
        await refused_either_way(here, path_of(session), 4404, 404)


async def test_rotating_key_closes_its_sockets(house: House) -> None:
    session = await opened(house)
    async with (
        place(house) as here,
        here.line(MAKING, x_api_key=KEY) as with_it,
        here.line(path_of(session), x_api_key=KEY) as with_it_too,
        here.line(path_of(session, "?mode=listen")) as without,
    ):
        for line in (with_it, with_it_too, without):
            await line.next()
        house.revoke_keys()
        for line in (with_it, with_it_too):
            await refused(line, 4401, 401)
        await without.socket.ping()
        assert without.socket.close_code is None


@pytest.mark.parametrize(("session", "good"), [("same", True), ("other", False)])
async def test_cursor_of_other_session_is_rejected(house: House, session: str, good: bool) -> None:
    first = await opened(house)
    second = first if good else await opened(house)
    await house.sessions.submit(first, Chunk("c", 0, tone(1)))
    await turn()
    async with place(house) as here:
        async with here.line(path_of(first, "?after=start")) as line:
            cursor = (await line.next_of("window"))["cursor"]
        async with here.line(path_of(second, f"?after={cursor}")) as line:
            if good:
                assert (await line.next())["cursor"] == cursor
            else:
                assert "another session" in (await refused(line, 4400, 400))["error"]


INVALID = (
    (b": 13", b": 12"),
    (b"dGhlIHNhbXBsZSBub25jZQ==", b"short"),
    (b"Upgrade: websocket\r\n", b""),
)


async def test_invalid_handshakes_are_rejected(house: House) -> None:
    session = await opened(house)
    async with place(house) as here:
        for path, (sent, invalid) in product((path_of(session), MAKING), INVALID):
            wrong = handshake(path, here.port, f"X-Api-Key: {KEY}").replace(sent, invalid)
            assert (await here.answer(wrong, b"}")).startswith(b"HTTP/1.1 400 ")
        assert list(house.sessions.sessions) == [session], "no session was made"
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        unusual = "Sec-WebSocket-Extensions: permessage-deflate", "Connection: keep-alive"
        writer.write(handshake(path_of(session), here.port, *unusual))
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"deflate" not in answer
        writer.write(b"\x81\x02{}")  # unmasked
        assert (1002).to_bytes(2, "big") in await asyncio.wait_for(reader.read(), 30)
        writer.close()


@pytest.mark.parametrize("protocol", ["earshot.v1", "other"])
async def test_refused_version_names_the_supported_one(house: House, protocol: str) -> None:
    """RFC 6455, section 4.4; also if another node refuses."""
    async with forwarded(house) as (_, there, here, session):
        for node, path in ((there, path_of(session)), (here, path_of(session)), (there, MAKING)):
            sent = handshake(path, node.port, f"X-Api-Key: {KEY}").replace(b": 13", b": 8")
            answer = await node.answer(sent.replace(b"earshot.v1", protocol.encode()))
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"\r\nsec-websocket-version: 13\r\n" in answer


async def test_message_sent_with_handshake_is_stored(house: House) -> None:
    session = await opened(house)
    async with place(house) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        mask, data = b"\1\2\3\4", b"abcd"
        frame = b"\x82\x84" + mask + bytes(one ^ other for one, other in zip(data, mask, strict=True))
        writer.write(handshake(path_of(session), here.port) + frame)
        await until(lambda: house.sessions.sessions[session].chunks == [b"abcd"])
        writer.close()
        del reader


async def test_refused_client_that_still_sends_audio_closes_first(house: House) -> None:
    async with place(house) as here:
        reader, writer = await here.raw(MAKING)
        await reader.readuntil((4401).to_bytes(2, "big") + b"API key required")
        writer.write(b"\x82\xfe\x7d\x00\0\0\0\0" + bytes(32_000))
        await writer.drain()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 0.5)
        writer.close()
        await until(lambda: len(here.door) == 0)


async def test_socket_is_forwarded_to_owner(house: House) -> None:
    async with forwarded(house) as (owner, there, here, session):
        async with here.line(path_of(session), origin=f"http://127.0.0.1:{here.port}") as line:
            assert (await line.next())["session_id"] == session
            for _ in range(100):
                await line.socket.send(HALF)
            await line.socket.send(END)
            messages = await line.rest()
            assert await line.code() == 1000
        assert [one["window"] for one in of_type(messages, "window")] == list(range(99))
        await until(lambda: len(here.door) == len(there.door) == 0)
        await refused_either_way(here, path_of(session, "?mode=both"), 4400, 400)
        await owner.sessions.submit(session, Deleted("d"))
        async with here.line(path_of(session)) as line:
            await refused(line, 4404, 404)
        assert not house.sessions.appended


async def test_stopping_node_closes_forwarded_socket(house: House) -> None:
    async with forwarded(house) as (_, _, here, session), here.greeted(path_of(session)) as line:
        here.server.should_exit = True
        assert await line.code() == 1001


async def test_key_rotated_on_forwarding_node_closes_socket(house: House) -> None:
    """The owner learns of it late."""
    async with forwarded(house) as (_, there, here, session):
        wrong = here.line(path_of(session), x_api_key="no key")
        async with here.line(path_of(session, "?mode=listen"), x_api_key=KEY) as line, wrong as other:
            await line.next()
            await other.next()
            house.revoke_keys()
            await refused(line, 4401, 401)
            await other.socket.send(HALF)
            assert (await other.next_of("ack"))["next_chunk"] == 1, "the id is enough, and no key of it has ended"
        await until(lambda: not len(there.door))


async def test_key_that_cannot_be_verified_closes_socket_with_1013(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client may reconnect: nobody has refused the key."""
    async with (
        forwarded(house) as (_, _, here, session),
        here.line(MAKING, x_api_key=KEY) as own,
        here.line(path_of(session), x_api_key=KEY) as other,
    ):
        await own.next()
        await other.next()
        monkeypatch.setattr(keys_module, "GRACE_SECONDS", -1)
        house.directory.down = True
        house.forget_keys()
        for line in (own, other):
            assert (await refused(line, 1013, 503))["retry_after"] == 5


async def test_key_verified_late_still_closes_forwarded_socket(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """This node's directory was down when the socket opened."""
    monkeypatch.setattr(authentication, "RETRY_SECONDS", 0.01)
    async with forwarded(house) as (_, _, here, session):
        house.directory.down = True
        async with here.greeted(path_of(session), x_api_key=KEY) as line:
            house.directory.down = False
            await until(lambda: house.app.state.keyrings[0].known(KEY))
            house.revoke_keys()
            await refused(line, 4401, 401)


async def test_losing_owner_closes_forwarded_socket(house: House) -> None:
    async with forwarded(house) as (owner, there, here, session):
        async with here.greeted(path_of(session)) as line:
            for connection in list(there.server.server_state.connections):
                connection._transport.abort()  # type: ignore[union-attr]
            assert await line.code() == 1001
        async with here.greeted(path_of(session)) as line:
            await owner.sessions.submit(session, Deleted("d"))
            await refused(line, 4404, 404)


def test_socket_is_forwarded_on_uvloop() -> None:
    async def passed_on() -> None:
        async with forwarded(House()) as (_, _, here, session), here.line(path_of(session)) as line:
            assert (await line.next())["type"] == "hello"

    uvloop.run(passed_on())


async def test_unreachable_owner_closes_socket_with_1013(house: House) -> None:
    session = await opened(house)
    house.sessions.elsewhere[session] = "http://127.0.0.1:9"
    async with place(house) as here:
        await refused_either_way(here, path_of(session), 1013, 503)


@pytest.mark.parametrize("sizes", [(0, 1, 125), (126, 65535), (65536, 3)])
@pytest.mark.parametrize("step", [1, 7, 100000])
def test_server_frames_are_counted(sizes: tuple[int, ...], step: int) -> None:
    frames = [Frame(Opcode.TEXT, bytes(size)).serialize(mask=False) for size in sizes]
    data, ends = b"".join(frames), set(accumulate(map(len, frames)))
    count = FrameCount()
    for at in range(0, len(data), step):
        count.feed(data[at : at + step])
        assert count.between == (min(at + step, len(data)) in ends)
    assert count.takes_close
    count.feed(Frame(Opcode.CLOSE, b"\x03\xe8").serialize(mask=False))
    assert not count.takes_close
