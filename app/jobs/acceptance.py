"""Accepts jobs: receives and checks the recording, appends it to the log, then accepts the job.

The key is verified before the body is read. The next checks are faults of form (422), options that do not fit together
or a model that the operator does not allow (400), files that are not recordings (500, as the contract says), and spent
free seconds (402). Every accepted job can be run.
"""

import asyncio
import hmac
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from app.cluster.takeovers import host
from app.http.bodies import SMALL_BODY, chunk_body
from app.http.call import Call
from app.http.descriptions import Answer, Fault, Form, TooLong, fault_of, json_body, operation
from app.http.descriptions import Part as FormPart
from app.http.metrics import JOBS, RECORDINGS
from app.http.replies import Reply, StreamReply, json_reply
from app.http.turns import holder_of
from app.http.uploads import UploadSpool
from app.jobs.answers import AcceptedJob
from app.jobs.errors import job_not_found, refusal_error
from app.jobs.examples import ACCEPTED, ALL, SOUNDS, WAV
from app.jobs.job_context import JobContext
from app.jobs.options import FIELD_BYTES, OPTIONS, AnalyzeFields, RequestOptions, consistent_options, decoded
from app.jobs.rendering import JobReading
from app.jobs.requests import JobRequest, read_form, read_json
from app.shared_descriptions import BROKEN, IDEMPOTENCY_KEY, PROJECT_KEY, SLOW
from topics import keys, traces
from topics.errors import AudioError, BadRequest, Conflict, Exhausted, Unavailable
from topics.folding import Verdict
from topics.jobs.options import TOLD
from topics.jobs.records import PART_BYTES, Accepted, Part, Source
from topics.keys import ALPHABET, ID_LENGTH
from topics.ports.directory import Principal
from topics.ports.jobs import JobView
from topics.ports.prober import ProbeResult
from topics.times import iso_time

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

NO_MODEL: Final = "speech_model is not available here"
OTHER_REQUEST: Final = "the Idempotency-Key was used for another request"
#: Parts that may be on their way to the log at a time.
IN_FLIGHT: Final = 4
#: Reads a body of limited length, and writes its audio to the spool.
BodyReader = Callable[[Call, JobContext, int, UploadSpool], Awaitable[JobRequest]]


ANSWER: Final = {200: Answer("The job is accepted.", (AcceptedJob,), {"accepted": ACCEPTED})}
TEXT: Final = (
    "The answer comes once the recording is on disk and its first second is decoded. It is analysed in the "
    "background, whatever dies. A job is kept for {job_keep_seconds} s. Checks run in this order: the key (401), the "
    "form of the body (422), conflicting options (400), the audio (500, with the reason in the header "
    "`Earshot-Reason`), the free seconds of the month (402)."
)
FIELDS: Final = f"{FIELD_BYTES} bytes"


def _faults(limit: str) -> tuple[Fault, ...]:
    return (
        fault_of(consistent_options, RequestOptions()),
        fault_of(consistent_options, RequestOptions(speech_analysis=True, audio_insights=True)),
        fault_of(consistent_options, RequestOptions(sound_event_detection=True, speech_analysis=True, caption=True)),
        *(fault_of(consistent_options, replace(SOUNDS, **{name: True})) for name in TOLD if TOLD[name].extra["needs"]),
        fault_of(consistent_options, RequestOptions(speech_analysis=True, min_speakers=3, max_speakers=2)),
        BadRequest(NO_MODEL),
        Exhausted(),
        SLOW,
        Conflict(OTHER_REQUEST),
        fault_of(decoded, OPTIONS, b'{"surprise":true}', "options"),
        AudioError("the audio is not base64"),
        *BROKEN,
        TooLong(limit),
    )


@operation(
    "POST /analyze",
    origin="contract",
    key=PROJECT_KEY,
    parameters=(IDEMPOTENCY_KEY,),
    bodies=json_body(
        sounds=AnalyzeFields(16_000, WAV, SOUNDS, filename="door.wav"),
        everything=AnalyzeFields(16_000, WAV, ALL),
        small=False,
    ),
    answers=ANSWER,
    faults=partial(_faults, "analyze_limit"),
)
async def analyze(call: Call, context: JobContext) -> Reply | StreamReply:
    """Analyse a recording in JSON.

    {TEXT} The recording may have {analyze_limit} bytes, every other field {FIELDS}.
    """
    return await _answer(call, context, read_json, chunk_body(context.options.analyze_limit) + SMALL_BODY)


@operation(
    "POST /analyze_file",
    origin="contract",
    key=PROJECT_KEY,
    parameters=(IDEMPOTENCY_KEY,),
    bodies=(
        Form(
            {
                "options": FormPart(RequestOptions, "What to do, as JSON."),
                "audio": FormPart(bytes, "The recording, in any container; its name is repeated in the result."),
            },
            {"sounds": {"options": SOUNDS, "audio": "door.wav"}},
        ),
    ),
    answers=ANSWER,
    faults=partial(_faults, "upload_limit"),
)
async def analyze_file(call: Call, context: JobContext) -> Reply | StreamReply:
    """Analyse a recording as a file.

    {TEXT} The whole body may have {upload_limit} bytes.
    """
    return await _answer(call, context, read_form, context.options.upload_limit)


async def _answer(call: Call, context: JobContext, read: BodyReader, limit: int) -> Reply | StreamReply:
    principal = await context.project_keys.authenticate(call)
    job = await accept(call, context, principal, read, limit)
    if isinstance(job, JobReading):
        return json_reply(AcceptedJob(job.job, "accepted", iso_time(job.head.created)))
    return job


