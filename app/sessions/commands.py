"""Operations that change a session: each is one command on the log, answered with the verdict of its fold."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final

import msgspec
import structlog

from app.cluster.takeovers import host
from app.http.bodies import SMALL_BODY, chunk_body, decode
from app.http.call import Call
from app.http.descriptions import Answer, Fault, Parameter, fault_of, json_answer, json_body, operation
from app.http.queries import IntegerParameter
from app.http.replies import NO_CONTENT, Reply, StreamReply, generic_error, json_reply, json_reply_of_bytes
from app.http.turns import holder_of
from app.sessions.answers import CreatedSession, SessionRefs
from app.sessions.examples import BASE64, FILE, ID, STREAM
from app.sessions.raw_audio import check_chunk
from app.sessions.requests import (
    CHUNK,
    CREATE,
    RAW,
    UPDATE,
    AudioChunk,
    CreateSession,
    UpdateSession,
    chunk_audio,
    quick_audio,
    read_audio,
)
from app.sessions.session_context import SessionContext
from app.sessions.source import CAPTURED_AT, WARNING, captured_at, read_time
from app.sessions.waiting import NO_SUCH_SESSION, SESSION, SESSION_KEY, allowed_session, session_id
from app.shared_descriptions import BROKEN, IDEMPOTENCY_KEY, PROJECT_KEY
from app.windows import check_tags
from topics import keys, media
from topics.catalog import DEFAULT_CHUNK_LIMIT
from topics.choices import SoundRule
from topics.errors import BadRequest, NotFound, TooLarge
from topics.folding import Arrival, Verdict
from topics.geometry import SESSIONS, Geometry, seconds
from topics.ports.directory import Principal
from topics.sessions.commands import MOST_TUNED, OVER, TOO_OFTEN, fold_command, foresee
from topics.sessions.records import Chunk, Deleted, Opened, Renamed, Sealed, SessionCommand, Tuned

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

METADATA_BYTES: Final = 4 * 1024
SEQUENCE: Final = IntegerParameter("chunk_sequence", "Number of the chunk: from 0, one more after each accepted chunk.")
_HOPS_MS: Final = {"0.5s": 500, "1s": 1000}


def refused(*history: SessionCommand) -> Fault:
    """Return the refusal of the last command of a history, by the rules for all commands."""
    head = None
    for offset, command in enumerate(history, start=1):
        step = fold_command(head, command, Arrival(offset, 0))
        head = step.head
    return refusal(step.verdict)


def opened_example(kind: Any = "stream") -> Opened:
    return Opened("1", kind, RAW, "project", SESSIONS.window_ms, SESSIONS.hop_ms)


def chunk_example(number: int, predict: bool = False) -> Chunk:
    return Chunk("2", number, bytes(16), predict=predict)


def chunk_faults() -> tuple[Fault, ...]:
    too_long = b'{"data":"%s"}' % (b"A" * (DEFAULT_CHUNK_LIMIT // 3 * 4 + 8))
    return (
        fault_of(chunk_audio, b'{"data":"@@@@"}', DEFAULT_CHUNK_LIMIT),
        refused(opened_example(), Sealed("2"), chunk_example(0)),
        NO_SUCH_SESSION,
        refused(opened_example(), chunk_example(0), chunk_example(2)),
        fault_of(chunk_audio, too_long, DEFAULT_CHUNK_LIMIT),
    )


@operation(
    "POST /audio_sessions/ /audio_sessions",
    origin="contract",
    key=PROJECT_KEY,
    bodies=json_body(stream=STREAM, file=FILE),
    answers=json_answer("The session.", stream=CreatedSession(ID, 0, 1, 0.5)),
    faults=lambda: (
        fault_of(decode, CREATE, b'{"content_type":"audio/wav"}'),
        fault_of(media.parse, "audio/x-raw; rate=0; format=s16le"),
        *BROKEN,
    ),
)
async def create_session(call: Call, context: SessionContext) -> Reply | StreamReply:
    """Open a session.

    The key is checked first: without a valid one the answer is 401, whatever the body. Values set here never change.
    The texts of `metadata` may have {METADATA_BYTES} bytes in all. Windows are 1 s long every 0.5 s here, and 2 s every
    1 s under `/sense/api/v1`.
    """
    principal = await context.project_keys.authenticate(call)
    if (other := host(call, context.sessions)) is not None:
        return await context.list.forwarder.forward(
            call.scope, other, await call.body(SMALL_BODY, holder_of(principal))
        )
    context.sessions.admit(principal.project)
    body = decode(CREATE, await call.body(SMALL_BODY, holder_of(principal)))
    session = context.sessions.new_id()
    opened = opened_record(context, principal, body)
    verdict = await context.sessions.submit(session, opened)
    if verdict.status != 200:
        return refusal(verdict)
    log.info("session created", session=keys.shown(session), project=principal.project, kind=opened.kind)
    size, hop = seconds(opened.window_ms), seconds(opened.hop_ms)
    return json_reply(CreatedSession(session, verdict.next, size, hop))


@operation(
    "PATCH /audio_sessions/{session_id}",
    origin="contract",
    key=SESSION_KEY,
    parameters=(SESSION,),
    bodies=json_body(
        readonly=UpdateSession(True),
        rules=UpdateSession(sound_rule=SoundRule(2, 3, 1.5)),
        name=UpdateSession(file_name="door", metadata={"room": "hall"}),
    ),
    answers={204: Answer("Done.")},
    faults=lambda: (
        fault_of(decode, UPDATE, b"[]"),
        fault_of(decode, UPDATE, b'{"sound_rule":{"windows":3,"of":2}}'),
        refusal(TOO_OFTEN),
        refusal(OVER),
        NO_SUCH_SESSION,
        *BROKEN,
    ),
)
async def update_session(call: Call, context: SessionContext) -> Reply:
    """End the upload, or change the rules of sounds, or the name.

    `make_readonly`: a `readonly` session takes no more chunks and is never writable again. A file is analysed now.
    `false`, or a body without the field, changes nothing. `sound_rule` and `sound_rules` apply to windows that are not
    analysed yet; they change at most {MOST_TUNED} times. An ended session may get another name, too.
    """
    session, view = await allowed_session(call, context)
    body = decode(UPDATE, await call.body(SMALL_BODY, call.holder))
    check_metadata("metadata", body.metadata or {})
    if body.sound_rule is not None or body.sound_rules is not None:
        tags = context.sessions.tags(view.opened.model or context.sessions.model())
        check_tags("sound_rules", body.sound_rules or {}, tags)
        if len(view.opened.tuned) >= MOST_TUNED:
            return refusal(TOO_OFTEN)
        verdict = await verdict_on(context, session, Tuned(next(context.commands), body.sound_rule, body.sound_rules))
        if verdict.status != 204:
            return refusal(verdict)
    if body.file_name is not None or body.metadata is not None:
        verdict = await verdict_on(context, session, Renamed(next(context.commands), body.file_name, body.metadata))
        if verdict.status != 204:
            return refusal(verdict)
    if not body.make_readonly:
        return NO_CONTENT
    return await _change_session(context, session, Sealed(next(context.commands)), "session sealed")


@operation(
    "DELETE /audio_sessions/{session_id}",
    origin="contract",
    key=SESSION_KEY,
    parameters=(SESSION,),
    answers={204: Answer("Deleted.")},
    faults=(NO_SUCH_SESSION, *BROKEN),
)
async def delete_session(call: Call, context: SessionContext) -> Reply:
    """Delete a session.

    It is no longer served. A session without a chunk for {session_idle_seconds} s is deleted too, and its alarms stay
    for a week. To delete them before that, delete the session nevertheless, which answers 404.
    """
    try:
        session, _ = await allowed_session(call, context)
    except NotFound:
        await _delete_alarms(call, context)
        raise
    return await _change_session(context, session, Deleted(next(context.commands)), "session deleted")


@operation(
    "PUT /audio_sessions/{session_id}/chunks/{chunk_sequence}",
    origin="contract",
    key=SESSION_KEY,
    parameters=(
        SESSION,
        Parameter(SEQUENCE.name, "path", SEQUENCE, SEQUENCE.text, True, 0),
        IDEMPOTENCY_KEY,
        Parameter(
            CAPTURED_AT,
            "header",
            str,
            "When the first sample that begins in the chunk was captured (RFC 3339); raw PCM only. Later chunks follow "
            "it without a pause. With `; spooled` after the time it may be up to 7 days ago.",
            example="2026-11-30T08:00:00.123Z",
        ),
    ),
    bodies=json_body(silence=AudioChunk(BASE64), small=False),
    answers=json_answer(
        "The chunk is accepted.", first=SessionRefs(ID, 1), headers={WARNING: f"Why {CAPTURED_AT} is left out."}
    ),
    faults=lambda: (
        fault_of(SEQUENCE.judge, "one"),
        fault_of(read_time, CAPTURED_AT, "noon"),
        *chunk_faults(),
        *BROKEN,
    ),
)
async def upload_chunk(call: Call, context: SessionContext) -> Reply:
    """Upload a chunk.

    The answer is 200 once the audio is on disk; it is then analysed whatever dies. A chunk holds at most
    {contract_chunk_limit} bytes of audio here, {chunk_limit} under `/sense/api/v1`. For a stream, send about half a
    second at a time; each chunk must be decodable alone. For a file, send 1 MiB at a time; only the whole must be
    decodable. Only the next number is accepted: after 409 the status has it. Audio of another type than declared makes
    the session `readonly`; `error` in its status says why.
    """
    session, view = await allowed_session(call, context)
    holder = call.holder
    sequence = SEQUENCE.judge(call.path("chunk_sequence"))
    captured, warning = captured_at(call, view)
    with naming_limit(context.chunk_limit) as limit:
        body = await call.body(chunk_body(limit), holder)
        audio = quick_audio(body, limit) or (await read_audio(context.decoding, holder, CHUNK, body, limit))[1]
    chunk = Chunk(next(context.commands), sequence, audio, idempotency_digest(call), captured=captured)
    verdict = await verdict_on(context, session, chunk)
    if verdict.status != 200:
        return refusal(verdict)
    reply = json_reply_of_bytes(b'{"session_id":"%s","chunk_sequence":%d}' % (session.encode("ascii"), verdict.next))
    if warning is not None:
        reply.headers.append((WARNING.lower().encode(), warning.encode()))
    return reply


@contextmanager
def naming_limit(limit: int) -> Iterator[int]:
    """Add the limit and its setting to the error, because clients choose their chunk size."""
    try:
        yield limit
    except TooLarge as error:
        raise type(error)(
            f"{error} (chunks here have at most {limit} bytes; EARSHOT_CHUNK_LIMIT is the most under /sense/api/v1)"
        ) from None


async def verdict_on(context: SessionContext, session: str, command: SessionCommand | Tuned) -> Verdict:
    """Return the verdict on a command; append the command to the log only if the verdict is not certain already.

    Raises:
        BadRequest: raw PCM that would end its session.
    """
    view = context.sessions.view(session)
    verdict = foresee(None if view is None else view.head, command)
    if verdict is not None:
        return verdict
    if isinstance(command, Chunk) and view is not None:
        check_chunk(context.sessions, view, command)
    verdict = await context.sessions.submit(session, command)
    if verdict.status == 200 and isinstance(command, Chunk):
        context.meters.accepted(len(command.data))
        if context.options.log_chunks:
            log.debug("chunk accepted", session=keys.shown(session), next=verdict.next, size=len(command.data))
    return verdict


def idempotency_digest(call: Call) -> bytes:
    """Return 16 bytes that stand for the Idempotency-Key header, or b"".

    Raises:
        BadRequest: the header is too long.
    """
    key = call.idempotency_key()
    return blake2b(key, digest_size=16).digest() if key else b""


def opened_record(context: SessionContext, principal: Principal, body: CreateSession) -> Opened:
    """Return the record that opens a session of a project.

    Raises:
        BadRequest: a field has an unusable value.
    """
    declared = media.parse(body.content_type)
    choices = msgspec.structs.replace(
        principal.choices,
        sound_rule=body.sound_rule or principal.choices.sound_rule,
        sound_rules={**principal.choices.sound_rules, **(body.sound_rules or {})},
    )
    model, hearing = context.sessions.hearing(body.model, principal.own, choices)
    official, sensitivities = context.sessions.tags(model), body.tags_sensitivity or {}
    check_tags("tags_sensitivity", sensitivities, official)
    check_tags("sound_rules", body.sound_rules or {}, official)
    geometry = context.geometry
    if body.window_hop is not None:
        geometry = Geometry(geometry.window_ms, _HOPS_MS[body.window_hop])
    return Opened(
        command=next(context.commands),
        kind=body.type,
        content_type=declared.content_type if declared.container == "raw" else body.content_type,
        project=principal.project,
        window_ms=geometry.window_ms,
        hop_ms=geometry.hop_ms,
        total_size=body.total_size,
        default_sensitivity=body.default_sensitivity or 0,
        tags_sensitivity=sensitivities,
        metadata=_metadata(body),
        file_name=body.file_name,
        file_length=body.file_length,
        model=model,
        organization=principal.organization,
        hearing=hearing,
    )


def _metadata(body: CreateSession) -> dict[str, str]:
    field, metadata = "metadata", body.metadata
    if metadata is None:
        field, metadata = "metadatas", body.metadatas or {}
    check_metadata(field, metadata)
    return metadata


def check_metadata(field: str, metadata: dict[str, str]) -> None:
    """Raise BadRequest if a client's notes are too long."""
    size = sum(len(text.encode()) for entry in metadata.items() for text in entry)
    if size > METADATA_BYTES:
        raise BadRequest(f"{field}: holds {size} bytes of text, at most {METADATA_BYTES} are kept")


async def _delete_alarms(call: Call, context: SessionContext) -> None:
    """Delete the alarms of a session that has expired."""
    session = session_id(call)
    if (project := context.alarms.project_of(session)) is None:
        return
    if not context.options.sessions_need_key or (await context.project_keys.authenticate(call)).project == project:
        await context.sessions.submit(session, Deleted(next(context.commands)))


async def _change_session(context: SessionContext, session: str, command: SessionCommand, event: str) -> Reply:
    verdict = await verdict_on(context, session, command)
    if verdict.status != 204:
        return refusal(verdict)
    log.info(event, session=keys.shown(session))
    return NO_CONTENT


def refusal(verdict: Verdict) -> Reply:
    """Return the error that answers a refused command."""
    return generic_error(verdict.status, verdict.error)
