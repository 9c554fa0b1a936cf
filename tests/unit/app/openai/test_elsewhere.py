"""Requests under an Idempotency-Key whose job is on another node: forwarded once, and awaited."""

import asyncio

import pytest

from app.cluster import forwarding
from tests.unit.app.conftest import House
from tests.unit.app.jobs.conftest import TURNS, transcript
from tests.unit.app.jobs.test_elsewhere import served
from tests.unit.app.openai.conftest import WHISPER, Post, accepted, form
from topics.jobs.options import Service


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
    async with served(owner) as url:
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
    await house.app.state.forwarder.close()


async def test_owner_timeout_returns_503(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "PATIENT_SECONDS", 0.2)
    owner = House()
    async with served(owner) as url:
        house.jobs.elsewhere = Elsewhere(url)
        post = Post(house, idempotency_key="mine")
        await accepted(owner)
        await post.end()
        assert (post.status, post.json["error"]["type"]) == (503, "server_error")
    await house.app.state.forwarder.close()
