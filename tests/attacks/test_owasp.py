"""Attacks of the OWASP API Security Top 10 on a running service; `docs/security.md` lists the tests of all ten."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.conftest import NUMBERS
from tests.contract.api import RAW, Api, b64, tone, wav
from tests.contract.jobs import SOUND, Jobs
from tests.contract.speech import spoken
from tests.process import ORG_KEY, ServiceProcess, ask
from tests.stub_engines import CHAT, SPEECH, StubEngines
from tests.waiting import wait_for

BOTH = {"sound_event_detection": True, "speech_analysis": True}
TELLING = ("Traceback", ".py", "site-packages", "sqlite", "starlette", "uvicorn", "python", "/home", "/root", "/tmp")
RUDE_TEXT = (
    "a\r\n\r\nevent: completed\ndata: {}\n\n00:00:00.000 --> 99:00:00.000\n<script>x</script>\x00\x1b[2J\u2028\ud7ff"
)


class Canary:
    """A port that nothing has a reason to connect to."""

    def __init__(self) -> None:
        self.visits = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.visits += 1
            connection.close()

    def check_untouched(self) -> None:
        """Check that our own visit is the first."""
        socket.create_connection(("127.0.0.1", self.port)).close()
        wait_for(lambda: self.visits)
        assert self.visits == 1

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def canary() -> Iterator[Canary]:
    port = Canary()
    yield port
    port.close()


@pytest.fixture
def answering(service: ServiceProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """The engines' answers by path, which replace sensible ones."""
    chosen: dict[str, bytes] = {}
    sensible = StubEngines.answer

    def answer(self: StubEngines, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        return chosen[path] if path in chosen else sensible(self, path, body, headers)

    monkeypatch.setattr(StubEngines, "answer", answer)
    yield chosen
    assert ask("GET", f"{service.url}/healthz").status_code == 200


def recording(seconds: float = 1) -> bytes:
    return wav(tone(seconds))


def charged(service: ServiceProcess, project: str) -> Any:
    """Wait until the ledger, which follows the log, shows audio of a project; return its row."""
    return wait_for(lambda: next((row for row in service.operate("GET", "/usage") if row["project"] == project), None))


# --- 6: more for free than the plan allows --------------------------------------------------------------------------


def test_deleting_job_does_not_refund_free_seconds(service: ServiceProcess) -> None:
    name = f"tidy-{next(NUMBERS)}"
    key = service.project(name)
    service.operate("PUT", f"/projects/{name}/plan", json={"free_seconds": 1})
    with Jobs(service, key) as jobs:
        job = jobs.accepted(recording(3))
        jobs.completed(job)
        charged(service, name)
        assert jobs.http.delete(f"/jobs/{job}", headers=jobs.keyed).status_code == 204
        assert jobs.file(recording()).status_code == 402


def test_repeated_job_is_charged_once(service: ServiceProcess) -> None:
    """Even if it is sent many times at once."""
    name = f"eager-{next(NUMBERS)}"
    with Jobs(service, service.project(name)) as jobs, ThreadPoolExecutor(8) as pool:
        audio = recording(2)
        sent = list(pool.map(lambda _: jobs.accepted(audio, Idempotency_Key="once"), range(16)))
        assert len(set(sent)) == 1
        jobs.completed(sent[0])
        answer = jobs.file(recording(3), Idempotency_Key="once")
        assert answer.status_code == 409, "nor is it another job under the same key"
    row = charged(service, name)
    assert (row["jobs"], row["audio_seconds"]) == (1, 2.0)


# --- 7: no client input makes the service connect elsewhere ---------------------------------------------------------


def test_urls_in_fields_are_not_requested(service: ServiceProcess, api: Api, jobs: Jobs, canary: Canary) -> None:
    url = f"{canary.url}/internal"
    for name in ("url", "audio_url", "callback", "webhook", "speech_url", "engine", "voices_url"):
        assert jobs.file(recording(), {**SOUND, name: url}).status_code == 422
        api.post({"type": "stream", "content_type": RAW, name: url})
    assert jobs.file(recording(), {**SOUND, "speech_model": url}).status_code == 400
    jobs.result(recording(), filename=url, kind=url)
    jobs.analyze({"samplerate": 16000, "audio": url, "options": SOUND, "filename": url})
    jobs.analyze({"samplerate": 16000, "audio": b64(recording()), "options": SOUND, "content_type": url})
    api.post({"type": "file", "content_type": url})
    for speaker in (url, "Kim"):
        form: Any = {"speaker": (None, speaker), "file": (url, b"no audio", "audio/wav")}
        ask("POST", f"{service.url}/api/v2/voice", files=form, headers={"X-Org-Key": ORG_KEY})
    canary.check_untouched()


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
    canary.check_untouched()


# --- 8: information in errors and headers ---------------------------------------------------------------------------


def test_errors_show_no_internals(service: ServiceProcess, api: Api, jobs: Jobs) -> None:
    answers = [
        ask("GET", f"{service.url}/nothing"),
        ask("GET", f"{service.url}/api/v1/nothing"),
        ask("GET", f"{service.url}/api/v2/nothing"),
        ask("GET", f"{service.url}/audio_sessions/%00/status"),
        ask("GET", f"{service.url}/audio_sessions/..%2f..%2fetc%2fpasswd/status"),
        api.post(b"\x00".decode()),
        jobs.file(b"no audio"),
        jobs.file(b"", "{"),
        ask("POST", f"{service.url}/api/v2/voice", headers={"X-Org-Key": ORG_KEY}),
    ]
    # The contract answers 500 to a damaged recording, and 200 to a voice without a file.
    assert [answer.status_code for answer in answers] == [404, 404, 404, 404, 404, 400, 500, 422, 200]
    for answer in answers:
        told = (answer.text + str(answer.headers)).lower()
        assert not [word for word in TELLING if word.lower() in told], told


# --- 10: engines that answer with anything at all -------------------------------------------------------------------
# The job ends, its other services are unaffected, and no part of an answer becomes an event or a cue by itself.


def transcription(*times: tuple[float, float], word: str = "w", text: str = "a b") -> bytes:
    words = [{"word": word, "start": start, "end": end} for start, end in times]
    return json.dumps({"language": "en", "duration": 2.0, "text": text, "segments": [], "words": words}).encode()


ANSWERS = {
    "huge numbers": transcription((1e308, 1e308), (-1e308, 1e300)),
    "backwards": transcription((9, 1), (5, 3), (-7, -8)),
    "100,000 words": transcription(*[(0, 1)] * 100_000),
    "rude text": transcription((0, 1), word=RUDE_TEXT, text=RUDE_TEXT),
}


@pytest.mark.parametrize("said", ANSWERS.values(), ids=ANSWERS)
def test_hostile_speech_engine_answers_are_contained(
    service: ServiceProcess, jobs: Jobs, answering: dict[str, bytes], said: bytes
) -> None:
    answering[SPEECH] = said
    job = jobs.accepted(spoken(2), BOTH)
    result = jobs.completed(job)
    assert result["sound_event_detection"]["status"] == "success", "the other services are as they would be"
    assert [event for event, _, _ in jobs.events(job)].count("completed") == 1
    for form in ("vtt", "srt"):
        captions = ask("GET", f"{service.url}/api/v1/jobs/{job}/captions.{form}")
        assert captions.status_code == 200
        assert "99:00:00" not in "".join(line for line in captions.text.split("\n") if "-->" in line)
        assert "\x1b" not in captions.text


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        json.dumps({"caption": "c" * 1_000_000}),
        json.dumps({"caption": RUDE_TEXT}),
        "{" * 50_000,
    ],
)
def test_hostile_caption_engine_answers_are_contained(jobs: Jobs, answering: dict[str, bytes], content: str) -> None:
    message = {"role": "assistant", "content": content}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    answering[CHAT] = json.dumps({"id": "1", "model": "m" * 10_000, "choices": choices}).encode()
    job = jobs.accepted(spoken(2), {**BOTH, "audio_insights": True, "caption": True})
    result = jobs.completed(job)
    assert result["sound_event_detection"]["status"] == "success"
    assert [event for event, _, _ in jobs.events(job)].count("completed") == 1
