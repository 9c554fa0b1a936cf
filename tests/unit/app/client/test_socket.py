"""The client's live socket at the service's edge: data arrives once, across breaks; typed errors."""

import asyncio
import io
import itertools
import random
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from websockets.protocol import State

import earshot_client as sdk
from earshot_client import AsyncClient, Client, _async_socket, _socket_state
from earshot_client._async_socket import AsyncSocket
from earshot_client._calls import PATIENCE
from earshot_client._socket_state import SocketRequest, SocketState
from tests.contract.api import UNKNOWN, silence, tone, wav
from tests.cutter import Cutter
from tests.unit.app.client.edge import Edge
from tests.unit.app.conftest import KEY, House, behind_a_server
from tests.waiting import until, wait_for

pytestmark = pytest.mark.slow

HALF = tone(0.5)
SOUNDS = ("window", "sound.started", "sound.ended", "session")
#: Half a minute in which a sound comes and goes.
PIECES = [tone(0.3 + 0.01 * number) if number % 5 else silence(1) for number in range(40)]
PCM = sdk.MICROPHONE.content_type


@pytest.fixture
def client(cutter: Cutter) -> Iterator[Client]:
    with Client(cutter.url, KEY) as client:
        yield client


def stored(house: House, session: str) -> list[bytes]:
    return list(house.sessions.sessions[session].chunks)


def told(events: list[sdk.SocketEvent]) -> list[Any]:
    """Return events without cursors, which are equal for sessions with the same audio."""
    return [(event.kind, getattr(event, "name", ""), getattr(event, "start", 0)) for event in events]


@pytest.fixture
def uncut(client: Client) -> list[sdk.SocketEvent]:
    with client.socket(events=SOUNDS) as socket:
        return list(socket.stream(PIECES))


# --- audio and events -----------------------------------------------------------------------------------------------


def test_events_arrive_while_audio_is_sent(client: Client, house: House) -> None:
    with client.socket() as socket:
        socket.send(HALF)
        socket.send(HALF)
        first = next(socket)
        assert isinstance(first, sdk.WindowHeard)
        assert (first.window, first.start, first.end, first.sounds[0].name) == (0, 0, 1, "Dog_bark")
        assert socket.cursor == first.cursor
        socket.send(HALF)
        socket.send(b"")
        wait_for(lambda: socket.next_chunk == 3)
        assert stored(house, socket.session_id) == [HALF] * 3
        socket.end()
        assert [event.start for event in socket if isinstance(event, sdk.WindowHeard)] == [0.5]
        with pytest.raises(sdk.SessionClosed):
            socket.send(HALF)
        assert not client.session_status(socket.session_id).page.token


