"""The event stream of a job: events and their times, as parsed by the public client, and its end."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from streams.folding.followers import Follower
from tests.unit.app.conftest import House
from tests.unit.app.jobs.conftest import (
    ALL,
    BOTH,
    CAPTION_PORTION,
    INSIGHTS_PORTION,
    SOUND,
    TURNS,
    Exchange,
    alone,
    sounds,
    transcript,
    translated,
)
from tests.waiting import until
from topics.errors import ServiceError, Unavailable
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.payloads import Caption, Segment
from topics.jobs.records import Portion, Removed, Started

#: (event, id, data)
Event = tuple[str, int | None, dict[str, Any]]


@pytest.fixture(autouse=True)
def nothing_is_left(loop: asyncio.Runner, house: House) -> Iterator[None]:
    """Check that everything a test started has ended: tasks and followers."""
    yield
    loop.run(until(alone))
    assert not any(house.jobs.followers.values())


def stream(house: House, job: str, **headers: str) -> Exchange:
    return Exchange(house, f"/api/v1/jobs/{job}/stream", **headers)


def events(body: bytes) -> list[Event]:
    """Parse whole events, and check the order of their lines; comments are ignored."""
    found: list[Event] = []
    for block in body.decode().split("\n\n")[:-1]:
        if block.startswith(":"):
            continue
        lines = block.split("\n")
        assert [line.partition(": ")[0] for line in lines] in (["event", "id", "data"], ["event", "data"])
        fields = dict(line.split(": ", 1) for line in lines)
        found.append((fields["event"], int(fields["id"]) if "id" in fields else None, json.loads(fields["data"])))
    return found


def as_the_client_reads(body: bytes) -> dict[str, Any] | None:
    """The parser of the official Python client, which cuts lines at every `data: `."""
    completed = False
    for line in body.decode().splitlines():
        if line.startswith("event: "):
            completed = line.split("event: ")[1] == "completed"
        elif line.startswith("data: ") and completed:
            result: dict[str, Any] = json.loads(line.split("data: ")[1])
            return result
    return None


async def test_stream_covers_job_from_acceptance_to_end(house: House) -> None:
    job = house.jobs.create(ALL)
    exchange = stream(house, job)
    await exchange.until(lambda body: b"event: progress" in body)
    assert exchange.headers == {
        "content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no",
    }  # fmt: skip
    house.jobs.perform(job, Service.SOUND, sounds("Siren"))
    await exchange.until(lambda body: body.count(b"event: progress") == 2)
    house.jobs.perform(job, Service.SPEECH, transcript(*TURNS))
    house.jobs.perform(job, Service.INSIGHTS, INSIGHTS_PORTION)
    house.jobs.perform(job, Service.TRANSLATION, error="no engine")
    house.jobs.perform(job, Service.CAPTION, CAPTION_PORTION)
    await exchange.end()
    assert exchange.whole
    found = events(exchange.body)
    assert [name for name, _, _ in found] == (
        ["progress", "partial_result", "progress"] + ["partial_result"] * 4 + ["progress", "completed"]
    )
    ids = [identity for _, identity, _ in found]
    assert ids == sorted(ids, key=lambda identity: identity or 0)
    waiting = {"status": "pending", "progress": 0.0}
    assert found[0][2] == {
        "job_id": job, "status": "accepted", "progress": 0.0,
        "services": {str(service): waiting for service in Service},
    }  # fmt: skip
    assert found[2][2]["services"]["sound_event_detection"] == {"status": "success", "progress": 1.0}
    assert (found[2][2]["status"], found[2][2]["progress"]) == ("processing", 0.2)
    result = found[-1][2]
    assert list(result) == [*Service, "metadata"]
    partial = {data["service"]: (data["status"], data["entry"]) for name, _, data in found if "partial" in name}
    assert partial == {service: (result[service]["status"], result[service]) for service in Service}
    assert as_the_client_reads(exchange.body) == result


async def test_data_marker_inside_text_is_escaped(house: House) -> None:
    said = 'the data: "one" data: \\data: two\nline'
    job = house.jobs.create(ALL)
    house.jobs.perform(job, Service.SPEECH, transcript(Segment(0, 1000, said)))
    house.jobs.perform(job, Service.SOUND, error=said)
    house.jobs.perform(job, Service.CAPTION, payloads.encode(Caption(said)))
    house.jobs.perform(job, Service.INSIGHTS, INSIGHTS_PORTION)
    house.jobs.perform(job, Service.TRANSLATION, translated(said))
    exchange = await stream(house, job).end()
    assert exchange.body.count(b"data: ") == exchange.body.count(b"\ndata: ")
    result = as_the_client_reads(exchange.body)
    assert result is not None
    assert result["caption"]["result"]["caption"] == said
    assert result["speech_analysis"]["results"][0]["translation"] == said
    assert result["sound_event_detection"]["error"] == said


async def test_reconnecting_client_gets_changes_since_last_event(house: House) -> None:
    job = house.jobs.create(BOTH)
    house.jobs.perform(job, Service.SOUND, sounds("Siren"))
    first = stream(house, job)
    await first.until(lambda body: b"event: progress" in body)
    await first.leave()
    seen = events(first.body)
    assert [name for name, _, _ in seen] == ["partial_result", "progress"]
    again = stream(house, job, last_event_id=str(seen[0][1]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert again.body == b": still here\n\n", "nothing changed since the sounds ended"
    house.jobs.perform(job, Service.SPEECH, transcript(*TURNS))
    await again.end()
    later = events(again.body)
    assert [(name, data.get("service")) for name, _, data in later] == [
        ("partial_result", "speech_analysis"), ("progress", None), ("completed", None),
    ]  # fmt: skip
    last = await stream(house, job, last_event_id=str(later[-1][1])).end()
    assert [name for name, _, _ in events(last.body)] == ["completed"]
    whole = await stream(house, job).end()
    half = await stream(house, job, last_event_id=str(events(whole.body)[0][1])).end()
    assert [data.get("service") for _, _, data in events(half.body)] == ["speech_analysis", None, None]
    whole = await stream(house, job, last_event_id="99").end()
    assert len(events(whole.body)) == 4, "of another life of the job"
    for nonsense in ("-1", "x", "1" * 40, "²"):
        answer = await stream(house, job, last_event_id=nonsense).end()
        assert answer.status == 400
        assert answer.json["error"].startswith(f"Last-Event-ID: '{nonsense[0]}")


async def test_progress_events_are_rate_limited(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = asyncio.get_running_loop().time
    # All portions come at one time, however slow the machine is.
    now: float | None = clock()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: clock() if now is None else now)
    job = house.jobs.create(SOUND)
    exchange = stream(house, job)
    await exchange.until(bool)
    house.jobs.conclude(job, Started(Service.SOUND, "run"))
    for number in range(30):
        house.jobs.conclude(job, Portion(Service.SOUND, "run", number, sounds("", first=number), number / 40))
        await asyncio.sleep(0)
    assert len(events(exchange.body)) == 1
    now = None
    await exchange.until(lambda body: body.count(b"event: progress") > 1)
    await exchange.leave()
    assert [data["progress"] for _, _, data in events(exchange.body)] == [0.0, 0.725]


async def test_progress_stays_below_one_until_service_ends(house: House) -> None:
    job = house.jobs.create(SOUND)
    house.jobs.conclude(job, Started(Service.SOUND, "run"))
    house.jobs.conclude(job, Portion(Service.SOUND, "run", 0, sounds(""), 1.0))
    exchange = stream(house, job)
    await exchange.until(lambda body: b"event: progress" in body)
    await exchange.leave()
    ((_, _, data),) = events(exchange.body)
    assert (data["status"], data["progress"]) == ("processing", 0.99)
    assert data["services"]["sound_event_detection"]["progress"] == 0.99


async def test_heartbeats_are_sent_while_idle(monkeypatch: pytest.MonkeyPatch, house: House) -> None:
    monkeypatch.setattr("app.jobs.events.HEARTBEAT_SECONDS", 0.02)
    exchange = stream(house, house.jobs.create(SOUND))
    await exchange.until(lambda body: body.count(b": still here\n\n") == 2)
    await exchange.leave()
    assert len(events(exchange.body)) == 1


async def test_removed_job_ends_with_error_event(house: House) -> None:
    job = house.jobs.create(SOUND)
    exchange = stream(house, job)
    await exchange.until(bool)
    await house.jobs.submit(job, Removed("remove"))
    await exchange.end()
    assert events(exchange.body)[-1] == ("error", None, {"error": "the job was removed"})
    assert exchange.whole


async def test_moved_job_ends_with_error_event(monkeypatch: pytest.MonkeyPatch, house: House) -> None:
    async def lost(self: Follower, timeout: float) -> bool:
        raise Unavailable("the partition moved")

    monkeypatch.setattr(Follower, "changed", lost)
    exchange = await stream(house, house.jobs.create(SOUND)).end()
    assert [name for name, _, _ in events(exchange.body)] == ["progress", "error"]


async def test_unreadable_result_ends_with_error_event(monkeypatch: pytest.MonkeyPatch, house: House) -> None:
    monkeypatch.setattr(house.jobs, "portion", mock.Mock(side_effect=ServiceError("the store fails")))
    job = house.jobs.create(SOUND)
    house.jobs.perform(job, Service.SOUND, sounds("Siren"))
    exchange = await stream(house, job).end()
    assert ([name for name, _, _ in events(exchange.body)], exchange.whole) == (["error"], True)


async def test_large_entry_is_reported_by_count(house: House) -> None:
    job = house.jobs.create(ALL)
    portions = [sounds(*["Siren Knock"] * 400, first=400 * number) for number in range(3)]
    house.jobs.perform(job, Service.SOUND, *portions)
    turn = Segment(0, 1000, "many words " * 20)
    house.jobs.perform(job, Service.SPEECH, transcript(*[turn] * 200), transcript(*[turn] * 50))
    house.jobs.perform(job, Service.TRANSLATION, translated(*["many words " * 20] * 250))
    house.jobs.perform(job, Service.CAPTION, payloads.encode(Caption("many words " * 7000)))
    house.jobs.perform(job, Service.INSIGHTS, INSIGHTS_PORTION)
    exchange = await stream(house, job).end()
    found = events(exchange.body)
    *large, insights = [data for name, _, data in found if name == "partial_result"]
    assert insights["service"] == "audio_insights"
    assert large == [
        {"service": "sound_event_detection", "status": "success", "results": 1200},
        {"service": "speech_analysis", "status": "success", "results": 250},
        {"service": "translation", "status": "success", "results": 250},
        {"service": "caption", "status": "success", "results": 1},
    ]
    result = as_the_client_reads(exchange.body)
    assert result is not None
    assert len(result["sound_event_detection"]["results"]) == 1200


async def test_result_removed_during_send_is_cut_off(house: House) -> None:
    job = house.jobs.create(SOUND)
    portions = [sounds(*["Siren Knock"] * 400, first=400 * number) for number in range(3)]
    house.jobs.perform(job, Service.SOUND, *portions)
    exchange = stream(house, job)
    await exchange.until(lambda body: b'"results":[' in body)
    house.jobs.jobs.clear()
    await exchange.end()
    assert not exchange.whole
    assert as_the_client_reads(exchange.body.rpartition(b"\n")[0]) is None


async def test_shutdown_cuts_stream_off(house: House) -> None:
    exchange = stream(house, house.jobs.create(SOUND))
    await exchange.until(bool)
    exchange.task.cancel()
    await exchange.end()
    assert not exchange.whole
