"""The client's live socket at the service's own edge: what is sent arrives once, through any break; typed errors."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from earshot_client import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    EarshotClientError,
    LevelHeard,
    RequestRefused,
    ServiceUnreachable,
    SessionChanged,
    SessionClosed,
    SessionFailed,
    SessionNotFound,
    SessionOptions,
    SocketEvent,
    SocketReplaced,
    SoundEnded,
    SoundRule,
    SoundStarted,
    WindowHeard,
    WrongKey,
    WrongSequence,
    _socket_state,
)
from tests.contract.api import UNKNOWN, silence, tone
from tests.unit.app.client.edge import Cutter, edge
from tests.unit.app.conftest import KEY, House

pytestmark = pytest.mark.slow

HALF = tone(0.5)
SOUNDS = ("window", "sound.started", "sound.ended", "session")
#: Half a minute in which a sound comes and goes.
PIECES = [tone(0.3 + 0.01 * number) if number % 5 else silence(1) for number in range(40)]


@pytest.fixture
def cutter(house: House) -> Iterator[Cutter]:
    with edge(house) as cutter:
        yield cutter


@pytest.fixture
def client(cutter: Cutter) -> Iterator[Client]:
    with Client(cutter.url, KEY) as client:
        yield client


def stored(house: House, session: str) -> list[bytes]:
    return list(house.sessions.sessions[session].chunks)


def told(events: list[SocketEvent]) -> list[Any]:
    """What is the same for two sessions with the same audio: events without the marks of their cursors."""
    return [(event.kind, getattr(event, "name", ""), getattr(event, "start", 0)) for event in events]


@pytest.fixture
def uncut(client: Client) -> list[SocketEvent]:
    """The events of PIECES."""
    with client.socket(events=SOUNDS) as socket:
        return list(socket.stream(PIECES))


# --- in and out -----------------------------------------------------------------------------------------------------


def test_events_come_while_audio_is_sent(client: Client, house: House) -> None:
    with client.socket() as socket:
        socket.send(HALF)
        socket.send(HALF)
        first = next(socket)
        assert isinstance(first, WindowHeard)
        assert (first.window, first.start, first.end, first.sounds[0].name) == (0, 0, 1, "Dog_bark")
        assert socket.cursor == first.cursor
        socket.send(HALF)
        socket.send(b"")
        socket.flush()
        assert (socket.next_chunk, stored(house, socket.session_id)) == (3, [HALF] * 3)
        with pytest.raises(DeadlineExceeded):
            while True:
                socket.next_event(timeout=0.2)
        socket.end()
        assert [event.kind for event in socket] == []
        with pytest.raises(SessionClosed):
            socket.send(HALF)
        assert not client.session_status(socket.session_id).inference.page.next_token


def test_blocks_are_sent_beside_their_events(client: Client, house: House) -> None:
    """Raw PCM may be cut anywhere, and a sound has its beginning and its end."""
    audio = tone(2) + silence(3) + tone(1)
    blocks = [audio[start : start + 7777] for start in range(0, len(audio), 7777)]
    rule = SoundRule(windows=1, of=1, margin=0.5)
    options = SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le", sound_rule=rule, metadata={"a": "b"})
    with client.socket(options, events=SOUNDS) as socket:
        events = list(socket.stream(blocks))
    assert b"".join(stored(house, socket.session_id)) == audio
    opened = house.sessions.sessions[socket.session_id].opened
    assert (opened.sound_rule.margin_ms, opened.metadata) == (500, {"a": "b"})
    barks = [event for event in events if isinstance(event, SoundStarted | SoundEnded) and event.name == "Dog_bark"]
    assert [event.kind for event in barks] == ["sound.started", "sound.ended"] * (len(barks) // 2)
    assert barks[0].start == 0
    assert isinstance(events[-1], SessionChanged | SoundEnded)
    assert sum(isinstance(event, WindowHeard) for event in events) == 11


def test_arrays_are_taken_for_what_they_are(client: Client, house: House) -> None:
    with client.socket(events=()) as socket:
        samples = np.arange(16000, dtype="<i2")
        socket.send(samples[::2])
        with pytest.raises(TypeError, match="f32 cannot be sent as 'audio/x-raw; rate=16000; format=s16le'"):
            socket.send(np.zeros(8000, np.float32))
    assert stored(house, socket.session_id) == [samples[::2].tobytes()]


def test_levels_and_a_listener(client: Client, house: House) -> None:
    with client.socket() as sender:
        sender.send(HALF)
        with client.socket(sender.session_id, listen=True, after="start", events=("window", "level")) as listener:
            sender.send(HALF)
            assert {type(listener.next_event()) for _ in range(2)} == {WindowHeard, LevelHeard}
            with pytest.raises(ValueError, match="only|listens"):
                listener.send(HALF)
            with pytest.raises(ValueError, match="listens"):
                listener.end()
            sender.end()
            assert [event for event in listener if event.kind == "window"] == []
    with pytest.raises(ValueError, match="id of a session"):
        client.socket(listen=True)


def test_another_program_goes_on(client: Client, house: House, uncut: list[SocketEvent]) -> None:
    """With the id and the cursor, which are all that it needs to know."""
    with client.socket(events=SOUNDS) as socket:
        for piece in PIECES[:20]:
            socket.send(piece)
        first = [next(socket) for _ in range(7)]
    assert socket.next_chunk == 20, "leaving waits for it"
    with client.socket(socket.session_id, after=socket.cursor, events=SOUNDS) as again:
        for piece in PIECES[again.next_chunk :]:
            again.send(piece)
        again.end()
        rest = list(again)
    assert told(first + rest) == told(uncut)


# --- breaks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_cut_connections_lose_and_double_nothing(
    seed: int, client: Client, cutter: Cutter, house: House, uncut: list[SocketEvent]
) -> None:
    chance = random.Random(seed)

    def blocks() -> Iterator[bytes]:
        for piece in PIECES:
            if chance.random() < 0.1:
                cutter.cut()
            time.sleep(chance.random() / 50)
            yield piece

    connections = cutter.connections
    cutter.length = lambda: chance.randrange(2000, 120_000)
    with client.socket(events=SOUNDS) as socket:
        events = list(socket.stream(blocks()))
    assert cutter.connections > connections + 3
    assert stored(house, socket.session_id) == PIECES
    assert told(events) == told(uncut)
    assert len({event.cursor for event in events if not isinstance(event, LevelHeard)}) == len(events)


def test_a_cut_before_the_first_message_makes_no_second_session(client: Client, cutter: Cutter, house: House) -> None:
    cuts = iter([800, 900, 1000])
    cutter.length = lambda: next(cuts, None)
    with client.socket() as socket:
        socket.send(HALF)
    assert list(house.sessions.sessions) == [socket.session_id]


def test_a_service_that_is_away_for_a_while(
    client: Client, cutter: Cutter, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with client.socket() as socket:
        socket.send(HALF)
        socket.flush()
        cutter.away = True
        cutter.cut()
        for _ in range(20):
            socket.send(HALF)
            time.sleep(0.02)
        with pytest.raises(DeadlineExceeded):
            socket.flush(timeout=0.3)
        assert socket.next_chunk == 1
        cutter.away = False
        socket.flush(timeout=30)
        assert stored(house, socket.session_id) == [HALF] * 21
    assert [record.levelname for record in caplog.records if record.name == "earshot_client"][:1] == ["WARNING"]


def test_patience_ends(client: Client, cutter: Cutter) -> None:
    with pytest.raises(ServiceUnreachable), client.socket(patience=0.5) as socket:
        cutter.away = True
        cutter.cut()
        socket.send(HALF)
        for _ in socket:
            pass
    with pytest.raises(ServiceUnreachable), client.socket(patience=0.0) as socket:
        cutter.cut()


def test_a_full_buffer_lets_send_wait(
    client: Client, cutter: Cutter, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_socket_state, "KEPT_BYTES", 4 * len(HALF))
    with client.socket() as socket:
        house.sessions.slow = True
        for _ in range(4):
            socket.send(HALF, timeout=5)
        with pytest.raises(DeadlineExceeded):
            socket.send(HALF, timeout=0.2)
        waiting = threading.Thread(target=socket.send, args=(silence(0.5),))
        waiting.start()
        house.sessions.slow = False
        cutter.call(house.sessions.fold_sent)
        waiting.join(10)
        socket.flush()
        assert stored(house, socket.session_id) == [HALF] * 4 + [silence(0.5)]


def test_events_that_nobody_reads_come_later(
    client: Client, cutter: Cutter, house: House, uncut: list[SocketEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not kept without end, and they hold up neither the audio nor its acknowledgements."""
    monkeypatch.setattr(_socket_state, "WAITING_EVENTS", 5)
    with client.socket(events=SOUNDS) as socket:
        for piece in PIECES[:30]:
            socket.send(piece)
        socket.flush()
        assert len(socket._socket._state.events) <= 5
        heard = [next(socket) for _ in range(12)]
        for piece in PIECES[30:]:
            socket.send(piece)
        socket.end()
        socket.flush()
        cutter.cut()
        heard += list(socket)
    assert told(heard) == told(uncut)
    assert stored(house, socket.session_id) == PIECES


