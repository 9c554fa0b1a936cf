"""Voices of ten seconds, oversized uploads, and a client that posts them."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import soundfile

from benchmarks.processes import BenchmarkError, ServerProcess
from benchmarks.recordings import write_speech

ORG_KEY: Final = "benchmarks-organization-key-0123456789"
SECONDS: Final = 10
MIB: Final = 1024 * 1024
READY_SECONDS: Final = 30.0

_FORM: Final = {"Content-Type": "multipart/form-data; boundary=b"}
_HEAD: Final = (
    b'--b\r\nContent-Disposition: form-data; name="speaker"\r\n\r\n%s\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
)
_TAIL: Final = b"\r\n--b--\r\n"


def recordings(directory: Path) -> dict[str, bytes]:
    """Return the same ten seconds of speech as a 16 kHz WAV and as an Ogg file."""
    wav = write_speech(directory / "ten.wav", SECONDS)
    ogg = directory / "ten.ogg"
    soundfile.write(ogg, *soundfile.read(wav), format="OGG", subtype="VORBIS")
    return {"wav": wav.read_bytes(), "ogg": ogg.read_bytes()}


def form(speaker: str, audio: bytes) -> bytes:
    return _HEAD % speaker.encode("ascii") + audio + _TAIL


def large(speaker: str, mebibytes: int) -> Iterator[bytes]:
    """Yield the body of a registration whose file has `mebibytes` MiB."""
    yield _HEAD % speaker.encode("ascii")
    piece = bytes(MIB)
    for _ in range(mebibytes):
        yield piece
    yield _TAIL


def embedding_seconds(engine: http.client.HTTPConnection, body: bytes) -> float:
    """Send a form with a recording to a speaker engine; return the seconds until the answer.

    Raises:
        BenchmarkError: The engine does not answer 200.
    """
    began = time.perf_counter()
    engine.request("POST", "/v1/audio/speech/embedding", body, _FORM)
    answer = engine.getresponse()
    content = answer.read()
    seconds = time.perf_counter() - began
    if answer.status != 200:
        raise BenchmarkError(f"not embedded: {content[:500]!r}")
    return seconds


class VoiceClient:
    """A persistent connection to the speaker interface."""

    def __init__(self, server: ServerProcess) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def close(self) -> None:
        self._http.close()

    def post(self, body: bytes | Iterable[bytes], headers: Mapping[str, str] = {}) -> str:
        """Post a registration; return its error, or an empty string. An iterator is sent in chunks.

        Raises:
            BenchmarkError: The status is not 200; errors of the interface have 200 too.
        """
        return self._ask("POST", "/api/v2/voice", body, {**_FORM, **headers})

    def add(self, body: bytes) -> float:
        """Register a voice; return the seconds it took."""
        began = time.perf_counter()
        error = self.post(body)
        seconds = time.perf_counter() - began
        if error:
            raise BenchmarkError(f"not registered: {error}")
        return seconds

    def remove(self, speaker: str) -> None:
        self._ask("DELETE", f"/api/v2/speaker?speaker={speaker}")

    def wait(self, body: bytes, speaker: str) -> None:
        """Wait until the engine has started: a registration succeeds, and is undone."""
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                self.add(body)
            except BenchmarkError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                self.remove(speaker)
                return

    def _ask(
        self, method: str, path: str, body: bytes | Iterable[bytes] | None = None, headers: Mapping[str, str] = {}
    ) -> str:
        self._http.request(method, path, body, {"X-Org-Key": ORG_KEY, **headers})
        answer = self._http.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise BenchmarkError(f"{method} {path}: {answer.status} {content[:500]!r}")
        return str(json.loads(content)["error"])
