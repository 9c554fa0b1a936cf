"""The limits of a live socket: the resources of one client, and the errors beyond them."""

import asyncio
import socket
from functools import partial
from itertools import count, takewhile
from unittest import mock

import msgspec
import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

from app.http.bodies import BodyQuota
from app.sessions import socket as socket_module
from app.sessions import socket_audio, socket_quota
from infra.transport import connections, socket_connection
from tests.contract.api import silence, tone
from tests.unit.app.conftest import OPTIONS, House
from tests.unit.app.sessions.sockets import END, HALF, LIMITS, greeted, handshake, opened, path_of, place, refused
from tests.waiting import until
from topics.errors import Unavailable
from topics.sessions.records import Chunk
from topics.turns import Holder


@pytest.mark.parametrize("parts", [1, 5])
async def test_oversized_message_is_rejected(house: House, parts: int) -> None:
    whole = silence(1048576 / 32000)
    assert len(whole) == 1048576
    async with greeted(house) as (session, line):
        await line.socket.send(whole)
        assert (await line.next_of("ack"))["next_chunk"] == 1
        part = (len(whole) + parts) // parts
        await line.socket.send([bytes(part)] * parts)
        await refused(line, 1009, 413)
    assert len(house.sessions.sessions[session].chunks) == 1


@pytest.mark.parametrize(
    ("chunk", "count", "held"),
    [
        pytest.param(silence(4), 200, range(9, 17), id="bytes"),
        pytest.param(b"x", 10_000, range(1001, 4200), id="messages"),
    ],
)
async def test_unacknowledged_bytes_are_limited(
    house: House, monkeypatch: pytest.MonkeyPatch, chunk: bytes, count: int, held: range
) -> None:
    """1 to 2 MiB of chunks; and as many as would fit, however small they are."""
    monkeypatch.setattr(socket_audio, "UNACKNOWLEDGED_BYTES", 1024 * 1024)
    house.sessions.slow = house.sessions.paused = True
    async with greeted(house, "?events=none") as (_, line):

        async def send() -> None:
            for _ in range(count):
                await line.socket.send(chunk)

        sending = asyncio.create_task(send())
        await until(lambda: len(house.sessions.unfolded) in held)
        await asyncio.sleep(0.3)
        assert len(house.sessions.unfolded) in held
        assert len(chunk) == 1 or not sending.done()
        house.sessions.catch_up()
        await sending
        while (await line.next_of("ack"))["next_chunk"] < count:
            pass


async def test_full_log_delays_client_then_closes_socket(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with greeted(house) as (session, line):
        house.sessions.failure = Unavailable("the log's queue is full", 3)
        for _ in range(3):
            await line.socket.send(HALF)
        await asyncio.sleep(0.1)
        house.sessions.failure = None
        while (await line.next_of("ack"))["next_chunk"] < 3:
            pass
        monkeypatch.setattr(socket_audio, "PATIENCE_SECONDS", 0.1)
        house.sessions.failure = Unavailable("the log's queue is full", 3)
        await line.socket.send(HALF)
        assert (await refused(line, 1013, 503))["retry_after"] == 3
    assert len(house.sessions.sessions[session].chunks) == 3


async def test_end_without_room_in_log_closes_socket_with_1013(house: House) -> None:
    async with greeted(house) as (_, line):
        house.sessions.failure = Unavailable("the log's queue is full", 3)
        await line.socket.send(END)
        assert (await refused(line, 1013, 503))["retry_after"] == 3


async def test_client_is_not_read_while_log_is_full(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_audio, "UNACKNOWLEDGED_BYTES", 1024**3)
    house.sessions.paused = True
    chunk = silence(8)
    async with greeted(house) as (_, line):

        async def send() -> None:
            for _ in range(60):
                await line.socket.send(chunk)

        house.sessions.failure = Unavailable("the log's queue is full", 3)
        sending = asyncio.create_task(send())
        await asyncio.sleep(0.3)
        assert not sending.done()
        house.sessions.failure = None
        await sending
        while (await line.next_of("ack"))["next_chunk"] < 60:
            pass


async def sent_audio(house: House, line: socket_quota.QuotaLine) -> socket_audio.SentAudio:
    """Return the audio of a new session's socket."""
    session = await opened(house)
    context = mock.Mock(sessions=house.sessions, commands=map(str, count()), log_chunks=False, chunk_limit=1 << 20)
    audio = socket_audio.SentAudio(context, Holder("organization", "project", session), line, mock.Mock())
    view = house.sessions.view(session)
    assert view is not None
    audio.begin(view.head, view.opened)
    return audio


async def test_in_a_crowd_each_socket_sends_one_chunk_after_the_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_audio, "CROWD", 2)
    line = socket_quota.QuotaLine(BodyQuota(1 << 30))
    crowd = [True] * 3
    audio = await sent_audio(house, line)
    house.sessions.paused = True
    audio.take(HALF)
    line.join("another project", crowd.pop)
    line.join("another project", crowd.pop)
    line.join("project", crowd.pop)
    waited = audio.waits_for_quota
    line.join("project", lambda: not crowd)
    assert (waited, audio.waits_for_quota) == (False, True), "a chunk is under way when two sockets of the project wait"
    await until(lambda: not crowd)
    await until(lambda: not audio.waits_for_quota)


