"""Operations of OpenAI's interface: each accepts a job, waits until it is done, and answers with its text."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from app.http.bodies import while_connected
from app.http.call import Call
from app.http.replies import Reply, StreamReply, json_reply
from app.http.server_sent import HEADERS, HEARTBEAT_SECONDS
from app.jobs.acceptance import accept
from app.jobs.job_context import JobContext
from app.jobs.rendering import JobReading
from app.openai.answers import SpeechModel, SpeechModels
from app.openai.errors import ParameterError, UnreadableAudio, job_header
from app.openai.events import transcript_events
from app.openai.formats import answer, transcript_of
from app.openai.openai_context import OpenAIContext
from app.openai.requests import OWN_MODEL, SpeechForm, Task
from app.openai.waiting import readings, removed_unless_answered
from topics.errors import AudioError


async def create_transcription(call: Call, context: OpenAIContext) -> Reply | StreamReply:
    """POST /v1/audio/transcriptions: the text of a recording, in its own language."""
    return await _answer(call, context, Task.TRANSCRIBE)


async def create_translation(call: Call, context: OpenAIContext) -> Reply | StreamReply:
    """POST /v1/audio/translations: the text of a recording in English."""
    return await _answer(call, context, Task.TRANSLATE)


async def list_models(call: Call, context: OpenAIContext) -> Reply:
    """GET /v1/models: the speech models that a request may name."""
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
