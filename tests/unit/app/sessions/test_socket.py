"""The live socket over in-memory ports, with its own client: audio in, events out, and the sender role."""

import asyncio
import gc
from unittest import mock

import msgspec
import pytest
from websockets.server import ServerProtocol

from app.sessions import socket as socket_module
from app.sessions.socket_audio import SentAudio
from infra.transport.http_protocol import ClientConnection
from infra.transport.socket_connection import SocketConnection
from infra.transport.socket_upgrade import SocketUpgrade
from tests.contract.api import RAW, tone, wav
from tests.garbage import uncollected
from tests.unit.app.conftest import House
from tests.unit.app.sessions.sockets import END, HALF, greeted, of_type, opened, path_of, place, refused
from tests.waiting import turn, until
from topics.errors import RecordError
from topics.sessions.records import Chunk, Cursor, Sealed
from topics.sessions.rules import SessionState


async def test_audio_is_acknowledged_and_yields_events(house: House) -> None:
    session = await opened(house)
    async with place(house) as here, here.line(path_of(session)) as line:
        hello = await line.next()
        cursor = hello.pop("cursor")
        assert hello == {
            "type": "hello",
            "session_id": session,
            "next_chunk": 0,
            "state": "writable",
            "limits": {"frame_bytes": 1048576, "unacknowledged_bytes": 2097152, "idle_seconds": 30.0},
            "content_type": RAW,
            "partial_bytes": 0,
            "notes": 0,
        }
        for _ in range(4):
            await line.socket.send(HALF)
        await line.socket.send('{"type":"end","why":"unknown fields are ignored"}')
        messages = await line.rest()
        assert await line.code() == 1000
    acks = [message["next_chunk"] for message in of_type(messages, "ack")]
    assert acks[-1] == 4
    assert acks == sorted(set(acks))
    windows = of_type(messages, "window")
    assert [(one["window"], one["start_time"], one["end_time"]) for one in windows] == [
        (0, 0, 1),
        (1, 0.5, 1.5),
        (2, 1, 2),
    ]
    assert windows[0]["tags"][0]["name"] == "Dog_bark"
    assert len({cursor, *(one["cursor"] for one in windows)}) == 4
    assert messages[-1] == {"type": "end", "cursor": messages[-1]["cursor"]}
    assert line.socket.subprotocol == "earshot.v1"
    assert b"".join(house.sessions.sessions[session].chunks) == 4 * HALF


async def test_chunks_are_pipelined_and_acknowledged_together(house: House) -> None:
    house.sessions.slow = True
    async with greeted(house) as (_, line):
        for _ in range(6):
            await line.socket.send(HALF)
        await until(lambda: len(house.sessions.unfolded) == 6)
        house.sessions.catch_up()
        assert (await line.next_of("ack"))["next_chunk"] == 6


