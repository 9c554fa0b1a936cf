"""Days by hour: every window in its hour, bounded work, and days merged from all nodes."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from app import days
from app.days import Day, parse_day
from app.http.turns import LoopTurns
from app.sessions import activity_counter
from app.sessions.activity_counter import ActivityCounter, Tally, hourly_windows
from app.sessions.rendering import EventRenderer
from app.windows import WindowRenderer
from tests.contract.api import RAW
from tests.unit.app.conftest import KEY, House, serving
from tests.unit.app.sessions.sockets import opened
from tests.unit.app.sessions.test_live import put
from topics.errors import BadRequest, Unavailable
from topics.ports.lists import Coverage
from topics.ports.sessions import SessionView
from topics.sessions.records import Opened
from topics.sessions.rules import SessionHead
from topics.times import DAY_MS, HOUR_MS
from topics.turns import Holder

#: The double's clock begins at 03:04:05.678 of this day.
DAY = "2026-01-02"


def view(at: int, windows: int, predicts: bool = False) -> SessionView:
    """Return a session opened at `at` with this many windows."""
    opened = Opened("o", "stream", RAW, "project", 1000, 500, at=at)
    return SessionView(opened, SessionHead("stream", None, at, 0, windows=windows, predicts=predicts))


def midnight(text: str = DAY, ahead: int = 0) -> Day:
    return parse_day({"day": text, "offset_minutes": str(ahead)}, 0)


@pytest.mark.parametrize("predicts", [False, True])
@pytest.mark.parametrize("opened", [-3 * HOUR_MS - 123, -250, 0, 1, HOUR_MS - 1, 23 * HOUR_MS + 1_800_001])
def test_windows_count_in_hour_of_their_start(opened: int, predicts: bool) -> None:
    day, step = midnight(), 1000 if predicts else 500
    session = view(day.begins + opened, 20_000, predicts)
    found = dict(hourly_windows(session, day))
    for hour in range(24):
        begins = range(hour * HOUR_MS, (hour + 1) * HOUR_MS)
        expected = [number for number in range(20_000) if opened + number * step in begins]
        assert list(found.get(hour, range(0))) == expected


def test_days_begin_at_local_midnight() -> None:
    assert midnight(ahead=60).begins == midnight().begins - HOUR_MS
    assert parse_day({"offset_minutes": "-600"}, midnight().begins).text == "2026-01-01"
    assert midnight().ends - midnight().begins == DAY_MS
    for text in ("2026-1-2", "2026-02-30", "today", "99999-01-01", "0000-01-01"):
        with pytest.raises(BadRequest):
            midnight(text)


def test_session_without_opening_time_is_not_counted() -> None:
    assert list(hourly_windows(view(0, 1000), midnight("1970-01-01"))) == []


async def sound(house: House, seconds: float) -> str:
    """Return a session with that much sound."""
    session = await opened(house)
    await put(house, session, 0, seconds)
    return session


class SlowRenderer(EventRenderer):
    """Takes 1.5 s for each read, by its own clock; one session's windows are missing."""

    now = 0.0
    gone = ""

    def scored(self, session: str, opened: Opened, first: int, stop: int) -> Iterator[tuple[WindowRenderer, bytes]]:
        if session == self.gone:
            raise Unavailable("it was deleted")
        self.now += 1.5
        return super().scored(session, opened, first, stop)


HOLDER = Holder("organization", "project")


