"""OpenAI's interface on both logs: texts, jobs, and OpenAI's error format."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.contract.api import Driver, Service
from tests.contract.jobs import Jobs
from tests.contract.speech import spoken
from tests.stub_engines import SPEECH, WORDS, StubEngines
from tests.waiting import until, wait_for

TEXT = " ".join(WORDS)


class OpenAI(Driver):
    @property
    def keyed(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def post(self, audio: bytes, task: str = "transcriptions", **fields: Any) -> httpx2.Response:
        return self.http.post(f"/audio/{task}", **self._asked(audio, fields))

    def hang_up(self, audio: bytes, engines: StubEngines, jobs: Jobs, **fields: Any) -> str:
        """Post a recording, and close the connection once the speech engine has it; return its job, the newest."""

        async def story() -> str:
            before = engines.calls[SPEECH]
            async with httpx2.AsyncClient(base_url=self.http.base_url, timeout=60) as http:
                asking = asyncio.create_task(http.post("/audio/transcriptions", **self._asked(audio, fields)))
                await until(lambda: engines.calls[SPEECH] > before, 60)
                newest = jobs.http.get("/jobs", params={"count": 1}, headers=jobs.keyed).json()["jobs"][0]
                asking.cancel()
                await asyncio.wait([asking])
                return str(newest["job_id"])

        return asyncio.run(story())

    def _asked(self, audio: bytes, fields: dict[str, Any]) -> dict[str, Any]:
        headers = {**self.keyed, **fields.pop("headers", {})}
        return {"data": {"model": "whisper-1", **fields}, "files": {"file": ("a.wav", audio)}, "headers": headers}


@pytest.fixture
def openai(service: Service, engines: StubEngines) -> Iterator[OpenAI]:
    """The interface, with healthy engines."""
    engines.heal()
    with OpenAI(service, "/v1") as driver:
        yield driver
    engines.heal()


@pytest.mark.both_logs
def test_transcription_keeps_its_job(openai: OpenAI, jobs: Jobs) -> None:
    answer = openai.post(spoken())
    assert answer.json() == {"text": TEXT, "usage": {"type": "duration", "seconds": 8}}
    entry = jobs.completed(answer.headers["earshot-job"])["speech_analysis"]
    assert " ".join(turn["transcript"] for turn in entry["results"]) == TEXT
    deleted = jobs.http.delete(f"/jobs/{answer.headers['earshot-job']}", headers=jobs.keyed)
    assert deleted.status_code == 204


def test_translation_succeeds_or_is_not_to_be_retried(openai: OpenAI, engines: StubEngines) -> None:
    assert openai.post(spoken(), "translations", response_format="text").text == f"<{TEXT}>\n"
    engines.faults = {SPEECH: 500}
    answer = openai.post(spoken(), "translations")
    assert answer.json()["error"]["message"] == "speech_analysis failed: ASR Engine API error: 500"
    assert (answer.status_code, answer.headers["x-should-retry"]) == (500, "false")


@pytest.mark.both_logs
@pytest.mark.parametrize("stream", ["false", "true"])
def test_job_is_removed_when_client_disconnects(openai: OpenAI, engines: StubEngines, jobs: Jobs, stream: str) -> None:
    engines.faults = {SPEECH: "hang"}
    job = openai.hang_up(spoken(), engines, jobs, stream=stream)
    wait_for(lambda: jobs.get(job).status_code == 404)


@pytest.mark.both_logs
def test_job_with_idempotency_key_survives_disconnect(openai: OpenAI, engines: StubEngines, jobs: Jobs) -> None:
    headers = {"Idempotency-Key": f"mine-{time.monotonic()}"}
    engines.seconds = 2.0
    job = openai.hang_up(spoken(), engines, jobs, headers=headers)
    engines.seconds = 0.0
    again, third = (openai.post(spoken(), headers=headers) for _ in range(2))
    assert again.json()["text"] == third.json()["text"] == TEXT
    assert again.headers["earshot-job"] == third.headers["earshot-job"] == job
