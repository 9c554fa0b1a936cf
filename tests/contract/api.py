"""A thin driver of the session interface, and the audio of the contract tests."""

import base64
from functools import cache
from typing import Any, Protocol, Self

import httpx2
import numpy as np

from streams.audio.wav import wav_file
from tests.contract.answers import watched

RATE = 16_000
RAW = f"audio/x-raw; rate={RATE}; format=s16le"
UNKNOWN = "0123456789abcdefghijABCD"


class Service(Protocol):
    url: str
    key: str


@cache
def tone(seconds: float) -> bytes:
    """Return a 440 Hz tone, 16-bit mono at `RATE`."""
    moments = np.arange(round(seconds * RATE)) / RATE
    return (9000 * np.sin(2 * np.pi * 440 * moments)).astype("<i2").tobytes()


def silence(seconds: float) -> bytes:
    """Return zeros, 16-bit mono at `RATE`."""
    return bytes(2 * round(seconds * RATE))


def wav(pcm: bytes) -> bytes:
    """Return 16-bit mono samples as a WAV file."""
    return wav_file(pcm, RATE)


def b64(data: bytes) -> str:
    """Encode `data` for a chunk."""
    return base64.b64encode(data).decode("ascii")


class Driver:
    """A client of one part of a service, with a key; checks answers against the document."""

    def __init__(self, service: Service, prefix: str, key: str | None = None) -> None:
        self.service = service
        self.key = service.key if key is None else key
        self.http = watched(httpx2.Client(base_url=service.url + prefix, timeout=120))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.http.close()


class Api(Driver):
    """One generation of the interface of one service."""

    def __init__(self, service: Service, prefix: str = "") -> None:
        super().__init__(service, prefix)

    def post(self, body: Any, key: str | None = None) -> httpx2.Response:
        return self.http.post("/audio_sessions/", json=body, headers={"X-Api-Key": self.key if key is None else key})

    def create(self, type: str = "stream", content_type: str = RAW, **more: Any) -> str:
        answer = self.post({"type": type, "content_type": content_type, **more})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["session_id"])

    def put(self, session: str, number: int | str, data: bytes, **headers: str) -> httpx2.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.put(f"/audio_sessions/{session}/chunks/{number}", json={"data": b64(data)}, headers=named)

    def send(self, session: str, *chunks: bytes) -> None:
        """Upload chunks numbered from 0."""
        for number, chunk in enumerate(chunks):
            answer = self.put(session, number, chunk)
            assert answer.status_code == 200, answer.text

    def seal(self, session: str, value: bool = True) -> httpx2.Response:
        return self.http.patch(f"/audio_sessions/{session}", json={"make_readonly": value})

    def delete(self, session: str) -> httpx2.Response:
        return self.http.delete(f"/audio_sessions/{session}")

    def status(self, session: str, **query: Any) -> httpx2.Response:
        return self.http.get(f"/audio_sessions/{session}/status", params=query)

    def results(self, session: str, **query: Any) -> httpx2.Response:
        return self.http.get(f"/audio_sessions/{session}/results", params=query)

    def page(self, session: str, **query: Any) -> dict[str, Any]:
        """Read a page that must exist, again while a busy machine analyses its audio for longer than one read waits."""
        while True:
            answer = self.status(session, **query)
            assert answer.status_code == 200, answer.text
            content: dict[str, Any] = answer.json()
            if content["inference"]["results"] or not content["inference"]["in_progress"]:
                return content

    def follow(self, session: str, **query: Any) -> list[dict[str, Any]]:
        """Read pages, following tokens until there is none; return all pages."""
        pages = [self.page(session, **query)]
        while token := pages[-1]["inference"]["page"].get("next_token"):
            pages.append(self.page(session, next_token=token))
        return pages


def predict(api: Api, session: str, data: bytes, **more: Any) -> httpx2.Response:
    return api.http.post(f"/audio_sessions/{session}/predict", json={"data": b64(data), **more})


def events(pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for page in pages for event in page["inference"]["results"]]


def generic(answer: httpx2.Response, status: int, naming: str = "") -> None:
    """Check that an answer is exactly a GenericError of this status whose message contains `naming`."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    content = answer.json()
    assert content.keys() == {"error", "status_code"}
    assert content["status_code"] == status
    assert isinstance(content["error"], str)
    assert naming in content["error"]