async def accept(
    call: Call, context: JobContext, principal: Principal, read: BodyReader, limit: int, patient: bool = False
) -> JobReading | Reply | StreamReply:
    """Accept the job that a request asks for: a new job, or an earlier one with the same Idempotency-Key.

    Returns:
        The job, or the answer of the node that owns it; `patient` waits for that (`Forwarder.forward`).

    Raises:
        EarshotError: the request is refused; nothing was accepted.
    """

    async def forward(owner: str) -> Reply | StreamReply:
        async with aclosing(context.uploads.pieces(call, limit)) as body:
            return await context.forwarder.forward(call.scope, owner, body, patient)

    if not call.idempotency_key() and (other := host(call, context.jobs)) is not None:
        return await forward(other)
    job = _job_id(call, context, principal)
    if (reply := await context.takeovers.ask(call, context.jobs, job, forward)) is not None:
        return reply
    if context.jobs.view(job) is None:
        context.jobs.admit(principal.project)
    try:
        async with context.uploads.spool(holder_of(principal), hashed=True) as audio:
            request = await read(call, context, limit, audio)
            # An upload may take an hour, and the key may have ended meanwhile.
            principal = await context.project_keys.authenticate(call)
            return await _accept_recording(context, principal, job, request, audio)
    except OSError as error:
        raise Unavailable("the audio cannot be kept now", retry_after=10) from error


def _job_id(call: Call, context: JobContext, principal: Principal) -> str:
    """Return a random id, or the id that belongs to the Idempotency-Key and the project's key.

    Raises:
        BadRequest: the Idempotency-Key is too long.
    """
    key = call.idempotency_key()
    if not key:
        return context.jobs.new_id()
    # Derive the id from the key as sent, which is stored nowhere, so that a backup does not reveal it.
    sent = context.project_keys.key(call).encode("utf-8", "surrogateescape")
    mac = hmac.digest(context.options.secret, b"\0".join((sent, principal.project.encode(), key)), "sha256")
    number = int.from_bytes(mac, "big")
    return "".join(ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(ID_LENGTH))


async def _accept_recording(
    context: JobContext, principal: Principal, job: str, request: JobRequest, audio: UploadSpool
) -> JobReading:
    digest = request.digest(audio)
    if (view := context.jobs.view(job)) is not None:
        return _repeated(job, view, digest)
    model = request.options.speech_model
    if model is not None and model not in context.options.speech_models:
        raise BadRequest(NO_MODEL)
    if not audio.size:
        raise AudioError("the data holds no audio")
    async with context.probing.place(holder_of(principal)):
        probe = await context.prober.probe(audio.fileno(), request.media)
    if principal.free_seconds is not None and await context.directory.exhausted(principal):
        raise Exhausted()
    upload = next(context.commands)
    sounds, hearing = context.jobs.hearing(None, principal.own, principal.choices)
    accepted = Accepted(
        command=upload,
        upload=upload,
        parts=-(-audio.size // PART_BYTES),
        project=principal.project,
        organization=principal.organization,
        options=request.options,
        source=_source(request, probe, audio),
        model=sounds,
        digest=digest,
        keep_audio_ms=_keep_audio_ms(context, principal),
        hearing=hearing,
    )
    verdict = await _append(context, job, accepted, audio)
    if verdict.status != 200:
        raise refusal_error(verdict)
    view = context.jobs.view(job)
    if view is None:
        raise job_not_found()  # somebody with its Idempotency-Key just removed it
    context.meters.add(JOBS)
    context.meters.add(RECORDINGS, audio.size)
    if traces.tracer is not None:
        traces.tracer.accepted(job)
    log.info("job accepted", job=keys.shown(job), project=principal.project, size=audio.size, format=probe.format)
    return JobReading(job, view)


def _keep_audio_ms(context: JobContext, principal: Principal) -> int:
    own = principal.choices.keep_audio_seconds
    options = context.options
    return 1000 * (options.keep_audio_seconds if own is None else min(own, options.audio_retention_seconds))


def _source(request: JobRequest, probe: ProbeResult, audio: UploadSpool) -> Source:
    return Source(
        content_type=probe.content_type,
        format=probe.format,
        size=audio.size,
        rate=probe.rate,
        channels=probe.channels,
        filename=request.filename,
        declared=request.declared,
    )


async def _append(context: JobContext, job: str, accepted: Accepted, audio: UploadSpool) -> Verdict:
    """Append the parts, a few at a time, and the acceptance right after the last ones: one flush serves them all.

    Tasks start in the order of their creation, so the log has the records in that order.
    """
    jobs, commands = context.jobs, context.commands
    tasks: deque[asyncio.Task[None]] = deque()
    accepting: asyncio.Task[Verdict] | None = None
    try:
        for number in range(accepted.parts):
            if len(tasks) == IN_FLIGHT:
                await tasks.popleft()
            data = await asyncio.to_thread(audio.read, number * PART_BYTES, PART_BYTES)
            part = Part(next(commands), accepted.upload, number, data)
            tasks.append(asyncio.create_task(jobs.upload(job, part, accepted.project)))
        accepting = asyncio.create_task(jobs.submit(job, accepted))
        while tasks:
            await tasks.popleft()
        return await accepting
    finally:
        pending = [*tasks, *([accepting] if accepting is not None else [])]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


def _repeated(job: str, view: JobView, digest: bytes) -> JobReading:
    """Return the job of an earlier request if this one is the same."""
    if not hmac.compare_digest(view.head.digest, digest):
        raise Conflict(OTHER_REQUEST)
    return JobReading(job, view)
