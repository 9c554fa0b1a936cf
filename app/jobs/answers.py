"""Answers about jobs: the types that the documents show and that answers are encoded from.

`app.jobs.rendering` builds results portion by portion from JSON; the tests check them against these types.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.cluster.lists import MissingPart
from app.http.replies import Time
from app.job_progress import JobId
from app.windows import Clock, SoundWindow
from app.windows import RecordingSeconds as Seconds
from topics.jobs.options import Service

Reason = Annotated[str, Meta(description="Why the result is missing or incomplete.")]


class AcceptedJob(msgspec.Struct, frozen=True):
    """An accepted job: it will be done, whatever dies."""

    job_id: JobId
    status: Literal["accepted"]
    created_at: Time


class ServiceEntry(msgspec.Struct, frozen=True):
    """What every service that has ended reports."""

    status: Literal["success", "error"]
    error: Reason | UnsetType = UNSET


class SoundEntry(ServiceEntry, frozen=True):
    """The windows of the recording, in order; if it failed, those before the error."""

    results: list[SoundWindow] | UnsetType = UNSET


class Word(msgspec.Struct, frozen=True):
    """A word with its punctuation."""

    word: str
    start_time_sec: Seconds
    end_time_sec: Seconds


class Overlap(msgspec.Struct, frozen=True):
    """A part of a turn in which somebody else speaks too."""

    start_time_sec: Seconds
    end_time_sec: Seconds
    speaker: Annotated[str, Meta(description="Label of the other voice.")]
    speaker_name: Annotated[str | None, Meta(description="Name of the other voice.")]


class Turn(msgspec.Struct, frozen=True):
    """The words of one speaker without a break."""

    transcript: str
    start_time: Clock
    end_time: Clock
    start_time_sec: Seconds
    end_time_sec: Seconds
    speaker: Annotated[str, Meta(description="Label of the voice, stable inside this job.")]
    speaker_name: Annotated[str | None, Meta(description="A registered speaker, or `Unknown 0`, `Unknown 1`, ...")]
    speaker_score: Annotated[
        float, Meta(ge=-1, le=1, description="Cosine with the registered speaker; -1 without one.")
    ]
    item_ids: dict[str, str]
    translation: Annotated[str | UnsetType, Meta(description="If `translation` was requested and has ended.")] = UNSET
    words: Annotated[
        list[Word] | UnsetType, Meta(description="If `word_times` were requested; empty if the engine gives none.")
    ] = UNSET
    overlap_sec: Annotated[
        float | UnsetType, Meta(description="Seconds in which others speak too, as far as detected.")
    ] = UNSET
    overlaps: Annotated[list[Overlap] | UnsetType, Meta(description="When that is, and who they are.")] = UNSET


class SpeechEntry(ServiceEntry, frozen=True):
    """The turns of the speakers, in order; if it failed, those before the error."""

    detected_language: Annotated[
        str | UnsetType, Meta(description="English names of languages, comma-separated, the most frequent first.")
    ] = UNSET
    results: list[Turn] | UnsetType = UNSET


class InsightsResult(msgspec.Struct, frozen=True):
    """The subject of the recording. The last three are absent if there are no words."""

    contains_speech: bool
    primary_sound_environment: str
    situation_summary: str
    notable_events: list[str]
    detected_language: Annotated[str | UnsetType, Meta(description="English names of languages, comma-separated.")] = (
        UNSET
    )
    speech_content_summary: str | UnsetType = UNSET
    keywords: list[str] | UnsetType = UNSET


class InsightsEntry(ServiceEntry, frozen=True):
    """The subject of the recording, in sentences."""

    result: InsightsResult | UnsetType = UNSET
    item_ids: dict[str, str] | UnsetType = UNSET


class CaptionText(msgspec.Struct, frozen=True):
    """A sentence about the recording."""

    caption: str


class CaptionEntry(ServiceEntry, frozen=True):
    """The recording in one sentence."""

    result: CaptionText | UnsetType = UNSET


class TranslatedTurn(msgspec.Struct, frozen=True):
    """The text, and its translation."""

    transcript: str
    translation: str
    start_time: Clock
    end_time: Clock
    start_time_sec: Seconds
    end_time_sec: Seconds


class TranslationEntry(ServiceEntry, frozen=True):
    """The turns in another language."""

    target_lang: str | UnsetType = UNSET
    results: list[TranslatedTurn] | UnsetType = UNSET


class InputAudio(msgspec.Struct, frozen=True):
    """The uploaded file."""

    filename: str
    format: Annotated[str, Meta(description="Container, or `raw`.")]
    size_bytes: Annotated[int, Meta(ge=0)]
    content_type: Annotated[str, Meta(description="As declared, otherwise as detected.")]


class ProcessedAudio(msgspec.Struct, frozen=True):
    """The audio as it was analysed."""

    sample_rate_hz: int
    channels: int
    encoding: str
    resampled: bool
    downmixed: bool


class AudioMetadata(msgspec.Struct, frozen=True):
    """The recording, before and after it was prepared."""

    input: InputAudio
    processed: ProcessedAudio


class JobMetadata(msgspec.Struct, frozen=True):
    """Facts about the recording."""

    audio: AudioMetadata
    warnings: Annotated[list[str], Meta(description="Sentences for people.")]


class JobResult(msgspec.Struct, frozen=True):
    """An entry for each service that has ended. Each fails by itself, so look at the `status` of each."""

    metadata: JobMetadata
    sound_event_detection: SoundEntry | UnsetType = UNSET
    speech_analysis: SpeechEntry | UnsetType = UNSET
    audio_insights: InsightsEntry | UnsetType = UNSET
    caption: CaptionEntry | UnsetType = UNSET
    translation: TranslationEntry | UnsetType = UNSET


class JobReport(msgspec.Struct, frozen=True):
    """A job, with the entries of services that have ended."""

    job_id: JobId
    status: Literal["accepted", "processing", "completed"]
    created_at: Time
    result: JobResult


class AudioLink(msgspec.Struct, frozen=True):
    """An address of a job's recording."""

    url: Annotated[str, Meta(description="Append it to the address of the service. Whoever has it needs no key.")]
    expires_at: datetime


