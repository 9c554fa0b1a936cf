"""Examples of requests and answers about jobs, for the documents."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from app.cluster.cursors import ListCursors
from app.job_progress import JobProgress, ServiceProgress
from app.jobs.answers import (
    AcceptedJob,
    AudioMetadata,
    CaptionEntry,
    CaptionText,
    InputAudio,
    InsightsEntry,
    InsightsResult,
    JobEntry,
    JobFault,
    JobMetadata,
    JobResult,
    JobScores,
    Overlap,
    PartialResult,
    ProcessedAudio,
    SoundEntry,
    SpeechEntry,
    TranslatedTurn,
    TranslationEntry,
    Turn,
    Word,
)
from app.jobs.options import RequestOptions
from app.jobs.rendering import PROCESSED
from app.windows import SoundWindow, WindowRenderer
from topics.geometry import SENSE
from topics.jobs.options import DEFAULT_SPEECH_MODEL, Service
from topics.ports.lists import ListQuery
from topics.scores import STEP, ZERO
from topics.times import iso_time

ID: Final = "4bG4kCD3jAgwG3rLuU1AvCkY"
CREATED_MS: Final = 1_795_330_174_481
CREATED: Final = iso_time(CREATED_MS)
ACCEPTED: Final = AcceptedJob(ID, "accepted", CREATED)

SOUNDS: Final = RequestOptions(sound_event_detection=True)
ALL: Final = RequestOptions(
    sound_event_detection=True,
    speech_analysis=True,
    audio_insights=True,
    caption=True,
    speaker_profile=True,
    translation=True,
    translation_target_lang="ko",
    speech_model=DEFAULT_SPEECH_MODEL,
    speech_prompt="Earshot, Amsterdam",
    word_times=True,
    max_speakers=2,
)
#: A WAV of its header and ten samples.
WAV: Final = "UklGRjgAAABXQVZFZm10IBAAAAABAAEAgD4AAAB9AAACABAAZGF0YRQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="

WINDOW: Final = msgspec.json.decode(
    *WindowRenderer(["Dog_bark"]).job_windows(3, bytes([167]), False, 9000), type=SoundWindow
)
TURN: Final = Turn(
    "you don't mean that", "00:00.27", "00:02.36", 0.278, 2.368, "SPEAKER_00", "Unknown 0", -1.0, {}, "설마"
)
WORDS: Final = msgspec.structs.replace(
    TURN,
    words=[Word("you", 0.278, 0.54), Word("don't", 0.54, 0.96), Word("mean", 0.96, 1.52), Word("that", 1.52, 2.368)],
    overlap_sec=0.41,
    overlaps=[Overlap(1.958, 2.368, "SPEAKER_01", "Unknown 1")],
)
INSIGHTS: Final = InsightsResult(
    contains_speech=True,
    primary_sound_environment="A place with animals: a barking dog, with speech",
    situation_summary="This recording is 7 s long. A dog barks in the last 4 s.",
    notable_events=["Dog_bark"],
    detected_language="English",
    speech_content_summary="One speaker says four words.",
    keywords=["mean"],
)
METADATA: Final = JobMetadata(
    AudioMetadata(
        InputAudio("door.ogg", "ogg", 27_029, "audio/ogg"),
        ProcessedAudio(**PROCESSED, resampled=False, downmixed=False),
    ),
    [],
)
RESULT: Final = JobResult(
    METADATA,
    SoundEntry("success", results=[WINDOW]),
    SpeechEntry("success", detected_language="English", results=[TURN]),
    InsightsEntry("success", result=INSIGHTS, item_ids={"contains_speech": "insights-contains_speech"}),
    CaptionEntry("success", result=CaptionText("A dog barks in the last 4 s, and somebody speaks.")),
    TranslationEntry(
        "success",
        target_lang="ko",
        results=[TranslatedTurn("you don't mean that", "설마", "00:00.27", "00:02.36", 0.278, 2.368)],
    ),
)
WITH_WORDS: Final = JobResult(
    METADATA, speech_analysis=SpeechEntry("success", detected_language="English", results=[WORDS])
)
FAILED: Final = JobResult(METADATA, SoundEntry("error", error="the audio breaks off after 3.2 s", results=[WINDOW]))
LISTED: Final = JobEntry(ID, "processing", CREATED, {Service.SOUND: "running"}, "door.ogg", "ogg", 27_029, None)
ENDED: Final = msgspec.structs.replace(LISTED, status="completed", services={Service.SOUND: "success"}, seconds=7.2)
LIST_TOKEN: Final = ListCursors(bytes(16)).issue("jobs", ListQuery("project"), (CREATED_MS, ID))
#: Two windows; the second reports the first sound.
SCORES: Final = JobScores(
    "earshot-sounds@1f3a9c2e",
    ["Dog_bark", "Siren"],
    SENSE.hop_ms / 1000,
    SENSE.window_ms / 1000,
    STEP,
    ZERO,
    b64encode(bytes((ZERO - 9, 3, ZERO + 40, 5))).decode("ascii"),
)
EVENTS: Final[Mapping[str, Any]] = {
    "progress": JobProgress,
    "partial_result": PartialResult,
    "completed": JobResult,
    "error": JobFault,
}


def _event(name: str, revision: int, data: Any) -> str:
    return f"event: {name}\nid: {revision}\ndata: {msgspec.json.encode(data).decode()}\n\n"


STREAM: Final = _event(
    "progress", 2, JobProgress(ID, "processing", 0.5, {Service.SOUND: ServiceProgress("running", 0.5)})
) + _event("completed", 4, JobResult(METADATA, SoundEntry("success", results=[WINDOW])))