def test_stream_sends_blocks_and_yields_sound_events(client: Client, house: House) -> None:
    """Raw PCM may be cut anywhere; a sound has a beginning and an end."""
    audio = tone(2) + silence(3) + tone(1)
    blocks = [audio[start : start + 7777] for start in range(0, len(audio), 7777)]
    rule = sdk.SoundRule(windows=1, of=1, margin=0.5)
    options = sdk.SessionOptions("stream", PCM, sound_rule=rule, metadata={"a": "b"})
    with client.socket(options, events=SOUNDS) as socket:
        events = list(socket.stream(blocks))
    assert b"".join(stored(house, socket.session_id)) == audio
    opened = house.sessions.sessions[socket.session_id].opened
    assert (opened.rules[0].rule.margin_ms, opened.metadata) == (500, {"a": "b"})
    barks = [
        event for event in events if isinstance(event, sdk.SoundStarted | sdk.SoundEnded) and event.name == "Dog_bark"
    ]
    assert [event.kind for event in barks] == ["sound.started", "sound.ended"] * (len(barks) // 2)
    assert barks[0].start == 0
    assert sum(isinstance(event, sdk.WindowHeard) for event in events) == 11


@pytest.mark.parametrize("recording", [Path, str, Path.read_bytes, lambda path: io.BytesIO(path.read_bytes())])
def test_recordings_are_sent_in_pieces(
    recording: Callable[[Path], Any], client: Client, house: House, tmp_path: Path
) -> None:
    path = tmp_path / "audio"
    path.write_bytes(tone(3) + b"\0")
    with client.socket() as socket:
        assert len(list(socket.stream(recording(path)))) == 5
    chunks = stored(house, socket.session_id)
    assert b"".join(chunks) == tone(3)
    assert max(map(len, chunks)) < 16_000


def test_joined_session_of_a_file_takes_pieces_cut_anywhere(client: Client) -> None:
    recording = wav(tone(3))
    session = client.create_session(sdk.SessionOptions("file", "audio/wav", total_size=len(recording)))
    with client.socket(session.id) as socket:
        heard = list(socket.stream(recording[start : start + 7777] for start in range(0, len(recording), 7777)))
    assert len(heard) == 5


@pytest.mark.parametrize(("waiting", "padding"), [(b"", b""), (b"\1", b"\0"), (b"\1\2\3", b"\0")])
def test_joined_stream_continues_at_a_whole_sample(
    client: Client, house: House, waiting: bytes, padding: bytes
) -> None:
    """The first sender may have left within a sample; the second does not know its content type."""
    with client.socket() as socket:
        socket.send(HALF)
    known = house.sessions.sessions[socket.session_id]
    if waiting:
        known.chunks.append(waiting)
        known.head = msgspec.structs.replace(known.head, next=2, received=known.head.received + len(waiting))
    blocks = [HALF[start : start + 777] for start in range(0, len(HALF), 777)]
    with client.socket(socket.session_id) as again:
        list(again.stream(blocks))
    assert b"".join(stored(house, socket.session_id)) == HALF + waiting + padding + HALF


def test_listener_receives_levels_and_cannot_send(client: Client, house: House) -> None:
    with client.socket() as sender:
        sender.send(HALF)
        with client.socket(sender.session_id, listen=True, after="start", events=("window", "level")) as listener:
            sender.send(HALF)
            assert {type(next(listener)) for _ in range(2)} == {sdk.WindowHeard, sdk.LevelHeard}
            with pytest.raises(ValueError, match="listens"):
                listener.send(HALF)
            with pytest.raises(ValueError, match="listens"):
                listener.end()
            sender.end()
            assert [event for event in listener if event.kind == "window"] == []
    with pytest.raises(ValueError, match="id of a session"):
        client.socket(listen=True)


def test_another_client_resumes_with_id_and_cursor(client: Client, house: House, uncut: list[sdk.SocketEvent]) -> None:
    """With the id and the cursor, which suffice to resume."""
    with client.socket(events=SOUNDS) as socket:
        for piece in PIECES[:20]:
            socket.send(piece)
        first = [next(socket) for _ in range(7)]
    assert socket.next_chunk == 20, "leaving waits for it"
    with client.socket(socket.session_id, after=socket.cursor, events=SOUNDS) as again:
        rest = list(again.stream(PIECES[again.next_chunk :]))
    assert told(first + rest) == told(uncut)


# --- breaks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_disconnects_lose_and_duplicate_nothing(
    seed: int,
    client: Client,
    cutter: Cutter,
    house: House,
    uncut: list[sdk.SocketEvent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_socket_state, "RETRIES", (0.01,) * 6)
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
    assert len({event.cursor for event in events if not isinstance(event, sdk.LevelHeard)}) == len(events)


def test_disconnect_before_greeting_creates_no_second_session(client: Client, cutter: Cutter, house: House) -> None:
    cuts = iter([800, 900, 1000])
    cutter.length = lambda: next(cuts, None)
    with client.socket() as socket:
        socket.send(HALF)
    assert list(house.sessions.sessions) == [socket.session_id]


def test_socket_reconnects_after_outage(
    client: Client, cutter: Cutter, house: House, caplog: pytest.LogCaptureFixture
) -> None:
    with client.socket() as socket:
        socket.send(HALF)
        wait_for(lambda: socket.next_chunk == 1)
        cutter.away = True
        cutter.cut()
        for _ in range(20):
            socket.send(HALF)
            time.sleep(0.02)
        assert socket.next_chunk == 1
        cutter.away = False
        wait_for(lambda: socket.next_chunk == 21)
        assert stored(house, socket.session_id) == [HALF] * 21
    notes = [record.message for record in caplog.records if record.name == "earshot_client"]
    assert notes[0].startswith("the connection broke (")
    assert notes[1] == "connected again; every chunk below 1 is stored"


def test_outage_beyond_patience_raises(client: Client, cutter: Cutter) -> None:
    with client.socket(patience=0.5) as socket:
        cutter.away = True
        socket.send(HALF)
        cutter.cut()
        with pytest.raises(sdk.ServiceUnreachable):
            next(socket)


def test_send_blocks_while_buffer_is_full(
    client: Client, cutter: Cutter, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_socket_state, "KEPT_BYTES", 4 * len(HALF))
    with client.socket() as socket:
        house.sessions.slow = True
        for _ in range(4):
            socket.send(HALF)
        waiting = threading.Thread(target=socket.send, args=(silence(0.5),))
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        house.sessions.slow = False
        cutter.call(house.sessions.fold_sent)
        waiting.join(60)
    assert stored(house, socket.session_id) == [HALF] * 4 + [silence(0.5)]


def test_unread_events_do_not_delay_audio(
    client: Client, cutter: Cutter, house: House, uncut: list[sdk.SocketEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not buffered without bound, and delay neither the audio nor its acknowledgements."""
    monkeypatch.setattr(_socket_state, "WAITING_EVENTS", 5)
    with client.socket(events=SOUNDS) as socket:
        for piece in PIECES[:30]:
            socket.send(piece)
        wait_for(lambda: socket.next_chunk == 30)
        assert len(socket._socket._state.events) <= 5
        heard = [next(socket) for _ in range(12)]
        for piece in PIECES[30:]:
            socket.send(piece)
        socket.end()
        wait_for(lambda: socket.next_chunk == len(PIECES))
        cutter.cut()
        heard += list(socket)
    assert told(heard) == told(uncut)
    assert stored(house, socket.session_id) == PIECES


# --- fatal errors ---------------------------------------------------------------------------------------------------


HELLO = b'{"type":"hello","session_id":"s","next_chunk":0,"cursor":"c","state":"writable","limits":{"frame_bytes":9}}'


@pytest.fixture
def state() -> SocketState:
    return greeted(-1)


def greeted(patience: float) -> SocketState:
    """Return a greeted socket with one chunk in flight."""
    state = SocketState(SocketRequest("", sdk.MICROPHONE, patience=patience))
    state.request()
    state.received(HELLO)
    state.keep(b"audio")
    assert state.next_to_send() == b"audio"
    return state


def test_session_id_leads_to_no_other_path() -> None:
    assert SocketState(SocketRequest("", "../a?")).request().path == "/audio_sessions/%2E%2E%2Fa%3F/socket"


def test_nothing_is_sent_before_greeting(state: SocketState) -> None:
    """Its number would be wrong."""
    state.keep(b"more")
    state.request()
    assert state.next_to_send() is None
    state.received(HELLO)
    assert [state.next_to_send() for _ in range(3)] == [b"audio", b"more", None]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (1009, sdk.RequestRefused),
        (4400, sdk.RequestRefused),
        (4401, sdk.WrongKey),
        (4404, sdk.SessionNotFound),
        (4409, sdk.SocketReplaced),
        (4410, sdk.WrongSequence),
        (4429, sdk.RequestRefused),
    ],
)
def test_final_close_codes_raise_typed_errors(state: SocketState, code: int, error: type[sdk.RequestRefused]) -> None:
    with pytest.raises(error, match="its reason") as raised:
        state.closed(code, "its reason")
    assert raised.type is error
    assert raised.value.status == {1009: 413, 4410: 409}.get(code, code - 4000)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        *((code, sdk.ServiceUnreachable) for code in (1000, 1001, 1006, 1011, 1012, 4403, 4408, 4502)),
        (1013, sdk.ServiceBusy),
    ],
)
def test_transient_close_codes_reconnect(state: SocketState, code: int, error: type[sdk.EarshotClientError]) -> None:
    """A pause follows, and after `patience` this error."""
    with pytest.raises(error):
        _closed_by(state, code)
    patient = greeted(PATIENCE)
    assert (_closed_by(patient, code) == 0) == (code in (1001, 4403))


def test_pause_honours_retry_after_and_ends_with_patience() -> None:
    for patience, least, most in ((PATIENCE, 15, 25), (2, 0, 2)):
        state = greeted(patience)
        state.received(b'{"type":"error","status_code":503,"error":"full","retry_after":20}')
        assert least <= _closed_by(state, 1013) <= most


def _closed_by(state: SocketState, code: int) -> float:
    state.closed(code, "")
    return state.pause()


def test_rejections_on_open_raise_typed_errors(cutter: Cutter, client: Client) -> None:
    with Client(cutter.url, "nobody") as stranger, pytest.raises(sdk.WrongKey), stranger.socket():
        pass
    for unknown in UNKNOWN, "":
        with pytest.raises(sdk.SessionNotFound), client.socket(unknown):
            pass
    with (
        pytest.raises(sdk.RequestRefused, match="content_type") as refused,
        client.socket(sdk.SessionOptions("stream", "?")),
    ):
        pass
    assert refused.value.status == 400
    with client.socket() as one, client.socket() as other:
        one.send(HALF + HALF)
        next(one)
        with (
            pytest.raises(sdk.RequestRefused, match="of another session"),
            client.socket(other.session_id, after=one.cursor),
        ):
            pass
    with Client("ftp://127.0.0.1:9", KEY) as lost, pytest.raises(sdk.ServiceUnreachable):
        lost.socket()
    with Client("http://127.0.0.1:9", KEY) as lost, pytest.raises(sdk.DeadlineExceeded), lost.socket(timeout=0.5):
        pass


async def test_retry_after_of_refused_upgrade_is_honoured(edge: Edge) -> None:
    edge.faults.append(Response(status_code=503, headers={"Retry-After": "7"}))
    socket = AsyncSocket(httpx2.URL(edge.url), "test", SocketRequest("", sdk.MICROPHONE), None)
    await socket._connect()
    assert 7 <= socket._state.pause() <= 8.75


def test_answer_without_upgrade_raises(url: str) -> None:
    """As behind a proxy without support for upgrades."""
    with Client(url, KEY) as client, pytest.raises(sdk.RequestRefused) as refused, client.socket():
        pass
    assert refused.value.status == 400


def test_session_ended_by_others_raises(client: Client, house: House) -> None:
    with client.socket() as socket:
        socket.send(HALF + HALF)
        wait_for(lambda: socket.next_chunk == 1)
        client.seal_session(socket.session_id)
        assert [event.kind for event in socket] == ["window"]
        with pytest.raises(sdk.SessionClosed):
            socket.send(HALF)
    with client.socket(socket.session_id, after="start") as again:
        with pytest.raises(sdk.SessionClosed):
            again.send(HALF)
        assert [event.kind for event in again] == ["window"]
    with client.socket() as deleted:
        client.delete_session(deleted.session_id)
        with pytest.raises(sdk.SessionNotFound):
            next(deleted)


def noted(events: Iterator[sdk.SocketEvent], heard: list[sdk.SocketEvent]) -> None:
    """Collect events, however they end."""
    for event in events:
        heard.append(event)  # noqa: PERF402 (those before an error, too)


@pytest.mark.parametrize("late", ["more at once", "more", "nothing more", "nothing yet"])
def test_session_end_before_audio_ends_raises_only_if_there_is_more(
    client: Client, house: House, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """Earlier results still arrive, and an error names the audio that was not stored."""
    left = threading.Event()

    def audio() -> Iterator[bytes]:
        yield from [HALF] * (50 if late == "more at once" else 5)
        while not socket._socket._over:
            time.sleep(0.001)
        if late == "nothing yet":
            assert left.wait(60)
        if late != "nothing more":
            yield HALF

    if late == "nothing yet":
        monkeypatch.setattr("earshot_client._async_socket.SOURCE_SECONDS", 0.01)
    heard: list[sdk.SocketEvent] = []
    options = sdk.SessionOptions("stream", PCM, total_size=5 * len(HALF))
    with client.socket(options) as socket:
        with nullcontext() if late == "nothing more" else pytest.raises(sdk.SessionClosed):
            noted(socket.stream(audio()), heard)
        left.set()
    assert [event.kind for event in heard] == ["window"] * 4
    assert stored(house, socket.session_id) == [HALF] * 5


def test_unreadable_audio_fails_session(client: Client, house: House) -> None:
    options = sdk.SessionOptions("stream", "audio/wav")
    with client.socket(options) as socket, pytest.raises(sdk.SessionFailed, match="declared audio/wav"):
        list(socket.stream(b"not a recording" for _ in range(50)))


def test_oversized_chunk_is_rejected(client: Client) -> None:
    with client.socket() as socket, pytest.raises(sdk.RequestRefused, match="1048576") as refused:
        socket.send(bytes(1 << 21))
    assert refused.value.status == 413


def test_longest_blocks_may_end_within_a_frame(client: Client, house: House) -> None:
    """A chunk has whole frames, so the third of these blocks comes with a frame that the earlier ones began."""
    blocks = [bytes([number]) * (1 << 20) for number in range(1, 4)]
    with client.socket(sdk.SessionOptions("stream", "audio/x-raw; rate=16000; format=s24le"), events=()) as socket:
        for block in blocks:
            socket.send(block)
    chunks = stored(house, socket.session_id)
    assert b"".join(chunks) == b"".join(blocks)
    assert [len(chunk) % 3 for chunk in chunks] == [0] * 4


# --- leaving --------------------------------------------------------------------------------------------------------


def test_close_while_reading_ends_iteration(client: Client, house: House) -> None:
    with client.socket() as socket:
        threading.Timer(0.2, socket.close).start()
        assert list(socket) == []
        with pytest.raises(ValueError, match="not open"):
            socket.send(HALF)
        with pytest.raises(ValueError, match="not open"):
            socket.stream(HALF)
        socket.close()
    for closed in (socket, client.socket()):
        with pytest.raises(ValueError, match="not open"):
            next(closed)
        closed.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "earshot-socket"]


async def test_closed_asyncio_socket_raises_the_same(cutter: Cutter, house: House) -> None:
    async with AsyncClient(cutter.url, KEY) as client:
        async with client.socket() as socket:
            asyncio.get_running_loop().call_later(0.2, asyncio.create_task, socket.close())
            assert [event async for event in socket] == []
            with pytest.raises(ValueError, match="not open"):
                await socket.send(HALF)
            with pytest.raises(ValueError, match="not open"):
                socket.stream(HALF)
            await socket.close()
        for closed in (socket, client.socket()):
            with pytest.raises(ValueError, match="not open"):
                await asyncio.wait_for(anext(closed), 60)
            await closed.close()


def test_redirection_is_not_followed() -> None:
    """It would send the key to another server."""

    async def answer(request: Request) -> Response:
        paths.append(request.url.path)
        return RedirectResponse("/elsewhere", 308)

    paths: list[str] = []
    with (
        behind_a_server(Starlette(routes=[Route("/{path:path}", answer)])) as url,
        Client(url, KEY) as client,
        pytest.raises(sdk.ServiceUnreachable, match="redirects \\(308\\) to /elsewhere"),
        client.socket(),
    ):
        pass
    assert paths == ["/api/v1/socket"]


def test_ctrl_c_exits_immediately(client: Client, house: House, cutter: Cutter) -> None:
    main, silent, pressed = threading.main_thread().ident, threading.Event(), list[float]()
    assert main is not None

    def blocks() -> Iterator[bytes]:
        for number in itertools.count():
            if number == 6:
                # The main thread waits for events. A timer might end before it does.
                pressed.append(time.monotonic())
                signal.pthread_kill(main, signal.SIGINT)
            yield HALF
            silent.wait(0.05)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        house.sessions.slow = True
        with pytest.raises(KeyboardInterrupt), client.socket() as socket:
            list(socket.stream(blocks()))
        assert time.monotonic() - pressed[0] < 30
    finally:
        signal.signal(signal.SIGINT, before)


async def test_interrupted_closing_handshake_leaves_no_connection(
    cutter: Cutter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task is cancelled twice: while it waits for events, and while it waits for the answer to its closing."""
    monkeypatch.setattr(_async_socket, "CLOSE_SECONDS", 3600.0)
    async with AsyncClient(cutter.url, KEY) as client, client.socket() as socket:
        connection = socket._connection
        assert connection is not None
        answering = threading.Event()
        cutter.call(answering.wait)
        (running,) = socket._tasks
        running.cancel()
        await until(lambda: connection.state >= State.CLOSING)
        running.cancel()
        try:
            await until(lambda: connection.transport.get_extra_info("socket").fileno() == -1)
        finally:
            answering.set()


def test_audio_that_exits_is_an_error(client: Client) -> None:
    def blocks() -> Iterator[bytes]:
        yield tone(1)
        sys.exit("unplugged")

    with client.socket(timeout=60) as socket:
        events = socket.stream(blocks())
        with pytest.raises(RuntimeError, match="unplugged"):
            list(events)


def test_silent_microphone_delays_no_event_and_keeps_no_loop(client: Client, cutter: Cutter) -> None:
    silent = threading.Event()

    def blocks() -> Iterator[bytes]:
        yield tone(1)
        silent.wait()

    async def hear() -> None:
        async with AsyncClient(cutter.url, KEY) as other, other.socket() as socket:
            assert (await anext(socket.stream(blocks()))).kind == "window"

    timer = threading.Timer(60, silent.set)
    timer.start()
    with client.socket() as socket:
        assert next(socket.stream(blocks())).kind == "window"
    asyncio.run(hear())
    assert not silent.is_set()
    timer.cancel()
    silent.set()


async def test_asyncio_socket(cutter: Cutter, house: House) -> None:
    async def blocks() -> AsyncIterator[bytes]:
        for piece in PIECES[:10]:
            yield piece
            await asyncio.sleep(0)

    async with AsyncClient(cutter.url, KEY) as client:
        for audio in (blocks(), PIECES[:10]):
            async with client.socket() as socket:
                events = [event async for event in socket.stream(audio)]
            assert [event.kind for event in events] == ["window"] * len(events)
            assert stored(house, socket.session_id) == PIECES[:10]
        async with client.socket() as other:
            await other.send(HALF)
            waiting = asyncio.create_task(anext(other))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await other.send(HALF)
            first = await anext(other)
            assert isinstance(first, sdk.WindowHeard)
            assert first.window == 0
            await other.end()
            await other.end()
        with pytest.raises(sdk.EarshotClientError):
            async with client.socket(UNKNOWN):
                pass