async def test_waiting_chunks_are_appended_together(house: House) -> None:
    bodies = BodyQuota(1 << 30)
    audio = await sent_audio(house, socket_quota.QuotaLine(bodies))
    house.sessions.paused = True
    house.sessions.failure = Unavailable("the log's queue is full")
    fit = socket_audio.WAITING_BYTES // (len(HALF) + socket_audio.CHUNK_COST)

    def is_full() -> bool:
        audio.take(HALF)
        return audio.waits_for_quota

    assert [is_full() for _ in range(fit + 1)] == [False] * fit + [True]
    assert bodies.used == audio.size
    house.sessions.failure, before = None, len(house.sessions.appended)
    await until(lambda: len(house.sessions.appended) > before)
    assert len(house.sessions.appended) == before + fit + 1
    assert (audio.complete, audio.waits_for_quota, bodies.used) == (True, False, 0)


async def test_chunks_that_find_no_memory_to_wait_close_their_socket(house: House) -> None:
    house = House(msgspec.structs.replace(OPTIONS, body_bytes=len(HALF)))
    async with greeted(house) as (_, line):
        house.sessions.failure = Unavailable("the log's queue is full")
        await line.socket.send(HALF)
        error = await refused(line, 1013, 503)
    assert ("memory" in error["error"], error["retry_after"]) == (True, 1)


async def test_sockets_wait_for_log_in_order_per_project() -> None:
    line, went, room = socket_quota.QuotaLine(BodyQuota(0)), list[str](), {"a": 0, "b": 1}

    def go_on(project: str, name: str) -> bool:
        if not room[project]:
            return False
        room[project] -= 1
        went.append(name)
        return True

    for name in ("a1", "a2", "b1"):
        line.join(name[0], partial(go_on, name[0], name))
    await until(lambda: went)
    assert went == ["b1"]
    room["a"] = 2
    await until(lambda: len(went) == 3)
    assert went == ["b1", "a1", "a2"]


async def test_sockets_per_project_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_quota, "PROJECT_SOCKETS", 2)
    house = House()
    session = await opened(house)
    listening = path_of(session, "?mode=listen")
    async with place(house) as here, here.line(listening) as one, here.line(listening) as two:
        await one.next()
        await two.next()
        async with here.line(listening) as three:
            assert (await refused(three, 1013, 503))["retry_after"] == 10
        await one.socket.close()
        await until(lambda: len(house.sessions.followers[session]) == 1)
        async with here.line(listening) as four:
            assert (await four.next())["type"] == "hello"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look after connections so often that the time for which the process stood still counts little."""
    monkeypatch.setattr(connections, "POLL_SECONDS", 0.1)


@pytest.mark.slow
async def test_client_without_pong_is_disconnected(house: House, looks: None) -> None:
    session = await opened(house)
    limits = msgspec.structs.replace(LIMITS, idle_seconds=1.5)
    async with place(house, limits) as here:
        reader, writer = await here.raw(path_of(session))
        got = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        async with here.greeted(path_of(session, "?mode=listen")) as line:
            await asyncio.sleep(3)
            assert line.socket.close_code is None, "its pongs are enough"
    assert b"\x89\x00" in got, "it was pinged"
    assert (4408).to_bytes(2, "big") in got
    assert b'"status_code":408' in got
    assert len(here.door) == 0


@pytest.mark.slow
async def test_stalled_reader_is_disconnected(house: House, looks: None) -> None:
    session = await opened(house)
    await house.sessions.submit(session, Chunk("c", 0, tone(1) * 2000))
    await until(lambda: house.sessions.sessions[session].scores)
    limits = msgspec.structs.replace(LIMITS, idle_seconds=1.5)
    async with place(house, limits) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port, limit=1024)
        writer.write(handshake(path_of(session, "?mode=listen&after=start"), here.port))
        await reader.readuntil(b"\r\n\r\n")
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        house.sessions.sessions[session].scores *= 200
        head = house.sessions.sessions[session].head
        house.sessions.sessions[session].head = msgspec.structs.replace(head, windows=head.windows * 200)
        await until(lambda: len(here.door) == 1)
        while len(here.door):
            writer.write(Frame(Opcode.PONG, b"").serialize(mask=True))  # a client without pongs would count as gone
            await asyncio.sleep(0.1)
        writer.close()
    assert any("nothing was taken" in reason for reason in here.door.refused)


async def test_input_of_sockets_takes_turns_by_project(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the frames are: while a project's pings or tiny messages wait, another project has its turn."""
    frames = {
        "pings": Frame(Opcode.PING, b"").serialize(mask=True) * 4000,
        "pongs": Frame(Opcode.PONG, b"").serialize(mask=True) * 4000,
        "messages": Frame(Opcode.BINARY, b"xx").serialize(mask=True) * 400,
        "parts": Frame(Opcode.BINARY, b"x", fin=False).serialize(mask=True)
        + Frame(Opcode.CONT, b"", fin=False).serialize(mask=True) * 4000,
        "texts": Frame(Opcode.TEXT, b"", fin=False).serialize(mask=True)
        + Frame(Opcode.CONT, b"x", fin=False).serialize(mask=True) * 4000,
    }
    fed: list[tuple[str, int]] = []
    feed = socket_connection.SocketConnection._feed

    def noted(connection: socket_connection.SocketConnection, data: bytes) -> int:
        number = feed(connection, data)
        fed.append((connection._receiver.holder.project, number))
        return number

    monkeypatch.setattr(socket_connection.SocketConnection, "_feed", noted)
    async with place(house) as here, here.greeted(path_of(await opened(house, "quiet"))) as line:
        loud = [await here.raw(path_of(await opened(house, "loud"))) for _ in frames]
        for (_, writer), data in zip(loud, frames.values(), strict=True):
            writer.write(data)
        await until(lambda: len(fed) > len(frames))
        before = len(fed)
        await line.socket.send(silence(1))
        await line.next_of("ack")
        # Until it is read, not until its acknowledgement, for which others work.
        since = [number for _, number in takewhile(lambda one: one[0] == "loud", fed[before:])]
        assert before + len(since) < len(fed)
        for _, writer in loud:
            writer.close()
    assert max(number for _, number in fed) <= 512 // 6 + 1, "frames of one slice"
    assert sum(since) < 8000, "most of what the other project has sent still waits"


