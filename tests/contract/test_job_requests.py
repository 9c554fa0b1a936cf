"""Posting a job to a running service: recordings that decode or not, repetitions, plans."""

from typing import Any

import pytest

from tests.contract.api import RATE, b64, tone, wav
from tests.contract.jobs import SOUND, SPEECH, Jobs, json_body
from tests.waiting import wait_for

RECORDING = wav(tone(2.0))


def error(answer: Any, status: int, message: str | None = None) -> None:
    """Check that an answer is exactly part A's general error."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
    assert answer.json() == {"error": message or answer.json()["error"]}


def plain(answer: Any) -> None:
    """Check that an answer is the plain text of an internal error."""
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize("audio", [b"", b"no audio at all" * 100, RECORDING[:40]], ids=["empty", "text", "cut header"])
def test_undecodable_audio_returns_internal_error(jobs: Jobs, audio: bytes) -> None:
    plain(jobs.file(audio))
    plain(jobs.analyze(json_body(audio)))


def test_odd_recordings_are_analysed(jobs: Jobs) -> None:
    lying = bytearray(RECORDING)
    lying[4:8] = lying[40:44] = b"\xf0\xff\xff\xff"
    assert len(jobs.result(bytes(lying))["sound_event_detection"]["results"]) == 1
    assert jobs.result(wav(b"\1\0"))["sound_event_detection"]["status"] == "success"
    body = {"samplerate": RATE, "audio": b64(tone(2.0)), "content_type": "audio/x-raw; format=s16le", "options": SOUND}
    result = jobs.completed(jobs.analyze(body).json()["job_id"])
    assert len(result["sound_event_detection"]["results"]) == 1
    assert result["metadata"]["audio"]["input"]["format"] == "raw"


@pytest.mark.both_logs
def test_repeated_request_gets_first_answer(jobs: Jobs) -> None:
    first = jobs.file(RECORDING, Idempotency_Key="the same")
    assert first.status_code == 200
    assert jobs.file(RECORDING, Idempotency_Key="the same").json() == first.json()
    error(jobs.file(wav(tone(1.0)), Idempotency_Key="the same"), 409)
    error(jobs.file(RECORDING, {**SOUND, **SPEECH}, Idempotency_Key="the same"), 409)
    assert jobs.file(RECORDING, Idempotency_Key="another").json()["job_id"] != first.json()["job_id"]


@pytest.mark.both_logs
def test_exhausted_plan_returns_402(jobs: Jobs, poor_key: str) -> None:
    with Jobs(jobs.service, poor_key) as poor:
        poor.result(RECORDING)
        refused = wait_for(lambda: answer if (answer := poor.file(RECORDING)).status_code != 200 else None)
        error(refused, 402, "exceeded maximum usage limit")
        error(poor.analyze(json_body()), 402, "exceeded maximum usage limit")
        # Audio is validated before the balance.
        plain(poor.file(b"no audio"))
