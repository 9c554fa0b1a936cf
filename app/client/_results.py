"""What is asked of a job, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from app.client._json import decoded

#: Forms of captions: SubRip and WebVTT.
Captions = Literal["srt", "vtt"]


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job is to do; the service says which options need which others."""

    sound_event_detection: bool = False
    speech_analysis: bool = False
    audio_insights: bool = False
    caption: bool = False
    #: Name the speakers that are registered.
    speaker_profile: bool = False
    translation: bool = False
    #: Tell speakers apart; None: where speech is analysed.
    speaker_diarization: bool | None = None
    speech_model: str | None = None
    #: A language code; None: found by the engine.
    speech_lang: str | None = None
    translation_target_lang: str | None = None
    audio_insights_prompt: str | None = None


USUAL: Final = Options(sound_event_detection=True, speech_analysis=True)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One service of a job: `success`, or `error` and why."""

    status: str
    error: str | None = None


class SoundClass(msgspec.Struct, frozen=True, rename={"name": "class"}):
    """A sound that was recognised, and how surely, 0 to 1."""

    name: str
    confidence: float


class Window(msgspec.Struct, frozen=True, rename={"start": "start_time_sec", "end": "end_time_sec"}):
    """A stretch of audio, in seconds, and what was recognised in it, surest first."""

    start: float
    end: float
    classes: tuple[SoundClass, ...] = ()


class Sounds(Entry, frozen=True, kw_only=True):
    """Sound events, window by window."""

    results: tuple[Window, ...] = ()


class Turn(msgspec.Struct, frozen=True, rename={"start": "start_time_sec", "end": "end_time_sec"}):
    """One uninterrupted turn of one speaker, in seconds."""

    start: float
    end: float
    transcript: str
    speaker: str | None = None
    speaker_name: str | None = None
    #: Likeness to the registered speaker, -1 without one.
    speaker_score: float | None = None
    translation: str | None = None


class Speech(Entry, frozen=True, kw_only=True):
    """What was said, turn by turn."""

    results: tuple[Turn, ...] = ()


class InsightsText(msgspec.Struct, frozen=True, kw_only=True):
    """What is going on in the recording; without speech the last three are None."""

    contains_speech: bool = False
    primary_sound_environment: str = ""
    situation_summary: str = ""
    notable_events: tuple[str, ...] = ()
    detected_language: str | None = None
    speech_content_summary: str | None = None
    keywords: tuple[str, ...] | None = None


class Insights(Entry, frozen=True, kw_only=True):
    """Insights; `result` is None where there are none."""

    result: InsightsText | None = None


class CaptionText(msgspec.Struct, frozen=True):
    """One sentence."""

    caption: str


class Caption(Entry, frozen=True, kw_only=True):
    """The recording in a sentence; `result` is None where there is none."""

    result: CaptionText | None = None


class Translation(Entry, frozen=True, kw_only=True):
    """The translated turns."""

    target_lang: str | None = None
    results: tuple[Turn, ...] = ()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The entries of a job that have ended; None for one that was not asked for."""

    sound_event_detection: Sounds | None = None
    speech_analysis: Speech | None = None
    audio_insights: Insights | None = None
    caption: Caption | None = None
    translation: Translation | None = None
    metadata: Mapping[str, Any] = {}

    @property
    def faults(self) -> dict[str, str]:
        """The services that failed, and why."""
        entries = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: entry.error or entry.status
            for name, entry in entries.items()
            if isinstance(entry, Entry) and entry.status != "success"
        }


class Job(msgspec.Struct, frozen=True, rename={"id": "job_id"}):
    """A job: `accepted`, `processing` or `completed`."""

    id: str
    status: str
    created_at: str | None = None
    #: What has ended so far; None in the answer to an upload.
    result: Result | None = None


class ServiceProgress(msgspec.Struct, frozen=True):
    """How far one service is, 0 to 1."""

    status: str = ""
    progress: float = 0.0


class Progress(msgspec.Struct, frozen=True):
    """How far a job is, 0 to 1."""

    status: str = ""
    progress: float = 0.0
    services: Mapping[str, ServiceProgress] = {}


class _Message(msgspec.Struct, frozen=True):
    error: str


class JobEvent(msgspec.Struct, frozen=True):
    """One event of a job's stream: `progress`, `partial_result` and, as the last one, `completed`."""

    kind: str
    #: JSON.
    data: bytes
    #: Where to go on after it; None before the first id.
    id: str | None = None

    @property
    def progress(self) -> Progress:
        """What a `progress` event says; Unreachable where it says something else, as for those below."""
        return decoded(self.data, Progress)

    @property
    def result(self) -> Result:
        """What a `completed` event says."""
        return decoded(self.data, Result)

    @property
    def message(self) -> str:
        """What an `error` event says."""
        return decoded(self.data, _Message).error