async def test_repeated_request_continues_after_time_limit(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = SlowRenderer(house.sessions, 1 << 20)
    monkeypatch.setattr(activity_counter, "time", SimpleNamespace(monotonic=lambda: renderer.now))
    ids = [await sound(house, 10.0) for _ in range(5)]
    sessions = [(id, one) for id in ids if (one := house.sessions.view(id)) is not None]
    counter = ActivityCounter(renderer, LoopTurns())
    left = []
    for expected in (2, 4, 5, 5):
        hours, left_out = await counter.count(HOLDER, sessions, midnight())
        left.append(left_out)
        assert hours[3][""] == expected * 19 * 500
    assert left == [3, 1, 0, 0]
    assert renderer.now == 5 * 1.5, "what was counted is remembered"
    await put(house, ids[0], 1, 1.0)
    grown = house.sessions.view(ids[0])
    assert grown is not None
    hours, _ = await counter.count(HOLDER, [(ids[0], grown)], midnight())
    assert hours[3][""] == 21 * 500, "an hour that goes on is counted on"
    renderer.gone = ids[1]
    hours, left_out = await ActivityCounter(renderer, LoopTurns()).count(HOLDER, sessions[1:3], midnight())
    assert (hours[3][""], left_out) == (19 * 500, 0)


async def test_read_that_fails_half_way_counts_nothing_twice(house: House) -> None:
    """It changed the counts that are remembered, and its repetition added the same windows again."""

    class Failing(EventRenderer):
        faults = 0

        def scored(self, session: str, opened: Opened, first: int, stop: int) -> Iterator[tuple[WindowRenderer, bytes]]:
            for piece in super().scored(session, opened, first, stop):
                yield piece
                if self.faults:
                    self.faults -= 1
                    raise Unavailable("its partition moves")

    renderer = Failing(house.sessions, 1 << 20)
    counter, id = ActivityCounter(renderer, LoopTurns()), await sound(house, 10.0)

    async def reported() -> Tally:
        view = house.sessions.view(id)
        assert view is not None
        return (await counter.count(HOLDER, [(id, view)], midnight()))[0][3]

    assert (await reported())[""] == 19 * 500
    await put(house, id, 1, 10.0)
    renderer.faults = 2
    assert (await reported())[""] == (await reported())[""] == 19 * 500
    tally = await reported()
    assert tally[""] == 39 * 500
    counter = ActivityCounter(renderer, LoopTurns())
    assert await reported() == tally


async def test_waiting_requests_are_limited_per_project(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity_counter, "PROJECT_WAITING", 2)
    counter = ActivityCounter(EventRenderer(house.sessions, 1 << 20), LoopTurns())
    one = (await sound(house, 10.0), view(midnight().begins, 19))
    asked = [counter.count(Holder("o", project), [one], midnight()) for project in ("loud", "loud", "loud", "quiet")]
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert [isinstance(answer, Unavailable) for answer in done] == [False, False, True, False]
    await counter.count(Holder("o", "loud"), [one], midnight())


def test_days_beyond_session_limit_are_counted_once(
    house: House, http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(days, "MOST_SESSIONS", 1)
    asyncio.run(sound(house, 3.0))
    monkeypatch.setattr(days, "LONGEST_PAGE", 1)
    asyncio.run(sound(house, 3.0))
    day = http.get("/api/v1/activity", params={"day": DAY}).json()
    assert (day["sessions"], day["left_out"]) == (1, 0)


def test_day_is_merged_from_all_nodes(house: House, http: TestClient) -> None:
    other = House()
    for one in (house, other):
        asyncio.run(sound(one, 3.0))
    other.sessions.covered = Coverage(frozenset({1}), 3, frozenset())
    with serving(other) as running:
        house.sessions.covered = Coverage(frozenset({0}), 3, frozenset({running.url, "http://127.0.0.1:9"}))
        day = http.get("/api/v1/activity", params={"day": DAY}).json()
    assert (day["sessions"], day["analysed"][3], day["missing"]) == (2, 5, {"partitions": 1, "of": 3})
    assert {tag["name"]: tag["seconds"][3] for tag in day["tags"]}["Dog_bark"] == 2
    house.sessions.covered = Coverage(frozenset(), 3, frozenset())
    assert http.get("/api/v1/activity", params={"day": DAY}).status_code == 503


def test_forwarded_day_covers_only_this_node(house: House, http: TestClient) -> None:
    house.sessions.covered = Coverage(frozenset({0}), 3, frozenset({"http://never.asked"}))
    headers = {"X-Api-Key": KEY, "X-Earshot-Forwarded": "1"}
    assert http.get("/api/v1/activity", params={"day": DAY}, headers=headers).json()["partitions"] == [0]
