"""API7, server side request forgery: no client input makes the service connect elsewhere."""

import json
import socket
from typing import Any

import pytest

from tests.attacks.owasp.conftest import Canary, Target, recording
from tests.contract.api import RAW, Api, b64
from tests.contract.jobs import SOUND, SPEECH, Jobs
from tests.process import ask
from tests.stub_engines import SPEECH as TRANSCRIBE
from tests.waiting import wait_for


def untouched(canary: Canary) -> None:
    """Check that our own visit is the first; the canary counts visits."""
    socket.create_connection(("127.0.0.1", canary.port)).close()
    wait_for(lambda: canary.visits)
    assert canary.visits == 1


def test_urls_in_fields_are_not_requested(target: Target, api: Api, jobs: Jobs, canary: Canary) -> None:
    url = f"{canary.url}/internal"
    for name in ("url", "audio_url", "callback", "webhook", "speech_url", "engine", "voices_url"):
        assert jobs.file(recording(), {**SOUND, name: url}).status_code == 422
        api.post({"type": "stream", "content_type": RAW, name: url})
    assert jobs.file(recording(), {**SOUND, "speech_model": url}).status_code == 400
    jobs.result(recording(), filename=url, kind=url)
    jobs.analyze({"samplerate": 16000, "audio": url, "options": SOUND, "filename": url})
    jobs.analyze({"samplerate": 16000, "audio": b64(recording()), "options": SOUND, "content_type": url})
    api.post({"type": "file", "content_type": url})
    keyed = {"X-Org-Key": target.alice.org_key}
    for speaker in (url, "Kim"):
        form: Any = {"speaker": (None, speaker), "file": (url, b"no audio", "audio/wav")}
        ask("POST", f"{target.url}/api/v2/voice", files=form, headers=keyed)
    untouched(canary)


@pytest.mark.parametrize(
    "content",
    [
        "#EXTM3U\n#EXTINF:1,\n{}/a.ts\n",
        "ffconcat version 1.0\nfile '{}/a.wav'\n",
        "<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM '{}'>]><x>&e;</x>",
        "[playlist]\nFile1={}/a.mp3\n",
        "{}/a.wav",
        "file:///etc/passwd",
    ],
)
def test_urls_in_files_are_not_requested(jobs: Jobs, canary: Canary, content: str) -> None:
    answer = jobs.file(content.replace("{}", canary.url).encode())
    assert (answer.status_code, answer.text) == (500, "Internal Server Error"), "as the contract says of no audio"
    untouched(canary)


def test_forwarding_headers_are_ignored(target: Target, api: Api, canary: Canary) -> None:
    session = api.create()
    host = canary.url.removeprefix("http://")
    headers = {
        "Host": host,
        "Forwarded": f"host={host};proto=http;for=127.0.0.1",
        "X-Forwarded-Host": host,
        "X-Forwarded-For": "127.0.0.1",
        "X-Forwarded-Proto": "gopher",
        "X-Original-URL": "/admin/v1/usage",
        "X-Rewrite-URL": "/admin/v1/usage",
        "X-Earshot-Forwarded": "1",
        "Referer": canary.url,
        "Origin": canary.url,
    }
    answer = ask("GET", f"{target.url}/audio_sessions/{session}/status", headers=headers)
    assert answer.status_code == 200
    assert host not in answer.text + str(answer.headers)
    assert ask("GET", f"{target.url}/nothing", headers=headers).status_code == 404
    untouched(canary)


def test_engine_redirect_is_not_followed(target: Target, jobs: Jobs) -> None:
    """The engine may redirect, but the key and the recording go no further."""
    from tests.contract.speech import spoken

    before = target.engines.calls["/elsewhere"]
    target.engines.faults[TRANSCRIBE] = 302
    result = jobs.result(spoken(3), SPEECH)
    assert "302" in json.dumps(result)
    assert target.engines.calls["/elsewhere"] == before
