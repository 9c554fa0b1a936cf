"""Listening: every window once, in order, with its sounds; and a day by hour."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import sse
from tests.contract.answers import hold_event
from tests.contract.api import Api, events, silence, tone, wav
from tests.contract.jobs import Jobs


@contextmanager
def listening(api: Api, path: str, **asked: Any) -> Iterator[Iterator[sse.Event]]:
    """Yield the events (name, id, data) of a stream as they come."""
    template = "/audio_sessions/{session_id}/live" if "audio_sessions" in path else "/api/v1/live"

    def held(event: sse.Event) -> sse.Event:
        hold_event(event[0], event[2], template)
        return event

    with api.http.stream("GET", path, **asked) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        yield map(held, sse.events(answer.iter_lines()))


def live(api: Api, session: str, query: str = "", **headers: str) -> Any:
    path = f"/audio_sessions/{session}/live{query}"
    return listening(api, path, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.both_logs
def test_session_is_streamed_from_start_to_end(api: Api) -> None:
    session = api.create()
    with live(api, session) as told:
        name, _, first = next(told)
        assert (name, first["session_id"], first["next_window"]) == ("session", session, 0)
        assert (first["window_size"], first["window_hop"]) == (1, 0.5)
        for number in range(6):
            api.put(session, number, tone(0.5))
        windows = [next(told) for _ in range(5)]
        api.seal(session)
        rest = list(told)
    assert [(name, number) for name, number, _ in windows] == [("window", str(number)) for number in range(5)]
    assert [data["start_time"] for _, _, data in windows] == [0, 0.5, 1, 1.5, 2]
    read = events(api.follow(session))
    heard = [data for name, _, data in [*windows, *rest] if name == "window"]
    assert [{name: one[name] for name in ("start_time", "end_time", "tags")} for one in heard] == read
    for one in heard:
        assert len(one["top"]) == 5
        known = [tag for tag in one["tags"] if tag["name"] != "Others"]
        assert one["top"][: len(known)] == known[:5]
    for one in heard[:5]:
        columns = base64.b64decode(one["strip"]["columns"])
        assert len(columns) % 64 == 0
        assert one["level"]["rms"] <= one["level"]["peak"]
    assert [name for name, _, _ in rest if name != "window"] == ["session", "ended"]
    assert rest[-1][2]["windows"] == len(heard)


@pytest.mark.both_logs
def test_reconnecting_listener_misses_nothing(api: Api) -> None:
    session = api.create()
    api.send(session, tone(4.0))
    api.seal(session)
    api.follow(session)
    whole = _windows(api, session, "?from=0")
    assert whole == list(range(len(whole)))
    assert _windows(api, session, Last_Event_ID="2") == whole[3:]
    assert _windows(api, session, "?from=-2") == whole[-2:]
    assert _windows(api, session, "?from=-1000") == whole
    assert _windows(api, session) == [], "from now on, and it has ended"


def _windows(api: Api, session: str, query: str = "", **headers: str) -> list[int]:
    with live(api, session, query, **headers) as told:
        return [data["window"] for name, _, data in told if name == "window"]


@pytest.mark.both_logs
def test_project_stream_covers_all_sessions(api: Api) -> None:
    earlier = api.create(file_name="yard")
    api.send(earlier, tone(1.0))
    api.page(earlier)
    with listening(api, "/api/v1/live", headers={"X-Api-Key": api.key}) as stream:
        met = {}
        while earlier not in met:
            name, _, data = next(stream)
            assert name == "session"
            met[data["session_id"]] = data
        assert (met[earlier]["file_name"], met[earlier]["next_window"]) == ("yard", 1)
        later = api.create()
        api.put(earlier, 1, silence(0.5))
        api.send(later, tone(1.5))
        heard: list[tuple[bool, int]] = []
        while len(heard) < 3:
            name, _, data = next(stream)
            if name == "window" and data["session_id"] in (earlier, later):
                assert "strip" not in data
                heard.append((data["session_id"] == later, data["window"]))
        assert sorted(heard) == [(False, 1), (True, 0), (True, 1)]
        api.delete(earlier)
        api.seal(later)
        last: set[tuple[str, str]] = set()
        while len(last) < 2:
            name, _, data = next(stream)
            if name in ("deleted", "ended") and data["session_id"] in (earlier, later):
                last.add((name, data["session_id"]))
        assert last == {("deleted", earlier), ("ended", later)}


@pytest.mark.both_logs
def test_project_stream_reports_jobs_until_completion(api: Api, jobs: Jobs) -> None:
    with listening(api, "/api/v1/live", headers={"X-Api-Key": api.key}) as stream:
        job = jobs.accepted(wav(tone(2.0)))
        told: list[dict[str, Any]] = []
        while not (told and told[-1]["status"] == "completed"):
            name, _, data = next(stream)
            if name == "job" and data["job_id"] == job:
                told.append(data)
        assert told[-1]["progress"] == 1
        assert told[-1]["services"] == {"sound_event_detection": {"status": "success", "progress": 1}}
        seen = [int(data["cursor"]) for data in told]
        assert seen == sorted(set(seen))
        own = [name for name, _, _ in jobs.events(job, after=seen[-1])]
        assert own == ["completed"], "nothing is behind the cursor but the result, which always comes"
        jobs.http.delete(f"/jobs/{job}", headers=jobs.keyed)
        while next(stream)[::2] != ("job.removed", {"job_id": job}):
            pass


@pytest.mark.both_logs
def test_daily_activity_of_session_and_project(api: Api) -> None:
    session = api.create(default_sensitivity=-2)
    api.send(session, tone(3.0))
    api.seal(session)
    api.follow(session)
    keyed = {"X-Api-Key": api.key}
    sessions = api.http.get("/audio_sessions/", headers=keyed).json()["sessions"]
    created = next(one["created_at"] for one in sessions if one["session_id"] == session)
    # A time zone where it is shortly after noon, so that no day ends meanwhile.
    day, offset = created[:10], (12 - int(created[11:13])) * 60
    noon = {"day": day, "offset_minutes": offset}
    answer = api.http.get(f"/audio_sessions/{session}/activity", params=noon)
    assert answer.status_code == 200
    content = answer.json()
    assert (content["day"], content["sessions"], content["left_out"]) == (day, 1, 0)
    windows = events(api.follow(session))
    assert sum(content["analysed"]) == 0.5 * len(windows)
    reported = {tag["name"] for event in windows for tag in event["tags"]} - {"Others"}
    assert {tag["name"] for tag in content["tags"]} == reported
    before = {"day": day, "offset_minutes": offset - 60}
    behind = api.http.get(f"/audio_sessions/{session}/activity", params=before).json()
    assert behind["analysed"][:23] == content["analysed"][1:]
    empty = api.http.get(f"/audio_sessions/{session}/activity", params={"day": "2020-01-01"}).json()
    assert (empty["sessions"], empty["tags"], sum(empty["analysed"])) == (0, [], 0)
    whole = api.http.get("/api/v1/activity", params=noon, headers=keyed).json()
    assert sum(whole["analysed"]) >= sum(content["analysed"])
    assert whole["sessions"] >= 1
    assert api.http.get("/api/v1/activity", headers=keyed).status_code == 200
