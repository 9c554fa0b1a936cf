"""Rules that are tried on what a day's sessions heard."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.alarms import rule_trials
from tests.unit.app.conftest import KEY, House, serving
from tests.unit.app.double import TAGS
from tests.unit.app.sessions.sockets import opened
from tests.unit.app.sessions.test_live import put
from topics.errors import Unavailable
from topics.ports.lists import Coverage

PATH = "/api/v1/alarm_rules/test"
DAY = {"day": "2026-01-02"}
#: The double reports it in two of three windows: 0, 2, 3, 5, 6, ...
DOGS = {"name": "dogs", "tags": [TAGS[0]], "gap": 0, "cooldown": 0}


async def stream(house: House, seconds: float) -> str:
    session = await opened(house)
    await put(house, session, 0, seconds)
    return session


def tried(http: TestClient, query: dict[str, Any] = DAY, status: int = 200, **change: Any) -> Any:
    answer = http.post(PATH, params=query, json={**DOGS, **change})
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.parametrize("size", [256, 1, 3])
def test_trial_makes_the_alarms_of_the_day(
    house: House, http: TestClient, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(rule_trials, "SLICE", size)
    session = asyncio.run(stream(house, 5.0))
    made = tried(http)
    assert (made["total"], made["sessions"], made["left_out"]) == (len(made["alarms"]), 1, 0)
    newest, *_, oldest = made["alarms"]
    assert (oldest["session_id"], oldest["start"], oldest["begins_at"]) == (session, 0, "2026-01-02T03:04:05.679Z")
    assert newest["start"] > oldest["start"]
    assert oldest["tags"][0]["name"] == TAGS[0]
    assert oldest["told_by_client"] is False
    # One run, with pauses that do not end it.
    assert tried(http, gap=2, duration=3)["total"] == 1
    assert tried(http, gap=2, duration=3, enabled=False)["total"] == 1
    assert tried(http, tags=["Animal"])["total"] == 1
    assert tried(http, source="elsewhere")["sessions"] == 0
    assert tried(http, {"day": "2026-01-03"})["sessions"] == 0
    assert tried(http, {"day": "2026-01-03", "offset_minutes": "840"})["sessions"] == 0
    assert tried(http, {"day": "2026-01-01", "offset_minutes": "-240"})["sessions"] == 1
    monkeypatch.setattr(rule_trials, "MOST_SHOWN", 2)
    few = tried(http)
    assert (few["alarms"], few["total"]) == (made["alarms"][:2], made["total"])
    assert house.alarms.made == {}


@pytest.mark.parametrize(
    ("query", "change", "said"),
    [
        (DAY, {"level": -20}, "levels are not stored"),
        (DAY, {"when": "loud", "level": -20, "tags": []}, "levels are not stored"),
        (DAY, {"when": "source", "events": ["source.lost"], "tags": [], "gap": 2}, "what happened to sources"),
        (DAY, {"tags": ["Dog"]}, "the nearest one is 'Dog_bark'"),
        ({"day": "yesterday"}, {}, "day"),
        ({"offset_minutes": "x"}, {}, "offset_minutes"),
    ],
)
def test_what_cannot_be_tried_is_said(
    http: TestClient, house: House, query: dict[str, Any], change: dict[str, Any], said: str
) -> None:
    house.own_sounds.sounds.return_value = []
    assert said in tried(http, query, 400, **change)["error"]


def test_trial_is_bounded_in_time_and_number(house: House, http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        asyncio.run(stream(house, 2.0))
    seconds = iter(range(100))
    with monkeypatch.context() as patch:
        patch.setattr(rule_trials, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
        made = tried(http)
    assert (made["sessions"], made["left_out"]) == (3, 2)

    def gone(*arguments: object) -> None:
        raise Unavailable("it has moved")

    with monkeypatch.context() as patch:
        patch.setattr(house.sessions, "windows", gone)
        assert tried(http)["left_out"] == 3
        patch.setattr(house.sessions, "windows", lambda *arguments: ())
        assert tried(http)["left_out"] == 3


def test_trial_is_merged_from_all_nodes(house: House, http: TestClient) -> None:
    other = House()
    for one in (house, other):
        asyncio.run(stream(one, 3.0))
    alone = tried(http)["total"]
    other.sessions.covered = Coverage(frozenset({1}), 3, frozenset())
    with serving(other) as running:
        house.sessions.covered = Coverage(frozenset({0}), 3, frozenset({running.url, "http://127.0.0.1:9"}))
        made = tried(http)
    assert (made["sessions"], made["total"], made["missing"]) == (2, 2 * alone, {"partitions": 1, "of": 3})
    headers = {"X-Api-Key": KEY, "X-Earshot-Forwarded": "1"}
    own = http.post(PATH, params=DAY, json=DOGS, headers=headers).json()
    assert (own["partitions"], own["total"]) == ([0], alone)
    house.sessions.covered = Coverage(frozenset(), 3, frozenset())
    assert "no node serves" in tried(http, status=503)["error"]
