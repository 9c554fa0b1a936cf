"""The operations of jobs, as the documents describe them."""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from app.cluster.cursors import ListCursors
from app.cluster.lists import MissingPart
from app.http.descriptions import (
    Answer,
    Description,
    Form,
    Key,
    Parameter,
    Part,
    TooLong,
    event_answer,
    fault_of,
    json_answer,
    json_body,
)
from app.http.operation import Handler
from app.http.server_sent import HEARTBEAT_SECONDS
from app.job_progress import JobId, JobProgress, ServiceProgress
from app.jobs import acceptance, captions, custom_sounds, events, lists, reads, window_scores
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
    JobPage,
    JobReport,
    JobResult,
    JobScores,
    Overlap,
    PartialResult,
    ProcessedAudio,
    SoundClass,
    SoundEntry,
    SoundWindow,
    SpeechEntry,
    TranslatedTurn,
    TranslationEntry,
    Turn,
    Word,
)
from app.jobs.errors import job_not_found
from app.jobs.options import FIELD_BYTES, AnalyzeFields, RequestOptions, consistent_options, decoded
from app.jobs.rendering import PROCESSED
from app.shared_descriptions import (
    BROKEN,
    IDEMPOTENCY_KEY,
    LIST_TEXT,
    NO_BUFFERS,
    PROJECT_KEY,
    SLOW,
    list_faults,
    list_parameters,
)
from topics.errors import AudioError, BadRequest, Conflict, Exhausted, NotFound
from topics.geometry import SENSE
from topics.jobs.options import DEFAULT_SPEECH_MODEL, Service
from topics.jobs.rules import VISIBLE_STATES
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

WINDOW: Final = SoundWindow("w3", "00:03.00", "00:05.00", 3.0, 5.0, [SoundClass("Dog_bark", 0.9408, "w3-87")])
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

JOB: Final = Parameter("job_id", "path", JobId, "The job.", required=True, example=ID)
LAST_EVENT: Final = Parameter(
    "Last-Event-ID", "header", str, "Id of the last event you read: later ones follow.", example="2"
)
ANSWER: Final = {200: Answer("The job is accepted.", (AcceptedJob,), {"accepted": ACCEPTED})}
FAULTS: Final = (
    fault_of(consistent_options, RequestOptions()),
    fault_of(consistent_options, RequestOptions(speech_analysis=True, audio_insights=True)),
    fault_of(consistent_options, RequestOptions(sound_event_detection=True, speech_analysis=True, caption=True)),
    fault_of(consistent_options, RequestOptions(sound_event_detection=True, speaker_profile=True)),
    fault_of(consistent_options, RequestOptions(sound_event_detection=True, translation=True)),
    fault_of(consistent_options, RequestOptions(sound_event_detection=True, word_times=True)),
    fault_of(consistent_options, RequestOptions(speech_analysis=True, speaker_diarization=False, min_speakers=2)),
    fault_of(consistent_options, RequestOptions(speech_analysis=True, min_speakers=3, max_speakers=2)),
    BadRequest(acceptance.NO_MODEL),
    Exhausted(),
    SLOW,
    Conflict(acceptance.OTHER_REQUEST),
    fault_of(decoded, RequestOptions, b'{"surprise":true}', "options"),
    AudioError("the audio is not base64"),
    *BROKEN,
)
TEXT: Final = (
    "The answer comes once the recording is on disk and its first second is decoded. It is analysed in the "
    "background, whatever dies. A job is kept for {job_keep_seconds} s. Checks run in this order: the key (401), the "
    "form of the body (422), conflicting options (400), the audio (500, with the reason in the header "
    "`Earshot-Reason`), the free seconds of the month (402)."
)
#: The project's key, if the deployment asks for it there too.
SHARED_KEY: Final = Key("projectKey", only_with="job_reads_need_key")


def _captions(form: str, text: str, media: str, example: str) -> Description:
    return Description(
        summary=f"Read captions as {form}",
        text=text,
        key=SHARED_KEY,
        parameters=(JOB,),
        answers={200: Answer("Captions.", (str,), {"door": example}, media)},
        faults=(job_not_found(), Conflict(captions.NOT_ENDED), *BROKEN),
    )


def _custom_sound(summary: str, text: str) -> Description:
    faults = (custom_sounds.not_taught(),)
    return Description(summary=summary, text=text, origin="public-clients", answers={}, faults=faults)


OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    acceptance.analyze: Description(
        summary="Analyse a recording in JSON",
        text=f"{TEXT} The recording may have {{analyze_limit}} bytes, every other field {FIELD_BYTES} bytes.",
        origin="contract",
        key=PROJECT_KEY,
        parameters=(IDEMPOTENCY_KEY,),
        bodies=json_body(
            sounds=AnalyzeFields(16_000, WAV, SOUNDS, filename="door.wav"),
            everything=AnalyzeFields(16_000, WAV, ALL),
            small=False,
        ),
        answers=ANSWER,
        faults=(*FAULTS, TooLong("analyze_limit")),
    ),
    acceptance.analyze_file: Description(
        summary="Analyse a recording as a file",
        text=f"{TEXT} The whole body may have {{upload_limit}} bytes.",
        origin="contract",
        key=PROJECT_KEY,
        parameters=(IDEMPOTENCY_KEY,),
        bodies=(
            Form(
                {
                    "options": Part(RequestOptions, "What to do, as JSON."),
                    "audio": Part(bytes, "The recording, in any container; its name is repeated in the result."),
                },
                {"sounds": {"options": SOUNDS, "audio": "door.wav"}},
            ),
        ),
        answers=ANSWER,
        faults=(*FAULTS, TooLong("upload_limit")),
    ),
    reads.read_job: Description(
        summary="Read a job",
        text="The results so far. The answer comes at once; the event stream reports when a service ends. A job is "
        "`completed` even if some of its services failed, so look at the `status` of each entry.",
        origin="contract",
        key=PROJECT_KEY,
        parameters=(JOB,),
        answers=json_answer(
            "The job.",
            completed=JobReport(ID, "completed", CREATED, RESULT),
            words=JobReport(ID, "completed", CREATED, WITH_WORDS),
            failed=JobReport(ID, "completed", CREATED, FAILED),
        ),
        faults=(job_not_found(), *BROKEN),
    ),
    reads.delete_job: Description(
        summary="Delete a job",
        text="It is no longer served, and its running services are stopped.",
        key=PROJECT_KEY,
        parameters=(JOB,),
        answers={204: Answer("Deleted.")},
        faults=(job_not_found(), *BROKEN),
    ),
    lists.list_jobs: Description(
        summary="List the jobs",
        text=f"The jobs of the project, newest first. {LIST_TEXT}",
        key=PROJECT_KEY,
        parameters=list_parameters(VISIBLE_STATES),
        answers=json_answer(
            "A page.",
            first=JobPage([LISTED], LIST_TOKEN),
            last=JobPage([ENDED]),
            incomplete=JobPage([ENDED], missing=MissingPart(21, 64)),
        ),
        faults=list_faults("jobs", VISIBLE_STATES),
    ),
    window_scores.read_scores: Description(
        summary="Read the scores of all sounds",
        text="Available once the sound events have ended; if they failed, up to the error.",
        key=PROJECT_KEY,
        parameters=(JOB,),
        answers=json_answer("The scores.", two=SCORES),
        faults=(job_not_found(), NotFound(window_scores.NO_SOUNDS), Conflict(window_scores.NOT_ENDED), *BROKEN),
    ),
    events.follow_job: Description(
        summary="Follow a job",
        text="Server-sent events to the end of the job. `progress` reports its progress, `partial_result` the end of "
        "a service, `completed` the result, and `error` that no result will come here. A comment comes every "
        f"{HEARTBEAT_SECONDS:g} s of silence. An event is `event: `, `id: ` and one `data: ` line. Needs no key, "
        "unless the deployment asks for the project's key (`EARSHOT_JOB_READS_NEED_KEY`).",
        origin="public-clients",
        key=SHARED_KEY,
        parameters=(JOB, LAST_EVENT),
        answers=event_answer(EVENTS, {"sounds": STREAM}, NO_BUFFERS),
        faults=(fault_of(events.parse_revision, "abc"), job_not_found(), *BROKEN),
    ),
    captions.captions_vtt: _captions(
        "WebVTT",
        "Speech by speaker, and other sounds. Needs a key only if the event stream does.",
        "text/vtt",
        "WEBVTT\n\n00:00:03.000 --> 00:00:07.000\n[Dog bark]\n",
    ),
    captions.captions_srt: _captions(
        "SubRip",
        "The same; the first cue of a turn begins with the speaker.",
        "application/x-subrip",
        "1\n00:00:03,000 --> 00:00:07,000\n[Dog bark]\n",
    ),
    custom_sounds.create_custom_sound: _custom_sound(
        "Upload a custom sound", "Not supported; the answer tells the vendor's client why."
    ),
    custom_sounds.finish_custom_sound: _custom_sound("End the upload of a custom sound", "Not supported either."),
}