async def test_message_may_arrive_byte_by_byte(house: House) -> None:
    session = await opened(house)
    async with place(house) as here:
        _, writer = await here.raw(path_of(session))
        for byte in Frame(Opcode.BINARY, HALF[:300]).serialize(mask=True):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        await until(lambda: house.sessions.sessions[session].chunks == [HALF[:300]])
        writer.close()


async def test_incomplete_messages_count_from_their_first_byte(house: House) -> None:
    """Small ones of many sockets take as much memory as one large one."""
    context = mock.Mock(sessions=house.sessions, chunk_limit=20)
    room, holder = BodyQuota(64), Holder("organization", "project", await opened(house))
    whole = Frame(Opcode.BINARY, bytes(10)).serialize(mask=True)
    receiver = socket_module.Socket(context, mock.Mock(), room, holder, sends=False)
    door = connections.Connections(LIMITS)
    line, other = socket.socketpair()
    transport = mock.Mock(is_closing=lambda: False, get_extra_info=lambda name: line)
    one = socket_connection.SocketConnection(transport, Protocol(Side.SERVER), receiver, door, mock.Mock(), "")
    receiver.wire = one
    one.resume_reading()
    for part, held in ((whole[:8], 2), (whole[8:-1], 9), (whole[-1:], 0)):  # Six bytes are no data.
        one.data_received(part)
        await until(lambda held=held: room.used == held)  # type: ignore[misc]
    line.close()
    other.close()


@pytest.mark.slow
async def test_incomplete_messages_use_project_quota(house: House) -> None:
    """Each has one byte less than a mebibyte; past the share of a session the next one is refused."""
    small = House(msgspec.structs.replace(OPTIONS, body_bytes=8 * 1024 * 1024))
    session = await opened(small)
    longest = 1024 * 1024
    data = Frame(Opcode.BINARY, bytes(longest)).serialize(mask=True)[:-1]
    async with place(small) as here:
        held = []
        for _ in range(4):
            reader, writer = await here.raw(path_of(session, "?mode=listen"))
            writer.write(data)
            held.append((reader, writer))
        first = asyncio.create_task(held[-1][0].read())
        await until(lambda: len(here.door) < 4)
        for _, writer in held:
            writer.close()
        first.cancel()
        await until(lambda: len(here.door) == 0)


@pytest.mark.slow
async def test_frames_per_message_are_limited(house: House) -> None:
    session = await opened(house)
    async with place(house) as here:
        for count, last in ((16_383, True), (40_000, False)):
            reader, writer = await here.raw(path_of(session, "?events=none"))
            await reader.readuntil(b"}}")
            writer.write(b"\x02\x81\0\0\0\0x" + b"\x00\x80\0\0\0\0" * (count - 1) + b"\x80\x81\0\0\0\0y" * last)
            if last:
                await reader.readuntil(b'"next_chunk":1')
            else:
                assert (1009).to_bytes(2, "big") in await asyncio.wait_for(reader.read(), 60)
            writer.close()
    assert house.sessions.sessions[session].chunks == [b"xy"]
