"""Sending: in order, over sessions that end, days that end, and a service that refuses or is behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest
from structlog.testing import capture_logs

from earshot_client import AsyncClient, QuotaExceeded, ServiceUnreachable, SessionNotFound, SessionOptions, WrongKey
from infra.agent import feed
from infra.agent.feed import WINDOW, Feed, Pauses
from infra.agent.flac import Note
from infra.agent.sources import Source
from infra.agent.spool import Spool, settle
from tests.sink import Sink, sink
from tests.waiting import until

SOURCE = Source("barn", url="rtsp://a/b", labels={"site": "farm"}, sensitivity=1)
#: Noon of a local day, ms.
NOON = round(time.mktime((2025, 11, 30, 12, 0, 0, 0, 0, -1)) * 1000)


class Service:
    """A service in memory, for `Feed`: its sessions hold chunks, of which only the first `stores` are acknowledged."""

    def __init__(self) -> None:
        self.sessions: dict[str, list[int]] = {}
        self.options: list[SessionOptions] = []
        self.gone: set[str] = set()
        #: Capture times, before the block with this number, and notes.
        self.told: list[tuple[object, ...]] = []
        #: Number of chunks before each note, by session.
        self.notes: list[tuple[str, int, str]] = []
        self.refusal: Exception | None = None
        self.refusals = 0
        #: Blocks that arrive without an answer.
        self.cut = 0
        self.stores = 10**9
        self.behind = 0.0
        self.warning: str | None = None

    @asynccontextmanager
    async def socket(self, session: SessionOptions | str, **options: Any) -> AsyncIterator[Socket]:
        if self.refusal is not None:
            self.refusals += 1
            raise self.refusal
        if isinstance(session, SessionOptions):
            self.options.append(session)
            session_id = f"s{len(self.options)}"
            self.gone.discard(session_id)
            self.sessions[session_id] = []
        elif session in self.gone:
            raise SessionNotFound(404, "no such session")
        else:
            session_id = session
        yield Socket(self, session_id)


class Socket:
    def __init__(self, service: Service, session_id: str) -> None:
        self._service, self.session_id = service, session_id

    @property
    def next_chunk(self) -> int:
        return min(len(self._service.sessions[self.session_id]), self._service.stores)

    @property
    def behind(self) -> float:
        return self._service.behind

    @property
    def warning(self) -> str | None:
        return self._service.warning

    async def send(self, data: bytes, captured: datetime | None = None, spooled: bool = False) -> None:
        if self.session_id in self._service.gone:
            raise SessionNotFound(404, "expired")
        if captured is not None:
            self._service.told.append((data[0], round(captured.timestamp() * 1000), spooled))
        self._service.sessions[self.session_id].append(int.from_bytes(data[:2], "little"))
        if self._service.cut > 0:
            self._service.cut -= 1
            raise ServiceUnreachable("the answer did not arrive")

    async def source(self, event: str, reason: str | None, at: datetime, spooled: bool) -> None:
        if self.session_id in self._service.gone:
            raise SessionNotFound(404, "expired")
        self._service.notes.append((self.session_id, self.next_chunk, event))
        self._service.told.append((event, reason, round(at.timestamp() * 1000), spooled))

    async def close(self) -> None:
        pass

    async def end(self) -> None:
        pass


def push(spool: Spool, first: int, count: int, at_ms: int = NOON) -> None:
    for number in range(first, first + count):
        spool.push(at_ms + number * 500, number.to_bytes(2, "little") * 8)


def run(directory: Path, play: Callable[[Spool, Service], Any]) -> Service:
    """Run a feed beside a scenario."""

    async def scenario() -> None:
        spool = Spool(directory, "barn")
        sending = asyncio.create_task(Feed(SOURCE, cast(AsyncClient, service), spool).run())
        await play(spool, service)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    service = Service()
    asyncio.run(scenario())
    return service


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "Pauses", lambda: Pauses(0.01, 0.02))


def test_blocks_go_in_order_to_one_session(tmp_path: Path) -> None:
    async def play(spool: Spool, service: Service) -> None:
        push(spool, 0, 30)
        await spool.settle()
        push(spool, 30, 40)
        await until(lambda: spool.first == spool.end)

    service = run(tmp_path, play)
    assert service.sessions == {"s1": list(range(70))}
    (options,) = service.options
    assert (options.kind, options.file_name, options.metadata) == ("stream", "barn", {"site": "farm"})
    assert options.sensitivity.default == 1


def test_block_that_arrived_without_an_answer_is_not_sent_again(tmp_path: Path) -> None:
    async def play(spool: Spool, service: Service) -> None:
        service.cut = 3
        push(spool, 0, 20)
        await until(lambda: spool.first == spool.end)

    assert run(tmp_path, play).sessions == {"s1": list(range(20))}


def test_capture_times_are_told_when_they_do_not_follow(tmp_path: Path) -> None:
    async def play(spool: Spool, service: Service) -> None:
        push(spool, 0, 3)  # Each has 8 samples only: half a millisecond, and not half a second.
        await until(lambda: spool.first == spool.end)
        for number in range(3, 40):
            spool.push(NOON + 3000 + (number - 3) * 5 + number % 3, number.to_bytes(2, "little") * 80)
        spool.note(Note("source.lost", NOON + 7, "it cut the connection"))
        await until(lambda: spool.first == spool.end and spool.due is None)
        spool.note(Note("source.back", NOON + 9000))
        spool.push(NOON + 9000, bytes(16))
        service.warning = "the capture time is off"
        await until(lambda: spool.first == spool.end)

    with capture_logs() as lines:
        service = run(tmp_path, play)
    assert service.told == [
        (0, NOON, False),
        (1, NOON + 500, False),
        (2, NOON + 1000, False),
        (3, NOON + 3000, False),
        ("source.lost", "it cut the connection", NOON + 7, True),
        ("source.back", None, NOON + 9000, True),
        (0, NOON + 9000, False),
    ]
    assert [line["reason"] for line in lines] == ["the capture time is off"]


def test_no_more_than_a_window_is_in_flight(tmp_path: Path) -> None:
    async def play(spool: Spool, service: Service) -> None:
        service.stores = 5
        push(spool, 0, 100)
        await until(lambda: spool.first == 5 and len(service.sessions["s1"]) == 5 + WINDOW)
        await asyncio.sleep(0.2)
        assert len(service.sessions["s1"]) == 5 + WINDOW
        service.stores = 10**9
        await until(lambda: spool.first == spool.end)

    assert run(tmp_path, play).sessions == {"s1": list(range(100))}


def test_a_service_that_is_behind_gets_old_audio_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(feed, "time", mock.Mock(wraps=time, monotonic=lambda: now))

    async def play(spool: Spool, service: Service) -> None:
        nonlocal now
        service.behind, service.refusal = 60.0, WrongKey(401, "no such key")
        push(spool, 0, 30)
        await spool.settle()
        service.refusal = None
        await until(lambda: spool.first >= 1)
        await asyncio.sleep(0.3)
        assert len(service.sessions["s1"]) == 1
        now += 1.0
        await until(lambda: spool.first == 2)
        service.behind = 0.0
        await until(lambda: spool.first == spool.end)

    run(tmp_path, play)


def test_a_session_that_is_gone_is_replaced(tmp_path: Path) -> None:
    async def play(spool: Spool, service: Service) -> None:
        push(spool, 0, 10)
        await until(lambda: spool.first == 10)
        service.gone.add("s1")
        push(spool, 10, 5)
        await until(lambda: spool.first == spool.end)

    assert run(tmp_path, play).sessions == {"s1": list(range(10)), "s2": list(range(10, 15))}


def test_an_error_is_said_once_and_tried_again(tmp_path: Path) -> None:
    async def play(spool: Spool, service: Service) -> None:
        service.refusal = QuotaExceeded(402, "the plan is used up")
        push(spool, 0, 10)
        await until(lambda: service.refusals >= 3)
        service.refusal = WrongKey(401, "no such key")
        await until(lambda: service.refusals >= 6)
        service.refusal = None
        await until(lambda: spool.first == spool.end)

    with capture_logs() as lines:
        service = run(tmp_path, play)
    assert [line.get("reason") for line in lines] == [
        "the plan is used up",
        "the service does not know the project key (no such key)",
        None,
    ]
    assert service.sessions == {"s1": list(range(10))}


def test_a_source_that_was_never_heard_has_a_session(tmp_path: Path) -> None:
    at = round(time.time() * 1000)

    async def play(spool: Spool, service: Service) -> None:
        service.refusal = WrongKey(401, "no such key")
        spool.note(Note("source.lost", at, "no route to host"))
        await until(lambda: service.refusals >= 3)
        service.refusal = None
        await until(lambda: spool.due is None)
        assert service.sessions == {"s1": []}
        spool.note(Note("source.back", at + 9000))
        spool.push(at + 9000, bytes(16))
        await until(lambda: spool.first == spool.end)

    service = run(tmp_path, play)
    assert service.notes == [("s1", 0, "source.lost"), ("s1", 0, "source.back")]
    assert service.told[0] == ("source.lost", "no route to host", at, False)
    assert service.sessions == {"s1": [0]}


def test_a_note_opens_no_second_session(tmp_path: Path) -> None:
    async def lost(spool: Spool, service: Service) -> None:
        spool.note(Note("source.lost", NOON))
        await until(lambda: len(service.notes) == 1)
        assert spool.state.day == "2025-11-30"

    async def play(spool: Spool, service: Service) -> None:
        # The agent was killed, and the session has expired since.
        service.gone.add("s1")
        await until(lambda: not spool.state.session)
        await asyncio.sleep(0.1)
        assert not service.options
        spool.note(Note("source.back", NOON + 3_600_000))
        push(spool, 0, 1)
        await until(lambda: spool.first == spool.end)

    run(tmp_path, lost)
    service = run(tmp_path, play)
    assert service.notes == [("s1", 0, "source.back")]


def over_a_socket(directory: Path, play: Callable[[Spool, Sink], Any]) -> list[list[int]]:
    """Run a feed with the real client, which keeps what is not acknowledged; return the blocks of each session."""

    async def scenario(service: Sink) -> None:
        spool = Spool(directory, "barn")
        async with AsyncClient(service.url, "key") as client:
            sending = asyncio.create_task(Feed(SOURCE, client, spool).run())
            await play(spool, service)
            await until(lambda: spool.first == spool.end)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    with sink() as service:
        asyncio.run(scenario(service))
        return [[chunk[0] for chunk in stored.chunks] for stored in service.of("barn")]


def test_a_new_day_is_a_new_session_that_begins_with_the_last_window(tmp_path: Path) -> None:
    async def play(spool: Spool, service: Sink) -> None:
        push(spool, 0, 10)
        push(spool, 10, 10, NOON + 24 * 3600 * 1000)
        await until(lambda: spool.end == spool.first == 20)
        assert spool.state.day == "2025-12-01"

    assert over_a_socket(tmp_path, play) == [list(range(10)), list(range(8, 20))]


def test_other_labels_need_another_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(spool: Spool, service: Service) -> None:
        push(spool, 0, 3)
        await until(lambda: spool.first == spool.end)

    assert list(run(tmp_path, play).sessions) == ["s1"]
    monkeypatch.setattr("tests.unit.infra.agent.test_feed.SOURCE", Source("barn", url="rtsp://a/b"))
    service = run(tmp_path, play)
    assert [options.metadata for options in service.options] == [{}]
    assert service.sessions == {"s1": [0, 1, 2]}


def test_oldest_audio_that_is_dropped_opens_another_socket(tmp_path: Path) -> None:
    async def play(spool: Spool, service: Sink) -> None:
        push(spool, 0, 10)
        await until(lambda: spool.first == 10)
        await asyncio.to_thread(service.stop)
        push(spool, 10, 60)
        await until(lambda: spool.sent == 10 + WINDOW)
        await settle([spool], 10**9)
        await settle([spool], spool.size - 1)
        await asyncio.to_thread(service.start)

    with capture_logs() as lines:
        assert over_a_socket(tmp_path, play) == [[*range(10), *range(20, 70)]]
    assert [line["seconds"] for line in lines if line["event"] == "audio lost"] == [5.0]


def test_pauses_grow_until_something_works() -> None:
    pauses = Pauses()
    assert [pauses.next() for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    pauses.reset()
    assert pauses.next() == 0.5