# --- what cannot be resumed -----------------------------------------------------------------------------------------


def test_refusals_at_the_opening(cutter: Cutter, client: Client) -> None:
    with Client(cutter.url, "nobody") as stranger, pytest.raises(WrongKey), stranger.socket():
        pass
    with pytest.raises(SessionNotFound), client.socket(UNKNOWN):
        pass
    with pytest.raises(RequestRefused, match="content_type") as refused, client.socket(SessionOptions("stream", "?")):
        pass
    assert refused.value.status == 400
    with client.socket() as one, pytest.raises(RequestRefused, match="of another session"):
        one.send(HALF + HALF)
        cursor = next(one).cursor  # type: ignore[union-attr]
        with client.socket() as other, client.socket(other.session_id, after=cursor):
            pass
    with Client("ftp://127.0.0.1:9", KEY) as lost, pytest.raises(ServiceUnreachable), lost.socket():
        pass
    with Client("http://127.0.0.1:9", KEY) as lost, pytest.raises(DeadlineExceeded), lost.socket(timeout=0.5):
        pass


def test_what_answers_is_no_socket(url: str) -> None:
    """As behind a proxy that lets no upgrade through."""
    with Client(url, KEY) as client, pytest.raises(RequestRefused) as refused, client.socket():
        pass
    assert refused.value.status == 400


