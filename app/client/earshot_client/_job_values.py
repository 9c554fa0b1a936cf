"""Jobs: their options, their events and their results."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from ._json import decoded_event
from ._service_values import JobOptions
from ._window_values import Window

#: Forms of captions: SubRip and WebVTT.
CaptionForm = Literal["srt", "vtt"]


SOUNDS_AND_SPEECH: Final = JobOptions(sound_event_detection=True, speech_analysis=True)


class ServiceResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one service of a job.

    Attributes:
        status: `success` or `error`.
        error: why it failed.
    """

    status: str
    error: str | None = None


class SoundResult(ServiceResult, frozen=True, kw_only=True):
    """The windows of the recording, in order."""

    results: tuple[Window, ...] = ()


class Word(msgspec.Struct, frozen=True, rename={"start": "start_time_sec", "end": "end_time_sec"}):
    """A word with its punctuation, and its times in seconds from the beginning of the recording."""

    word: str
    start: float
    end: float


class Overlap(msgspec.Struct, frozen=True, rename={"start": "start_time_sec", "end": "end_time_sec"}):
    """A part of a turn in which somebody else speaks too.

    Attributes:
        start: seconds from the beginning of the recording.
        end: seconds from the beginning of the recording.
        speaker: label of the other voice in this recording.
        speaker_name: its name, as in a turn.
    """

    start: float
    end: float
    speaker: str | None = None
    speaker_name: str | None = None


class Turn(
    msgspec.Struct,
    frozen=True,
    rename={"start": "start_time_sec", "end": "end_time_sec", "overlap": "overlap_sec"},
):
    """What one speaker says without a break.

    Attributes:
        start: seconds from the beginning of the recording.
        end: seconds from the beginning of the recording.
        transcript: the words.
        speaker: label of the speaker in this recording, such as `SPEAKER_00`.
        speaker_name: name of the registered speaker, or a name such as `Unknown 0`.
        speaker_score: likeness to the registered speaker, -1 to 1; -1 if there is nobody to compare with.
        translation: the words in the language of the translation.
        words: the words with their times, if the job asked for them.
        overlap: seconds of the turn in which others speak too, as far as detected.
        overlaps: the times of these parts, and their speakers.
    """

    start: float
    end: float
    transcript: str
    speaker: str | None = None
    speaker_name: str | None = None
    speaker_score: float | None = None
    translation: str | None = None
    words: tuple[Word, ...] = ()
    overlap: float = 0.0
    overlaps: tuple[Overlap, ...] = ()


class SpeechResult(ServiceResult, frozen=True, kw_only=True):
    """The turns of the speakers, in order."""

    results: tuple[Turn, ...] = ()


class Insights(msgspec.Struct, frozen=True, kw_only=True):
    """A description of the recording. Without speech, its language, summary and keywords are None."""

    contains_speech: bool = False
    primary_sound_environment: str = ""
    situation_summary: str = ""
    notable_events: tuple[str, ...] = ()
    detected_language: str | None = None
    speech_content_summary: str | None = None
    keywords: tuple[str, ...] | None = None


class InsightsResult(ServiceResult, frozen=True, kw_only=True):
    """The insights; `result` is None if the service failed."""

    result: Insights | None = None


class Caption(msgspec.Struct, frozen=True):
    """A sentence that describes the recording."""

    caption: str


class CaptionResult(ServiceResult, frozen=True, kw_only=True):
    """The caption; `result` is None if the service failed."""

    result: Caption | None = None


class TranslationResult(ServiceResult, frozen=True, kw_only=True):
    """The turns with their translation, and the language code of the translation."""

    target_lang: str | None = None
    results: tuple[Turn, ...] = ()


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a job's services. A service that was not requested, or has not ended, is None.

    Attributes:
        metadata: `audio` describes the recording; `warnings` are sentences for people.
    """

    sound_event_detection: SoundResult | None = None
    speech_analysis: SpeechResult | None = None
    audio_insights: InsightsResult | None = None
    caption: CaptionResult | None = None
    translation: TranslationResult | None = None
    metadata: Mapping[str, Any] = {}

    @property
    def errors(self) -> dict[str, str]:
        """The failed services by name, with the reason."""
        results = {name: getattr(self, name) for name in self.__struct_fields__}
        return {
            name: result.error or result.status
            for name, result in results.items()
            if isinstance(result, ServiceResult) and result.status != "success"
        }


class Job(msgspec.Struct, frozen=True, rename={"id": "job_id"}):
    """A job.

    Attributes:
        id: the secret for reading its events.
        status: `accepted`, `processing` or `completed`.
        created_at: RFC 3339, UTC.
        result: the results so far; None in the answer to an upload.
    """

    id: str
    status: str
    created_at: str | None = None
    result: JobResult | None = None


class ServiceProgress(msgspec.Struct, frozen=True):
    """State and progress, 0 to 1, of one service of a job."""

    status: str = ""
    progress: float = 0.0


class JobProgress(msgspec.Struct, frozen=True):
    """State and progress, 0 to 1, of a job and of each of its services by name."""

    status: str = ""
    progress: float = 0.0
    services: Mapping[str, ServiceProgress] = {}


class _Message(msgspec.Struct, frozen=True):
    error: str


class JobEvent(msgspec.Struct, frozen=True):
    """An event of a job.

    Attributes:
        kind: `progress`, `partial_result` or, for the last one, `completed`.
        data: the event as JSON.
        id: the `last_event_id` to resume after this event; None before the first id.
    """

    kind: str
    data: bytes
    id: str | None = None

    @property
    def progress(self) -> JobProgress:
        """The progress in an event of the kind `progress`.

        Raises:
            ValueError: the event is of another kind.
        """
        return decoded_event(self.kind, self.data, "progress", JobProgress)

    @property
    def result(self) -> JobResult:
        """The result in an event of the kind `completed`.

        Raises:
            ValueError: the event is of another kind.
        """
        return decoded_event(self.kind, self.data, "completed", JobResult)

    @property
    def message(self) -> str:
        """The message in an event of the kind `error`.

        Raises:
            ValueError: the event is of another kind.
        """
        return decoded_event(self.kind, self.data, "error", _Message).error


class JobEntry(msgspec.Struct, frozen=True, rename={"id": "job_id"}):
    """A job in a list.

    Attributes:
        id: the secret for reading its events.
        status: `accepted`, `processing` or `completed`.
        created_at: RFC 3339, UTC.
        services: the requested services, each with `pending`, `running`, `success` or `error`.
        filename: the name of the recording.
        format: its container, or `raw`.
        size_bytes: its size.
        seconds: its length; None until a service has ended.
    """

    id: str
    status: str
    created_at: str
    services: Mapping[str, str]
    filename: str
    format: str
    size_bytes: int
    seconds: float | None


class JobScores(msgspec.Struct, frozen=True):
    """The scores of all sounds in all windows of a job.

    Attributes:
        model: of the windows; empty without windows.
        tags: names of the sounds, in the order of a window's bytes.
        hop_seconds: from the start of one window to the next.
        window_seconds: length of a window.
        step: the probability of a byte q is 1 / (1 + exp(-`step` * (q - `reported_from` + 0.5))).
        reported_from: a sound is reported if its byte is at least this.
        scores: one byte for each sound, window by window.
    """

    model: str
    tags: tuple[str, ...]
    hop_seconds: float
    window_seconds: float
    step: float
    reported_from: int
    scores: bytes


class AudioLink(msgspec.Struct, frozen=True):
    """A link to a job's recording.

    Attributes:
        url: to be appended to the address of the service.
        expires_at: after this the link no longer works.
    """

    url: str
    expires_at: datetime
