"""A run of a service without a log: its inputs, and its results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topics.errors import Unavailable
from topics.jobs import payloads
from topics.jobs.options import Options, Service
from topics.jobs.payloads import Segment, Sounds, Transcript
from topics.jobs.records import Accepted, Source

MODEL = "sounds@0123456789abcdef"
AUDIO_MS = 4250


class Run:
    job = "the-job"
    run = "the-run"

    def __init__(self, audio: Path | None = None, content_type: str = "audio/wav", **options: Any) -> None:
        source = Source(content_type, "wav", 1, 16000, 1)
        asked = Options(speech_analysis=True, **options)
        self.accepted = Accepted("c", "u", 1, "a-project", "an-organization", asked, source, MODEL, b"")
        self.path = audio
        self.full = False
        self.found: dict[Service, list[bytes]] = {}
        self.emitted: list[bytes] = []
        self.done: list[float] = []

    async def audio(self) -> Path:
        assert self.path is not None
        return self.path

    def check_room(self, size: int) -> None:
        if self.full:
            raise Unavailable("the disk is full")

    def portions(self, service: Service) -> Sequence[bytes]:
        return self.found.get(service, ())

    def audio_ms(self) -> int:
        return AUDIO_MS

    async def emit(self, data: bytes, done: float) -> None:
        self.emitted.append(data)
        self.done.append(done)

    def heard(self, *portions: Transcript) -> Run:
        """Set the results of speech analysis."""
        self.found[Service.SPEECH] = [payloads.encode(portion) for portion in portions]
        return self

    def sounded(self, *portions: Sounds) -> Run:
        """Set the results of sound events."""
        self.found[Service.SOUND] = [payloads.encode(portion) for portion in portions]
        return self

    @property
    def segments(self) -> list[Segment]:
        return [segment for data in self.emitted for segment in payloads.transcript(data).segments]