def test_a_second_sender_takes_the_place_of_the_first(client: Client, house: House) -> None:
    with pytest.raises(SocketReplaced), client.socket() as first:
        with client.socket(first.session_id) as second:
            second.send(HALF)
        first.send(HALF)
        list(first)
    assert stored(house, first.session_id) == [HALF]


def test_a_number_that_a_request_took(client: Client, house: House) -> None:
    """The chunk would be lost in silence."""
    with pytest.raises(WrongSequence), client.socket() as socket:
        client.put_chunk(socket.session_id, 0, silence(0.5))
        socket.send(HALF)
        list(socket)
    with pytest.raises(WrongSequence), client.socket() as socket:
        client.put_chunk(socket.session_id, 0, silence(0.5))
        client.put_chunk(socket.session_id, 1, silence(0.5))
        socket.send(silence(0.5))
        socket.send(HALF)
        list(socket)
    with client.socket(socket.session_id) as again:
        assert again.next_chunk == 2


def test_a_session_that_others_end(client: Client, house: House) -> None:
    with client.socket() as socket:
        socket.send(HALF + HALF)
        socket.flush()
        client.seal_session(socket.session_id)
        assert [event.kind for event in socket] == ["window"]
        with pytest.raises(SessionClosed):
            socket.send(HALF)
    with client.socket(socket.session_id, after="start") as again:
        with pytest.raises(SessionClosed):
            again.send(HALF)
        assert [event.kind for event in again] == ["window"]
    with pytest.raises(SessionNotFound), client.socket() as deleted:
        client.delete_session(deleted.session_id)
        list(deleted)


