"""A thin driver of the speaker interface, its voices, and test organizations."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
import numpy as np
import soundfile

from tests.audio import encoded
from tests.contract.api import RATE, Driver, Service
from tests.process import ServiceProcess

ENTRY: Final = {"speaker", "created_at", "total_length", "samples", "is_compatible"}
TURN: Final = {
    "idx",
    "transcript",
    "confidence",
    "first_word_start_msec",
    "first_word_start_time",
    "last_word_end_msec",
    "last_word_end_time",
    "speaker_tag",
    "speaker_name",
    "speaker_score",
    "speaker_is_unlabeled",
    "org_pub_id",
}


class Organization(msgspec.Struct, frozen=True):
    id: str
    name: str
    key: str


class Speakers(Driver):
    """The speaker interface of one service for one organization."""

    def __init__(self, service: Service, key: str) -> None:
        super().__init__(service, "/api/v2", key)

    @property
    def keyed(self) -> dict[str, str]:
        return {"X-Org-Key": self.key}

    def listed(self) -> httpx2.Response:
        return self.http.get("/speakers", headers=self.keyed)

    def add(self, speaker: str | None, audio: bytes | None, filename: str = "a.wav") -> httpx2.Response:
        """Register a voice as the public client does; None omits a part."""
        files: dict[str, Any] = {}
        if speaker is not None:
            files["speaker"] = (None, speaker)
        if audio is not None:
            files["file"] = (filename, audio, "audio/x-wav")
        return self.http.post("/voice", files=files or {"other": (None, "")}, headers=self.keyed)

    def remove(self, speaker: str) -> httpx2.Response:
        return self.http.delete("/speaker", params={"speaker": speaker}, headers=self.keyed)

    def re_enroll(self, speaker: str) -> httpx2.Response:
        return self.http.post("/speaker/re-enroll", params={"speaker": speaker}, headers=self.keyed)

    def recognize(self, audio: bytes) -> httpx2.Response:
        return self.http.post("/recognition", files={"file": ("a.wav", audio, "audio/x-wav")}, headers=self.keyed)

    def entries(self) -> dict[str, dict[str, Any]]:
        return {entry["speaker"]: entry for entry in data(self.listed())}

    def turns(self, audio: bytes) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = data(self.recognize(audio))["transcription"]
        return found


def data(answer: httpx2.Response) -> Any:
    """Check that an answer is a success envelope, and return its data."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    content = answer.json()
    assert content.keys() == {"data", "error", "debug"}
    assert content["error"] == "", content
    assert isinstance(content["debug"], str)
    return content["data"]


def refused(answer: httpx2.Response, status: int, message: str | None = None) -> str:
    """Check that an answer is an error envelope, and return its message."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    content = answer.json()
    assert content.keys() == {"data", "error", "debug"}
    assert content["data"] is None
    assert content["error"]
    if message is not None:
        assert content["error"] == message
    return str(content["error"])


def made(service: ServiceProcess, name: str) -> Organization:
    content = service.operate("POST", "/organizations", json={"name": name})
    return Organization(content["organization"]["id"], name, content["key"])


def stretch(reader: Path, start: float = 0.0, seconds: float = 4.0) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Return a part of one reader's utterance: int16[n] at `RATE`."""
    samples, rate = soundfile.read(reader, dtype="int16", start=round(start * RATE), frames=round(seconds * RATE))
    assert rate == RATE
    assert len(samples) == round(seconds * RATE)
    found: np.ndarray[tuple[int], np.dtype[np.int16]] = samples
    return found


def recording(parts: Iterable[np.ndarray[tuple[int], np.dtype[np.int16]]], form: str = "WAV") -> bytes:
    """Return parts in a row, half a second apart, as a file."""
    pause = np.zeros(RATE // 2, np.int16)
    return encoded(np.concatenate([piece for part in parts for piece in (part, pause)]), RATE, form)


def voice(reader: Path, start: float = 0.0, seconds: float = 4.0) -> bytes:
    return recording([stretch(reader, start, seconds)])