async def test_acknowledgement_is_sent_with_next_window(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_module, "until_tick", lambda now: 3600.0)
    house.sessions.paused = True
    async with greeted(house) as (session, line):
        for _ in range(2):
            await line.socket.send(HALF)
        await until(lambda: len(house.sessions.sessions[session].chunks) == 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(line.next(), 0.1)
        house.sessions.analyse(session)
        said = [await line.next() for _ in range(2)]
        assert [(one["type"], one.get("next_chunk")) for one in said] == [("ack", 2), ("window", None)]


async def test_last_acknowledgement_says_how_far_behind_analysis_is(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_module, "until_tick", lambda now: 10.0)
    house.sessions.paused = True
    async with greeted(house) as (session, line):
        await line.socket.send(HALF)
        await until(lambda: house.sessions.sessions[session].chunks)
        await line.socket.send("not JSON")
        assert await line.next() == {"type": "ack", "next_chunk": 1, "behind": 0.5}


async def test_behind_of_encoded_audio_is_estimated_from_analysis(house: House) -> None:
    session = await opened(house, content_type="audio/wav")
    async with place(house) as here, here.greeted(path_of(session)) as line:
        house.sessions.paused = True
        await line.socket.send(wav(tone(2)))
        assert (await line.next_of("ack"))["behind"] == 0, "nobody knows yet"
        house.sessions.analyse(session)
        house.sessions.sessions[session].head = analysed = msgspec.structs.replace(
            house.sessions.sessions[session].head, cursor=Cursor(1)
        )
        assert analysed.windows == 3
        for number in (2, 3):
            await line.socket.send(wav(tone(2)))
            assert await line.next_of("ack") == {"type": "ack", "next_chunk": number, "behind": 2.0 * (number - 1)}


@pytest.mark.parametrize(
    ("query", "numbers"),
    [("", []), ("?after=start", [0, 1, 2]), ("?after=1", [2]), ("?after=start&events=none", []), ("?after=7", [])],
)
async def test_reader_starts_at_requested_position(house: House, query: str, numbers: list[int]) -> None:
    session = await opened(house)
    await house.sessions.submit(session, Chunk("c", 0, tone(2)))
    await house.sessions.submit(session, Sealed("s"))
    await turn()
    async with place(house) as here, here.line(path_of(session, query)) as line:
        assert (await line.next())["state"] == "readonly"
        messages = await line.rest()
        assert await line.code() == 1000
    assert [one["window"] for one in of_type(messages, "window")] == numbers
    assert messages[-1]["type"] == "end"


async def test_all_readers_get_same_events_and_cursors(house: House) -> None:
    session = await opened(house)
    query = "?events=window,session&after=start"
    async with place(house) as here:
        async with (
            here.line(path_of(session, query)) as sender,
            here.line(path_of(session, f"{query}&mode=listen")) as listener,
        ):
            for _ in range(200):
                await sender.socket.send(HALF)
            await sender.socket.send(END)
            sent, heard = await sender.rest(), await listener.rest()
            assert (await sender.code(), await listener.code()) == (1000, 1000)
        async with here.line(path_of(session, f"{query}&mode=listen")) as late:
            again = await late.rest()
    events = [[one for one in got if one["type"] in ("window", "session", "end")] for got in (sent, heard, again)]
    assert events[0] == events[1] == events[2]
    assert [one["window"] for one in of_type(heard, "window")] == list(range(199))
    assert events[0][-2]["state"] == "readonly"
    assert not of_type(heard, "ack")


async def test_levels_are_sent_on_request(house: House) -> None:
    async with greeted(house, "?events=level") as (session, line):
        await line.socket.send(tone(1))
        level = await line.next_of("level")
        assert level == {"type": "level", "start_time": 0, "end_time": 1, "rms": -20.5, "peak": -10}
    await until(lambda: not house.sessions.followers[session])


@pytest.mark.parametrize(
    "message", ["nonsense", "[]", "{}", '{"type":"pause"}', '{"type":7}', '"end"', "[" * 9000, b""]
)
async def test_unknown_or_empty_message_is_rejected(house: House, message: str | bytes) -> None:
    async with greeted(house) as (_, line):
        await line.socket.send(message)
        await refused(line, 4400, 400)


@pytest.mark.parametrize("text", [b'{"type":"end","x":"\xff"}', b'{"type":"end","\xed\xa0\x80":1}'])
async def test_end_that_is_no_utf8_is_rejected(house: House, text: bytes) -> None:
    async with greeted(house) as (session, line):
        await line.socket.send(text, text=True)
        await refused(line, 4400, 400)
    assert house.sessions.sessions[session].head.state is SessionState.WRITABLE


@pytest.mark.parametrize("message", [HALF, b"", END])
async def test_listener_may_not_send(house: House, message: bytes | str) -> None:
    async with greeted(house, "?mode=listen") as (session, line):
        await line.socket.ping()
        await line.socket.send(message)
        await refused(line, 4400, 400)
    assert not house.sessions.sessions[session].chunks


async def test_fragmented_message_is_one_chunk(house: House) -> None:
    async with greeted(house) as (session, line):
        await line.socket.send([HALF[:7], b"", HALF[7:]])
        assert (await line.next_of("ack"))["next_chunk"] == 1
    assert house.sessions.sessions[session].chunks == [HALF]


async def test_read_only_session_refuses_audio_after_its_last_event(house: House) -> None:
    session = await opened(house)
    house.sessions.paused = True
    async with place(house) as here, here.greeted(path_of(session)) as line:
        await line.socket.send(tone(1))
        await line.next_of("ack")
        await house.sessions.submit(session, Sealed("s"))
        async with here.line(path_of(session)) as second:
            assert (await second.next())["state"] == "readonly"
            await second.socket.send(HALF)
            await second.socket.send(HALF)
            await asyncio.wait_for(await second.socket.ping(), 30)
            house.sessions.paused = False
            house.sessions.analyse(session)
            told = await second.rest()
            assert await second.code() == 4403
    assert [(one["type"], one.get("status_code")) for one in told] == [("window", None), ("error", 403)]


@pytest.mark.parametrize("query", ["", "?events=none", "?events=session", "?mode=listen"])
async def test_failure_of_session_is_sent_whatever_events_were_asked_for(house: House, query: str) -> None:
    session = await opened(house, content_type="audio/wav")
    async with place(house) as here, here.greeted(path_of(session, query)) as line:
        await house.sessions.submit(session, Chunk("c", 0, b"no WAV"))
        told = [one for one in await line.rest() if one["type"] != "ack"]
        assert await line.code() == 1000
    error = house.sessions.sessions[session].head.error
    assert error
    assert [(one["type"], one.get("state"), one.get("error")) for one in told] == [
        ("session", "readonly", error),
        ("end", None, None),
    ]
    async with place(house) as here, here.greeted(path_of(session, f"?after={told[0]['cursor']}")) as line:
        assert [one["type"] for one in await line.rest()] == ["end"]


def fail(house: House, session: str) -> None:
    """Note an error of a session; no socket is woken."""
    known = house.sessions.sessions[session]
    known.head = msgspec.structs.replace(known.head, state=SessionState.READONLY, error="not WAV", finished=True)


async def test_sender_to_failed_session_learns_why(house: House) -> None:
    async with greeted(house) as (session, line):
        fail(house, session)
        await line.socket.send(HALF)
        told = await line.rest()
        assert await line.code() == 4403
    assert [one["type"] for one in told] == ["session", "error"]
    assert all("not WAV" in one["error"] for one in told)


async def test_audio_after_end_of_failed_session_is_told_why(house: House) -> None:
    house.sessions.slow = True
    async with greeted(house) as (session, line):
        await line.socket.send(HALF)
        await until(lambda: house.sessions.unfolded)
        fail(house, session)
        await line.socket.send(END)
        await line.socket.send(HALF)
        house.sessions.catch_up()
        assert "not WAV" in (await refused(line, 4403, 403))["error"]


async def test_audio_after_end_is_refused_after_last_window(house: House) -> None:
    house.sessions.slow = True
    async with greeted(house, "?events=window,session") as (session, line):
        for message in (tone(1.5), END, HALF, HALF):
            await line.socket.send(message)
        await asyncio.wait_for(await line.socket.ping(), 30)
        house.sessions.catch_up()
        told = await line.rest()
        assert await line.code() == 4403
    kinds = [one["type"] for one in told if one["type"] != "ack"]
    assert kinds == ["window", "window", "session", "error"]
    assert house.sessions.sessions[session].chunks == [tone(1.5)]


async def test_end_waits_for_earlier_chunks(house: House) -> None:
    house.sessions.slow = True
    async with greeted(house) as (_, line):
        for message in (HALF, HALF, END):
            await line.socket.send(message)
        await until(lambda: len(house.sessions.unfolded) == 2)
        await asyncio.sleep(0.02)
        assert all(isinstance(command, Chunk) for _, command, _ in house.sessions.unfolded)
        house.sessions.catch_up()
        messages = await line.rest()
    assert [one["next_chunk"] for one in of_type(messages, "ack")] == [2]
    assert messages[-1]["type"] == "end"


@pytest.mark.parametrize("last", [END, HALF], ids=["goes", "sends more audio"])
async def test_client_may_disconnect_after_end(house: House, last: bytes | str) -> None:
    session = await opened(house)
    house.sessions.slow = True
    async with place(house) as here:
        async with here.greeted(path_of(session)) as line:
            for message in (HALF, END, last):
                await line.socket.send(message)
            await until(lambda: house.sessions.unfolded)
        house.sessions.catch_up()
        await until(lambda: house.sessions.sessions[session].head.state is SessionState.READONLY)
    assert house.sessions.sessions[session].chunks == [HALF]


async def test_taken_number_whose_row_is_unreadable_is_rejected(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(house.sessions, "same_audio", mock.Mock(side_effect=RecordError("row version 9 is not known")))
    async with greeted(house) as (session, line):
        await house.sessions.submit(session, Chunk("c", 0, HALF))
        await line.socket.send(HALF)
        assert (await refused(line, 4410, 409))["next_chunk"] == 1


async def test_taken_number_waits_for_verdicts_of_later_chunks(house: House) -> None:
    async with greeted(house) as (session, line):
        house.sessions.slow = True
        await house.sessions.submit(session, Chunk("c", 0, tone(0.25)))
        for message in (HALF, HALF, HALF):
            await line.socket.send(message)
        await until(lambda: len(house.sessions.unfolded) == 3)
        later, house.sessions.unfolded[1:] = house.sessions.unfolded[1:], []
        house.sessions.catch_up()
        await line.socket.send(HALF)
        await line.socket.send(END)
        await line.socket.ping()
        house.sessions.unfolded += later
        house.sessions.fold_sent()
        error = await refused(line, 4410, 409)
    assert house.sessions.sessions[session].head.next == error["next_chunk"] == 3
    assert house.sessions.sessions[session].head.state is SessionState.WRITABLE


async def test_newer_sender_replaces_older_and_continues_after_it(house: House) -> None:
    session = await opened(house)
    house.sessions.slow = True
    async with place(house) as here, here.greeted(path_of(session)) as older:
        await older.socket.send(HALF)
        await until(lambda: house.sessions.unfolded)
        async with here.line(path_of(session)) as newer:
            await refused(older, 4409, 409)
            greeting = asyncio.create_task(newer.next())
            await asyncio.sleep(0.05)
            assert not greeting.done(), "a message of the older one may still be stored"
            async with here.line(path_of(session)) as newest:
                house.sessions.catch_up()
                assert (await newest.next())["next_chunk"] == 1
                assert (await greeting)["type"] == "error"
                assert await newer.code() == 4409


async def test_listener_does_not_replace_sender(house: House) -> None:
    session = await opened(house)
    async with (
        place(house) as here,
        here.greeted(path_of(session)) as sender,
        here.greeted(path_of(session, "?mode=listen")) as listener,
    ):
        await sender.socket.send(tone(1))
        assert (await listener.next())["window"] == 0
        assert (await sender.next_of("window"))["window"] == 0


async def test_moved_session_closes_socket(house: House) -> None:
    async with greeted(house) as (session, line):
        house.sessions.followers.wake(session, lost=True)
        assert await line.rest() == []
        assert await line.code() == 1001


async def test_stopping_node_acknowledges_chunks_in_flight(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    # It leaves once it has the verdicts, not because it has waited long enough.
    monkeypatch.setattr(socket_module, "LEAVE_SECONDS", 3600.0)
    session = await opened(house)
    house.sessions.slow = True
    async with place(house) as here, here.greeted(path_of(session)) as line:
        await line.socket.send(HALF)
        await until(lambda: house.sessions.unfolded)
        here.server.should_exit = True
        await asyncio.sleep(0.2)
        house.sessions.catch_up()
        assert [one["type"] for one in await line.rest()] == ["ack"]
        assert await line.code() == 1001


async def test_closed_socket_leaves_no_reference_cycles(house: House) -> None:
    """They would stay in memory until a full collection."""
    session = await opened(house)
    parts = socket_module.Socket, SentAudio, SocketConnection, ClientConnection, SocketUpgrade, ServerProtocol
    gc.collect()
    with uncollected():
        async with place(house) as here, here.line(path_of(session)) as line:
            await line.socket.send(HALF)
            await line.socket.send(END)
            await line.rest()
        del line, here
        await until(lambda: not [one for one in gc.get_objects() if type(one) in parts])
