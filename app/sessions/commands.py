"""Operations that change a session: each is one command on the log, answered with the verdict of its fold."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

import structlog

from app.http.bodies import SMALL_BODY, chunk_body, decode
from app.http.call import Call
from app.http.queries import IntegerParameter
from app.http.replies import NO_CONTENT, Reply, generic_error, json_reply, json_reply_of_bytes
from app.http.turns import holder_of
from app.sessions.answers import CreatedSession
from app.sessions.raw_audio import check_chunk
from app.sessions.requests import CHUNK, CREATE, UPDATE, CreateSession, quick_audio, read_audio
from app.sessions.session_context import SessionContext
from app.sessions.waiting import allowed_session
from app.sound_rules import check_tags, rule_of, rules_of
from topics import keys, media
from topics.errors import BadRequest, TooLarge
from topics.folding import Verdict
from topics.geometry import Geometry, seconds
from topics.ports.directory import Principal
from topics.sessions.records import Chunk, Deleted, Opened, Sealed, SessionCommand, Tuned
from topics.sessions.rules import MOST_TUNED, TOO_OFTEN, foresee
from topics.sessions.sounds import DEFAULT

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

METADATA_BYTES: Final = 4 * 1024
SEQUENCE: Final = IntegerParameter("chunk_sequence", "Number of the chunk: from 0, one more after each accepted chunk.")
_HOPS_MS: Final = {"0.5s": 500, "1s": 1000}


async def create_session(call: Call, context: SessionContext) -> Reply:
    """POST /audio_sessions/: open a session; the key is verified before the body is read."""
    principal = await context.project_keys.authenticate(call)
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


async def update_session(call: Call, context: SessionContext) -> Reply:
    """PATCH /audio_sessions/{id}: `make_readonly` closes the session; sound rules apply to later windows."""
    session, view = await allowed_session(call, context)
    body = decode(UPDATE, await call.body(SMALL_BODY, call.holder))
    if body.sound_rule is not None or body.sound_rules is not None:
        tags = context.sessions.tags(view.opened.model or context.sessions.model())
        rule, rules = rule_of(body.sound_rule), rules_of(body.sound_rules, tags)
        if len(view.opened.tuned) >= MOST_TUNED:
            return refusal(TOO_OFTEN)
        verdict = await verdict_on(context, session, Tuned(next(context.commands), rule, rules))
        if verdict.status != 204:
            return refusal(verdict)
    if not body.make_readonly:
        return NO_CONTENT
    return await _change_session(context, session, Sealed(next(context.commands)), "session sealed")


async def delete_session(call: Call, context: SessionContext) -> Reply:
    session, _ = await allowed_session(call, context)
    return await _change_session(context, session, Deleted(next(context.commands)), "session deleted")


async def upload_chunk(call: Call, context: SessionContext) -> Reply:
    """PUT /audio_sessions/{id}/chunks/{n}: append audio; only the next number is accepted."""
    session, _ = await allowed_session(call, context)
    holder = call.holder
    sequence = SEQUENCE.judge(call.path("chunk_sequence"))
    with naming_limit(context.chunk_limit) as limit:
        body = await call.body(chunk_body(limit), holder)
        audio = quick_audio(body, limit) or (await read_audio(context.decoding, holder, CHUNK, body, limit))[1]
    chunk = Chunk(next(context.commands), sequence, audio, idempotency_digest(call))
    verdict = await verdict_on(context, session, chunk)
    if verdict.status != 200:
        return refusal(verdict)
    return json_reply_of_bytes(b'{"session_id":"%s","chunk_sequence":%d}' % (session.encode("ascii"), verdict.next))


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
    model, hearing = context.sessions.hearing(body.model, principal.own)
    official, sensitivities = context.sessions.tags(model), body.tags_sensitivity or {}
    check_tags("tags_sensitivity", sensitivities, official)
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
        sound_rule=rule_of(body.sound_rule) or principal.rules.rule or DEFAULT,
        sound_rules={**principal.rules.by_name, **(rules_of(body.sound_rules, official) or {})},
        hearing=hearing,
    )


def _metadata(body: CreateSession) -> dict[str, str]:
    field, metadata = "metadata", body.metadata
    if metadata is None:
        field, metadata = "metadatas", body.metadatas or {}
    size = sum(len(text.encode()) for entry in metadata.items() for text in entry)
    if size > METADATA_BYTES:
        raise BadRequest(f"{field}: holds {size} bytes of text, at most {METADATA_BYTES} are kept")
    return metadata


async def _change_session(context: SessionContext, session: str, command: SessionCommand, event: str) -> Reply:
    verdict = await verdict_on(context, session, command)
    if verdict.status != 204:
        return refusal(verdict)
    log.info(event, session=keys.shown(session))
    return NO_CONTENT


def refusal(verdict: Verdict) -> Reply:
    """Return the error that answers a refused command."""
    return generic_error(verdict.status, verdict.error)
