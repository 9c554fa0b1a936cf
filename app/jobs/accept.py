"""Requests for jobs: the recording is received, judged and appended to the log, then the job is accepted.

The key is judged before the body is read. Then come faults of form (422), options that do not fit together (400),
recordings that are none (500, as the contract has it), and free seconds that are spent (402). What is accepted can be
run.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

import structlog

from app.http.bodies import SMALL_BODY, chunk_body
from app.http.forwarding import FORWARDED
from app.http.operation import Call
from app.http.replies import Reply, StreamReply, json_reply
from app.http.uploads import Spool, arriving
from app.jobs.errors import refused, unknown
from app.jobs.rendering import timestamp
from app.jobs.wanted import Wanted, from_form, from_json
from app.sessions.commands import IDEMPOTENCY_KEY_LENGTH
from topics.errors import AudioError, BadRequest, Conflict, Exhausted, Unavailable
from topics.folding import Verdict
from topics.jobs.records import PART_BYTES, Accepted, Part, Source
from topics.keys import ALPHABET, ID_LENGTH
from topics.ports.directory import Principal
from topics.ports.jobs import JobView
from topics.ports.prober import ProbeResult

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

#: Parts that may wait for the log at a time.
IN_FLIGHT: Final = 4
#: Reads a body of at most so many bytes, and writes its audio.
Reader = Callable[[Call, int, Spool], Awaitable[Wanted]]


async def analyze(call: Call) -> Reply | StreamReply:
    """POST /api/v1/analyze: a JSON object with `samplerate`, `audio` (base64, broken into lines or not) and `options`.

    `audio` may be called `audio_data` or `data` too. It is a file in any container that we know, or raw PCM when
    `content_type` says so, as `topics.media`; the rate may then be left to `samplerate`. `filename` is repeated in the
    result. Other fields are ignored.
    """
    return await _accept(call, from_json, chunk_body(call.edge.options.analyze_limit) + SMALL_BODY)


async def analyze_file(call: Call) -> Reply | StreamReply:
    """POST /api/v1/analyze_file: a form with the parts `options` (JSON) and `audio` (a file); others are ignored."""
    return await _accept(call, from_form, call.edge.options.upload_limit)


async def _accept(call: Call, read: Reader, limit: int) -> Reply | StreamReply:
    principal = await call.principal()
    job = _job_id(call, principal)
    if (owner := call.edge.jobs.owner(job)) is not None:
        if call.header(FORWARDED):
            raise Unavailable("another node answers for this Idempotency-Key")
        async with aclosing(arriving(call, limit)) as body:
            return await call.edge.forwarder.forward(call, owner, body)
    try:
        async with Spool(call.edge.options.spool, hashed=True) as audio:
            wanted = await read(call, limit, audio)
            return await _judge(call, principal, job, wanted, audio)
    except OSError as error:
        raise Unavailable("the audio cannot be kept now", retry_after=10) from error


def _job_id(call: Call, principal: Principal) -> str:
    """Return an id of our own choice, or the one that belongs to the project's Idempotency-Key.

    Raises:
        BadRequest: the key is too long.
    """
    key = call.header(b"idempotency-key")
    if not key:
        return call.edge.jobs.new_id()
    if len(key) > IDEMPOTENCY_KEY_LENGTH:
        raise BadRequest(f"Idempotency-Key: longer than {IDEMPOTENCY_KEY_LENGTH} characters")
    mac = hmac.digest(call.edge.options.secret, principal.project.encode() + b"\0" + key, "sha256")
    number = int.from_bytes(mac, "big")
    return "".join(ALPHABET[number // len(ALPHABET) ** place % len(ALPHABET)] for place in range(ID_LENGTH))


async def _judge(call: Call, principal: Principal, job: str, wanted: Wanted, audio: Spool) -> Reply:
    digest = wanted.digest(audio)
    if (known := call.edge.jobs.view(job)) is not None:
        return _again(job, known, digest)
    if not audio.size:
        raise AudioError("the data holds no audio")
    probed = await call.edge.prober.probe(audio.fileno(), wanted.media)
    if principal.free_seconds is not None and await call.edge.directory.exhausted(principal):
        raise Exhausted("exceeded maximum usage limit")
    upload = next(call.edge.commands)
    accepted = Accepted(
        command=upload,
        upload=upload,
        parts=-(-audio.size // PART_BYTES),
        project=principal.project,
        organization=principal.organization,
        options=wanted.options,
        source=_source(wanted, probed, audio),
        model=call.edge.jobs.model(),
        digest=digest,
    )
    verdict = await _append(call, job, accepted, audio)
    if verdict.status != 200:
        raise refused(verdict)
    known = call.edge.jobs.view(job)
    if known is None:
        raise unknown()  # removed in the same moment, by someone who has its Idempotency-Key
    call.edge.meters.job_accepted(audio.size)
    log.info("job accepted", job=job[:8], project=principal.project, size=audio.size, format=probed.format)
    return _answer(job, known)


def _source(wanted: Wanted, probed: ProbeResult, audio: Spool) -> Source:
    return Source(
        content_type=probed.content_type,
        format=probed.format,
        size=audio.size,
        rate=probed.rate,
        channels=probed.channels,
        filename=wanted.filename,
        declared=wanted.declared,
    )


async def _append(call: Call, job: str, accepted: Accepted, audio: Spool) -> Verdict:
    """Append the parts, a few at a time, and the acceptance right behind the last ones: one flush serves them all.

    Tasks begin in the order in which they were made, and so the log has the records in that order.
    """
    jobs, commands = call.edge.jobs, call.edge.commands
    tasks: deque[asyncio.Task[None]] = deque()
    accepting: asyncio.Task[Verdict] | None = None
    try:
        for number in range(accepted.parts):
            if len(tasks) == IN_FLIGHT:
                await tasks.popleft()
            data = await asyncio.to_thread(audio.read, number * PART_BYTES, PART_BYTES)
            part = Part(next(commands), accepted.upload, number, data)
            tasks.append(asyncio.create_task(jobs.upload(job, part)))
        accepting = asyncio.create_task(jobs.submit(job, accepted))
        while tasks:
            await tasks.popleft()
        return await accepting
    finally:
        left = [*tasks, *([accepting] if accepting is not None else [])]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _again(job: str, known: JobView, digest: bytes) -> Reply:
    """Give the first answer once more, to the same request."""
    if not hmac.compare_digest(known.head.digest, digest):
        raise Conflict("the Idempotency-Key was used for another request")
    return _answer(job, known)


def _answer(job: str, view: JobView) -> Reply:
    return json_reply({"job_id": job, "status": "accepted", "created_at": timestamp(view.head.created)})
