"""How a transcript reaches the client: as events during analysis, and from a job on another node."""

import asyncio

import pytest

from app.cluster import forwarding
from app.openai import events
from tests.unit.app.conftest import House
from tests.unit.app.jobs.conftest import TURNS, transcript
from tests.unit.app.jobs.test_elsewhere import served
from tests.unit.app.openai.conftest import WHISPER, Post, accepted, form
from topics.jobs.options import Service
from topics.jobs.payloads import Segment
from topics.jobs.records import Finished, Portion, Started


class Elsewhere(dict[str, str]):
    """Places every job on another node."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, job: str, default: object = None) -> str:
        return self.url


async def test_forwarded_request_waits_for_owner(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    # The timeout of other requests would end long before the job.
    monkeypatch.setattr(forwarding, "UPLOAD_SECONDS", 0.05)
    monkeypatch.setattr(forwarding, "SILENCE_SECONDS", 0.05)
    owner = House()
    async with served(owner, house) as url:
        house.jobs.elsewhere = Elsewhere(url)
        post = Post(house, idempotency_key="mine")
        stream = Post(house, body=form({**WHISPER, "stream": "true"}), idempotency_key="mine")
        job = await accepted(owner)
        await asyncio.sleep(0.3)
        owner.jobs.perform(job, Service.SPEECH, transcript(*TURNS), audio_ms=11_600)
        for exchange in (post, stream):
            await exchange.end()
            assert (exchange.status, exchange.headers["earshot-job"]) == (200, job)
        assert post.json["text"] == "Good morning. Guten Tag."
        assert stream.events[-1]["type"] == "transcript.text.done"
        wrong = await Post(house, idempotency_key="mine", body=form({"model": "gpt-9"})).end()
        assert (wrong.status, wrong.json["error"]["code"]) == (404, "model_not_found")


async def test_owner_timeout_returns_503(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "PATIENT_SECONDS", 0.2)
    owner = House()
    async with served(owner, house) as url:
        house.jobs.elsewhere = Elsewhere(url)
        post = Post(house, idempotency_key="mine")
        await accepted(owner)
        await post.end()
        assert (post.status, post.json["error"]["type"]) == (503, "server_error")


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
