"""Operations of OpenAI's interface: each accepts a job, waits until it is done, and answers with its text."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec

from app.http.bodies import while_connected
from app.http.call import Call
from app.http.descriptions import (
    Answer,
    Answers,
    Description,
    Fault,
    Form,
    Key,
    Part,
    TooLong,
    fault_of,
    json_answer,
    operation,
)
from app.http.replies import Reply, StreamReply, json_reply
from app.http.server_sent import HEADERS, HEARTBEAT_SECONDS
from app.jobs.acceptance import OTHER_REQUEST, accept
from app.jobs.errors import job_not_found
from app.jobs.job_context import JobContext
from app.jobs.rendering import JobReading
from app.openai.answers import (
    PLAIN,
    SAID,
    SEEN,
    SEGMENT,
    SPOKEN,
    SRT,
    STREAM,
    VTT,
    WORDS,
    DiarizedTranscription,
    PlainTranscription,
    SpeakerSegment,
    SpeechModel,
    SpeechModels,
    TextDelta,
    TextDone,
    VerboseTranscription,
)
from app.openai.errors import OpenAIError, ParameterError, TranscriptionFailed, UnreadableAudio, job_header
from app.openai.events import transcript_events
from app.openai.formats import answer, transcript_of
from app.openai.requests import MAX_NAMES, OWN_MODEL, Format, Granularity, SpeechForm, Task, read_fields
from app.openai.waiting import readings, removed_unless_answered
from app.shared_descriptions import BROKEN, IDEMPOTENCY_KEY, NO_BUFFERS, SLOW
from topics.errors import AudioError, Conflict, Exhausted
from topics.ports.speakers import Speakers

BEARER: Final = Key("projectBearer")
EVENTS: Final[Mapping[str, Any]] = {
    "transcript.text.delta": TextDelta,
    "transcript.text.segment": SpeakerSegment,
    "transcript.text.done": TextDone,
    "error": OpenAIError,
}
JOB: Final = {"Earshot-Job": "The job behind the answer: `/api/v1/jobs/{job_id}` has all of it."}
TEXT: Final = (
    "A job analyses the recording; the answer comes when it is done. If the client hangs up without an "
    "Idempotency-Key, the job is removed. The body may have {upload_limit} bytes. OpenAI's clients work with this "
    "service's URL plus `/v1`. `chunking_strategy`, `include[]` and `known_speaker_references[]` have no effect. "
    "Lists may be written without brackets."
)


class OpenAIContext(msgspec.Struct, frozen=True):
    """The jobs, whose project keys are the bearer tokens, and the speakers that a request may name."""

    jobs: JobContext
    speakers: Speakers


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


def _answers(task: Task) -> Answers:
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


def _faults() -> tuple[Fault, ...]:
    return (
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


def _speech(task: Task, route: str) -> Description:
    return operation(
        route,
        key=BEARER,
        parameters=(IDEMPOTENCY_KEY,),
        bodies=(_form(task),),
        answers=partial(_answers, task),
        faults=_faults,
    )


@_speech(Task.TRANSCRIBE, "POST /audio/transcriptions")
async def create_transcription(call: Call, context: OpenAIContext) -> Reply | StreamReply:
    """Transcribe a recording.

    In its own language. With `stream` the answer is events: one `data: ` line each, with a `type`. An error comes last.
    {TEXT}
    """
    return await _answer(call, context, Task.TRANSCRIBE)


@_speech(Task.TRANSLATE, "POST /audio/translations")
async def create_translation(call: Call, context: OpenAIContext) -> Reply | StreamReply:
    """Translate a recording to English.

    Never as events. {TEXT}
    """
    return await _answer(call, context, Task.TRANSLATE)


@operation("GET /models", key=BEARER, answers=json_answer("The models.", own=SpeechModels([SpeechModel(OWN_MODEL)])))
async def list_models(call: Call, context: OpenAIContext) -> Reply:
    """List speech models.

    Those that a request may name; `{OWN_MODEL}` is always there.
    """
    await context.jobs.project_keys.authenticate(call)
    names = sorted({OWN_MODEL, *context.jobs.options.speech_models})
    return json_reply(SpeechModels([SpeechModel(name) for name in names]))


async def _answer(call: Call, context: OpenAIContext, task: Task) -> Reply | StreamReply:
    jobs = context.jobs
    principal = await jobs.project_keys.authenticate(call)

    async def check_names(names: Sequence[str]) -> None:
        if not names:
            return
        registered = {profile.name for profile in await context.speakers.profiles(principal.organization)}
        if unknown := [name for name in names if name not in registered]:
            raise ParameterError(
                "known_speaker_names",
                f"{unknown[0][:100]!r} is not a registered voice: POST /api/v2/voice registers one; "
                "known_speaker_references are not read",
            )

    form = SpeechForm(task, jobs.options.speech_models, check_names)
    try:
        job = await accept(call, jobs, principal, form.read, jobs.options.upload_limit, patient=True)
    except AudioError as error:
        raise UnreadableAudio(error) from error
    if not isinstance(job, JobReading):
        return job
    request, keyed, id = form.request, bool(call.idempotency_key()), job_header(job.job)
    if request.stream:
        return StreamReply(200, [*HEADERS, id], transcript_events(jobs, request, job.job, keyed))
    async with removed_unless_answered(jobs, job.job, keyed):
        reading = await while_connected(call.receive, _completed(jobs, job.job))
    # A recording of many hours occupies a thread for a while.
    reply = await asyncio.to_thread(answer, await transcript_of(jobs, reading, task), request)
    reply.headers.append(id)
    return reply


async def _completed(context: JobContext, job: str) -> JobReading:
    async with aclosing(readings(context, job, HEARTBEAT_SECONDS)) as changes:
        async for reading in changes:
            last = reading
    return last
