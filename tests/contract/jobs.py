"""A thin driver of the job interface, and the recordings of its tests."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2

from tests import sse
from tests.contract.answers import hold_event
from tests.contract.api import RATE, Driver, Service, b64, tone, wav
from tests.waiting import wait_for

ALL: dict[str, Any] = {
    "sound_event_detection": True,
    "speech_analysis": True,
    "audio_insights": True,
    "caption": True,
    "speaker_profile": True,
    "translation": True,
    "speaker_diarization": True,
    "speech_model": "whisper-large-turbo",
    "speech_lang": "multi",
    "translation_target_lang": "ko",
    "audio_insights_prompt": None,
}
SOUND = {"sound_event_detection": True}
SPEECH = {"speech_analysis": True}


class Jobs(Driver):
    def __init__(self, service: Service, key: str | None = None) -> None:
        super().__init__(service, "/api/v1", key)

    @property
    def keyed(self) -> dict[str, str]:
        return {"X-Api-Key": self.key}

    def analyze(self, body: Any, **headers: str) -> httpx2.Response:
        return self.http.post("/analyze", json=body, headers={**self.keyed, **_named(headers)})

    def file(
        self, audio: bytes, options: Any = SOUND, filename: str = "a.wav", kind: str = "audio/x-wav", **headers: str
    ) -> httpx2.Response:
        """Post a recording as the public client does."""
        parts = {"options": (None, options if isinstance(options, str) else json.dumps(options))}
        files: Any = {**parts, "audio": (filename, audio, kind)}
        return self.http.post("/analyze_file", files=files, headers={**self.keyed, **_named(headers)})

    def accepted(self, audio: bytes, options: Any = SOUND, **more: Any) -> str:
        """Post a recording that must be accepted; return the job's id."""
        answer = self.file(audio, options, **more)
        assert answer.status_code == 200, answer.text
        content = answer.json()
        assert content.keys() == {"job_id", "status", "created_at"}
        assert content["status"] == "accepted"
        return str(content["job_id"])

    def get(self, job: str) -> httpx2.Response:
        return self.http.get(f"/jobs/{job}", headers=self.keyed)

    def completed(self, job: str) -> dict[str, Any]:
        """Return the result of a job after it completes."""

        def ended() -> dict[str, Any] | None:
            answer = self.get(job)
            assert answer.status_code == 200, answer.text
            return answer.json()["result"] if answer.json()["status"] == "completed" else None

        return wait_for(ended, 240)

    def result(self, audio: bytes, options: Any = SOUND, **more: Any) -> dict[str, Any]:
        return self.completed(self.accepted(audio, options, **more))

    def events(self, job: str, after: int | None = None) -> Iterator[sse.Event]:
        """Yield (event, id, data) of the event stream to its end, without a key, as the public client does."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        with self.http.stream("GET", f"/jobs/{job}/stream", headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            assert answer.headers["content-type"].startswith("text/event-stream")
            for event, number, content in sse.events(answer.iter_lines()):
                hold_event(event, content)
                yield event, number, content


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def json_body(audio: bytes | None = None, **more: Any) -> dict[str, Any]:
    return {"samplerate": RATE, "audio": b64(wav(tone(1.0)) if audio is None else audio), "options": SOUND, **more}
