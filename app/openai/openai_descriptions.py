"""The operations of OpenAI's interface, as the documents describe them."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from app.http.descriptions import Answer, Description, Fault, Form, Key, Part, TooLong, fault_of, json_answer
from app.http.operation import Handler
from app.jobs.acceptance import OTHER_REQUEST
from app.jobs.errors import job_not_found
from app.openai import operations
from app.openai.answers import (
    DiarizedTranscription,
    DurationUsage,
    PlainTranscription,
    SpeakerSegment,
    SpeechModel,
    SpeechModels,
    TextDelta,
    TextDone,
    TranscriptSegment,
    TranscriptWord,
    VerboseTranscription,
)
from app.openai.errors import OpenAIError, TranscriptionFailed, UnreadableAudio
from app.openai.requests import MAX_NAMES, OWN_MODEL, Format, Granularity, Task, read_fields
from app.shared_descriptions import BROKEN, IDEMPOTENCY_KEY, NO_BUFFERS, SLOW
from topics.errors import AudioError, Conflict, Exhausted

BEARER: Final = Key("projectBearer")
SAID: Final = "you don't mean that"
SEEN: Final = DurationUsage(3)
PLAIN: Final = PlainTranscription(SAID, SEEN)
WORDS: Final = [TranscriptWord("you", 0.278, 0.41), TranscriptWord("don't", 0.41, 0.93)]
SEGMENT: Final = TranscriptSegment(0, 27, 0.278, 2.368, SAID, 0.0, 0.7)
SPOKEN: Final = SpeakerSegment("seg_0", 0.278, 2.368, SAID, "A")
SRT: Final = f"1\n00:00:00,278 --> 00:00:02,368\n{SAID}\n"
VTT: Final = f"WEBVTT\n\n00:00:00.278 --> 00:00:02.368\n{SAID}\n"
EVENTS: Final[Mapping[str, Any]] = {
    "transcript.text.delta": TextDelta,
    "transcript.text.segment": SpeakerSegment,
    "transcript.text.done": TextDone,
    "error": OpenAIError,
}
STREAM: Final = "".join(f"data: {msgspec.json.encode(one).decode()}\n\n" for one in (TextDelta(SAID), TextDone(SAID)))
JOB: Final = {"Earshot-Job": "The job behind the answer: `/api/v1/jobs/{job_id}` has all of it."}
TEXT: Final = (
    "A job analyses the recording; the answer comes when it is done. If the client hangs up without an "
    "Idempotency-Key, the job is removed. The body may have {upload_limit} bytes. OpenAI's clients work with this "
    "service's URL plus `/v1`. `chunking_strategy`, `include[]` and `known_speaker_references[]` have no effect. "
    "Lists may be written without brackets."
)


def _form(task: Task) -> Form:
    formats = tuple(str(one) for one in Format if task is Task.TRANSCRIBE or one is not Format.DIARIZED)
    parts = {
        "file": Part(bytes, "The recording, in any container."),
        "model": Part(str, f"`{OWN_MODEL}` for the deployment's, or one of `/v1/models`."),
        "response_format": Part(Literal[formats], "By default `json`.", required=False),
        "language": Part(str, "Spoken language; by default the engine detects it.", required=False),
        "prompt": Part(str, "Text that helps the engine with names and spelling.", required=False),
        "temperature": Part(
            Annotated[float, msgspec.Meta(ge=0, le=1)], "No effect; repeated in a verbose answer.", required=False
        ),
        "timestamp_granularities[]": Part(
            list[Literal[tuple(map(str, Granularity))]],  # type: ignore[misc]
            "What gets times in `verbose_json`, by default segments.",
            required=False,
        ),
    }
    if task is Task.TRANSCRIBE:
        parts |= {
            "stream": Part(bool, "Answer with events, as the text comes.", required=False),
            "keywords[]": Part(list[str], "Words that may be said; appended to the prompt.", required=False),
            "languages[]": Part(list[str], "Languages that may be spoken; used only if one.", required=False),
            "known_speaker_names[]": Part(
                Annotated[list[str], msgspec.Meta(max_length=MAX_NAMES)],
                "Registered speakers to call by name, with `diarized_json`.",
                required=False,
            ),
        }
    examples = {"text": {"file": "door.wav", "model": OWN_MODEL}}
    return Form(parts, examples)


def _answers(task: Task) -> Mapping[int, tuple[Answer, ...]]:
    examples = {"json": PLAIN, "verbose_json": VerboseTranscription(task, "english", 2.4, SAID, SEEN, WORDS, [SEGMENT])}
    texts = Answer(
        "The text, with `text`, `srt` or `vtt`.",
        (str,),
        {"text": f"{SAID}\n", "srt": SRT, "vtt": VTT},
        media="text/plain",
        headers=JOB,
    )
    if task is Task.TRANSLATE:
        return {200: (Answer("The text.", (PlainTranscription, VerboseTranscription), examples, headers=JOB), texts)}
    examples["diarized_json"] = DiarizedTranscription(task, 2.4, SAID, [SPOKEN], SEEN)
    types = (PlainTranscription, VerboseTranscription, DiarizedTranscription)
    stream = Answer(
        "Events, with `stream`.",
        (str,),
        {"text": STREAM},
        media="text/event-stream",
        headers={**JOB, **NO_BUFFERS},
        events=EVENTS,
    )
    return {200: (Answer("The text.", types, examples, headers=JOB), texts, stream)}


def _fault(**fields: str) -> Fault:
    given = {"model": OWN_MODEL, **fields}
    return fault_of(read_fields, Task.TRANSCRIBE, lambda name: [given[name]] if given.get(name) else [], ())


FAULTS: Final = (
    _fault(model=""),
    _fault(response_format="xml"),
    _fault(temperature="2"),
    UnreadableAudio(AudioError("the data holds no audio")),
    Exhausted(),
    _fault(model="gpt-9"),
    job_not_found(),
    SLOW,
    Conflict(OTHER_REQUEST),
    TooLong("upload_limit"),
    TranscriptionFailed("speech_analysis failed: ASR Engine API error: 500", "4bG4kCD3jAgwG3rLuU1AvCkY"),
    *BROKEN,
)


def _speech(task: Task, summary: str, text: str) -> Description:
    return Description(
        summary=summary,
        text=f"{text} {TEXT}",
        key=BEARER,
        parameters=(IDEMPOTENCY_KEY,),
        bodies=(_form(task),),
        answers=_answers(task),
        faults=FAULTS,
    )


OPERATIONS: Final[Mapping[Handler[Any], Description]] = {
    operations.create_transcription: _speech(
        Task.TRANSCRIBE,
        "Transcribe a recording",
        "In its own language. With `stream` the answer is events: one `data: ` line each, with a `type`. An error "
        "comes last.",
    ),
    operations.create_translation: _speech(Task.TRANSLATE, "Translate a recording to English", "Never as events."),
    operations.list_models: Description(
        summary="List speech models",
        text=f"Those that a request may name; `{OWN_MODEL}` is always there.",
        key=BEARER,
        answers=json_answer("The models.", own=SpeechModels([SpeechModel(OWN_MODEL)])),
    ),
}
