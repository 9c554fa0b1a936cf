"""A transcript as events: streamed, after a run that died, with speakers, and interrupted."""

import asyncio

import pytest

from app.openai import events
from tests.unit.app.conftest import House
from tests.unit.app.jobs.conftest import TURNS, transcript
from tests.unit.app.openai.conftest import WHISPER, Post, accepted, form
from topics.jobs.options import Service
from topics.jobs.payloads import Segment
from topics.jobs.records import Finished, Portion, Started

FIRST, SECOND, THIRD = (Segment(1000 * n, 1000 * n + 900, text) for n, text in enumerate(("One.", "Two.", "Three.")))


def told(*texts: str) -> list[object]:
    return [{"type": "transcript.text.delta", "delta": text} for text in texts]


def done(text: str) -> dict[str, object]:
    return {"type": "transcript.text.done", "text": text}


async def test_text_is_streamed_during_analysis(house: House) -> None:
    post = Post(house, body=form({**WHISPER, "stream": "true"}))
    job = await accepted(house)
    house.jobs.conclude(job, Started(Service.SPEECH, "run"))
    house.jobs.conclude(job, Portion(Service.SPEECH, "run", 0, transcript(FIRST), 0.5))
    await post.until(lambda body: b"One." in body)
    assert (post.status, post.headers["content-type"]) == (200, "text/event-stream")
    assert post.headers["earshot-job"] == job
    house.jobs.conclude(job, Portion(Service.SPEECH, "run", 1, transcript(SECOND), 1.0))
    house.jobs.conclude(job, Finished(Service.SPEECH, "run", 2, audio_ms=2400))
    await post.end()
    assert post.events == [*told("One.", " Two."), done("One. Two.")]
    assert post.whole


async def test_restarted_run_repeats_nothing(house: House) -> None:
    post = Post(house, body=form({**WHISPER, "stream": "true"}))
    job = await accepted(house)
    house.jobs.conclude(job, Started(Service.SPEECH, "run"))
    house.jobs.conclude(job, Portion(Service.SPEECH, "run", 0, transcript(FIRST, SECOND), 0.5))
    await post.until(lambda body: b"Two." in body)
    house.jobs.perform(job, Service.SPEECH, transcript(FIRST, SECOND, THIRD), run="again", audio_ms=3000)
    await post.end()
    assert post.events == [*told("One.", " Two.", " Three."), done("One. Two. Three.")]


async def test_diarized_stream_has_segment_events(house: House) -> None:
    post = Post(house, body=form({**WHISPER, "stream": "true", "response_format": "diarized_json"}))
    house.jobs.perform(await accepted(house), Service.SPEECH, transcript(*TURNS), audio_ms=11_600)
    await post.end()
    kinds = [event["type"].removeprefix("transcript.text.") for event in post.events]
    assert kinds == ["delta", "segment", "delta", "segment", "done"]
    delta, segment = post.events[:2]
    assert delta["segment_id"] == segment["id"] == "seg_0"
    assert (segment["speaker"], segment["text"]) == ("A", "Good morning.")


async def test_heartbeats_are_sent_while_idle(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.01)
    post = Post(house, body=form({**WHISPER, "stream": "true"}))
    await post.until(lambda body: body.count(b": still here\n\n") >= 3)
    house.jobs.perform(await accepted(house), Service.SPEECH, transcript())
    await post.end()
    assert post.events == [done("")]


async def test_error_is_last_event(house: House) -> None:
    post = Post(house, body=form({**WHISPER, "stream": "true"}))
    job = await accepted(house)
    await asyncio.sleep(0)
    house.jobs.perform(job, Service.SPEECH, transcript(FIRST), error="the audio breaks off")
    await post.end()
    assert post.events[:-1] == told("One.")
    assert post.events[-1]["error"]["message"] == "speech_analysis failed: the audio breaks off"
    assert post.whole