class Waveform(msgspec.Struct, frozen=True):
    """Peaks of a recording, in the data format of BBC audiowaveform."""

    version: Literal[2]
    channels: Literal[1]
    sample_rate: Annotated[int, Meta(description="In Hz, as analysed.")]
    samples_per_pixel: Annotated[int, Meta(ge=1)]
    bits: Literal[8]
    length: Annotated[int, Meta(ge=0, description="Pairs in `data`.")]
    data: Annotated[
        list[Annotated[int, Meta(ge=-128, le=127)]],
        Meta(description="Minimum and maximum of each `samples_per_pixel`, from `start`."),
    ]


class JobEntry(msgspec.Struct, frozen=True):
    """A job in a list."""

    job_id: JobId
    status: Literal["accepted", "processing", "completed"]
    created_at: Time
    services: Annotated[
        dict[str, Literal["pending", "running", "success", "error"]],
        Meta(description="The requested services, and their states."),
    ]
    filename: str
    format: Annotated[str, Meta(description="Container, or `raw`.")]
    size_bytes: Annotated[int, Meta(ge=0)]
    seconds: Annotated[float | None, Meta(description="Length of the recording; null before a service has ended.")]


class JobPage(msgspec.Struct, frozen=True):
    """Jobs of the project, the newest first."""

    jobs: list[JobEntry]
    next_token: Annotated[str | UnsetType, Meta(description="Token for the next page; absent at the end.")] = UNSET
    missing: MissingPart | UnsetType = UNSET


class JobScores(msgspec.Struct, frozen=True):
    """The scores of all sounds in all windows: they show what another threshold would report."""

    model: Annotated[str, Meta(description="Model of the windows, as name@hash; empty without windows.")]
    tags: Annotated[list[str], Meta(description="Names of the sounds, in the order of a window's bytes.")]
    hop_seconds: Annotated[float, Meta(description="Seconds from the start of one window to the next.")]
    window_seconds: Annotated[float, Meta(description="Length of a window in seconds.")]
    step: Annotated[
        float, Meta(description="The probability of a byte q is 1 / (1 + exp(-`step` (q - `reported_from` + 0.5))).")
    ]
    reported_from: Annotated[int, Meta(description="A sound is reported if its byte is at least this.")]
    scores: Annotated[
        str,
        Meta(
            description="Base64 of one byte for each sound, window by window.",
            extra_json_schema={"contentEncoding": "base64", "format": "byte"},
        ),
    ]


class PartialResult(msgspec.Struct, frozen=True):
    """A service that has ended: its entry, or if that is large, a count of results."""

    service: Service
    status: Literal["success", "error"]
    entry: Annotated[dict[str, Any] | UnsetType, Meta(description="As it is in the result.")] = UNSET
    results: Annotated[int, Meta(ge=0)] | UnsetType = UNSET


class JobFault(msgspec.Struct, frozen=True):
    """An error of the job interface."""

    error: Annotated[str, Meta(min_length=1)]


class FaultDetail(msgspec.Struct, frozen=True):
    """A fault at one place of a body."""

    type: Annotated[str, Meta(description="`missing`, `extra_forbidden`, `json_invalid`, `string_type`, ...")]
    loc: Annotated[list[str], Meta(min_length=1, description="The place: `body`, then names of fields.")]
    msg: str


class ValidationFault(msgspec.Struct, frozen=True):
    """A body of the wrong form."""

    error: Literal["Validation error"]
    details: Annotated[list[FaultDetail], Meta(min_length=1)]