def test_a_session_that_ends_under_the_audio(client: Client, house: House) -> None:
    """What was heard before still comes, and what was not stored is told of."""
    options = SessionOptions("stream", "audio/x-raw; rate=16000; format=s16le", total_size=5 * len(HALF))
    heard = []
    with pytest.raises(SessionClosed), client.socket(options) as socket:
        for event in socket.stream([HALF] * 50):
            heard.append(event)
    assert [event.kind for event in heard] == ["window"] * 4
    assert stored(house, socket.session_id) == [HALF] * 5


def test_audio_that_cannot_be_analysed(client: Client, house: House) -> None:
    with (
        pytest.raises(SessionFailed, match="declared audio/wav"),
        client.socket(SessionOptions("stream", "audio/wav")) as socket,
    ):
        list(socket.stream(b"not a recording" for _ in range(50)))


def test_a_chunk_that_is_too_long(client: Client) -> None:
    with client.socket() as socket, pytest.raises(RequestRefused, match="1048576") as refused:
        socket.send(bytes(1 << 21))
    assert refused.value.status == 413


# --- leaving --------------------------------------------------------------------------------------------------------


def test_closing_in_the_middle(client: Client, house: House) -> None:
    with client.socket() as socket:
        threading.Timer(0.2, socket.close).start()
        assert list(socket) == []
        with pytest.raises(ValueError, match="not open"):
            socket.send(HALF)
        socket.close()
    with pytest.raises(ValueError, match="not open"):
        next(client.socket())
    assert not [thread for thread in threading.enumerate() if thread.name == "earshot-socket"]


def test_ctrl_c_leaves_at_once(client: Client, house: House, cutter: Cutter) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    assert main is not None
    try:
        house.sessions.slow = True
        threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt), client.socket() as socket:
            for _ in socket.stream(iter(lambda: time.sleep(0.05) or HALF, None)):
                pass
        assert time.monotonic() - start < 5
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_microphone_that_says_nothing_holds_up_nobody(client: Client) -> None:
    silent = threading.Event()

    def blocks() -> Iterator[bytes]:
        yield tone(1)
        silent.wait()

    with client.socket() as socket:
        for event in socket.stream(blocks()):
            assert event.kind == "window"
            break
    silent.set()


def test_blocks_that_fail_are_told_of_behind_the_events(client: Client) -> None:
    def blocks() -> Iterator[bytes]:
        yield tone(2)
        raise OSError("the microphone is gone")

    heard = []
    with client.socket() as socket, pytest.raises(OSError, match="the microphone is gone"):
        for event in socket.stream(blocks()):
            heard.append(event)
    assert len(heard) == 3
    assert client.session_status(socket.session_id).state == "readonly"


async def test_asyncio(cutter: Cutter, house: House) -> None:
    async def blocks() -> AsyncIterator[bytes]:
        for piece in PIECES[:10]:
            yield piece
            await asyncio.sleep(0)

    async with AsyncClient(cutter.url, KEY) as client:
        async with client.socket(events=("window",)) as socket:
            events = [event async for event in socket.stream(blocks())]
        assert [event.kind for event in events] == ["window"] * len(events)
        assert stored(house, socket.session_id) == PIECES[:10]
        async with client.socket() as other:
            await other.send(HALF)
            waiting = asyncio.create_task(anext(other))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await other.send(HALF)
            first = await anext(other)
            assert isinstance(first, WindowHeard)
            assert first.window == 0
            await other.end()
            await other.end()
        with pytest.raises(EarshotClientError):
            async with client.socket(UNKNOWN):
                pass
