"""Operations that change a session: each is one command on the log, answered with the verdict of its fold."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import structlog

from app.http.bodies import CHUNK, CREATE, SMALL_BODY, UPDATE, CreateSession, audio_bytes, chunk_body, decode
from app.http.operation import Call
from app.http.queries import whole
from app.http.replies import NO_CONTENT, Reply, generic_error, json_bytes, json_reply
from app.sessions.waiting import current
from topics import media
from topics.errors import BadRequest
from topics.folding import Verdict
from topics.geometry import Geometry, seconds
from topics.ports.directory import Principal
from topics.sessions.records import Chunk, Deleted, Opened, Sealed, SessionCommand
from topics.sessions.rules import foresee

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

METADATA_BYTES: Final = 4 * 1024
IDEMPOTENCY_KEY_LENGTH: Final = 255
_HOPS_MS: Final = {"0.5s": 500, "1s": 1000}


async def create_session(call: Call) -> Reply:
    """POST /audio_sessions/: open a session; the key is judged before the body is read."""
    principal = await call.principal()
    wanted = decode(CREATE, await call.body(SMALL_BODY))
    session = call.edge.sessions.new_id()
    opened = _opened(call, principal, wanted)
    verdict = await call.edge.sessions.submit(session, opened)
    if verdict.status != 200:
        return refusal(verdict)
    log.info("session created", session=session[:8], project=principal.project, kind=opened.kind)
    return json_reply(
        {
            "session_id": session,
            "chunk_sequence": verdict.next,
            "window_size": seconds(opened.window_ms),
            "window_hop": seconds(opened.hop_ms),
        }
    )


async def update_session(call: Call) -> Reply:
    """PATCH /audio_sessions/{id}: `make_readonly` closes the session; nothing opens it again."""
    session = call.session
    wanted = decode(UPDATE, await call.body(SMALL_BODY))
    if not wanted.make_readonly:
        current(call, session)
        return NO_CONTENT
    return await _changed(call, session, Sealed(next(call.edge.commands)), "session sealed")


async def delete_session(call: Call) -> Reply:
    """DELETE /audio_sessions/{id}."""
    return await _changed(call, call.session, Deleted(next(call.edge.commands)), "session deleted")


async def upload_chunk(call: Call) -> Reply:
    """PUT /audio_sessions/{id}/chunks/{n}: append audio; exactly the next number is taken."""
    session = call.session
    sequence = _sequence(call.path("chunk_sequence"))
    limit = call.generation.chunk_limit
    audio = audio_bytes(decode(CHUNK, await call.body(chunk_body(limit))).data, limit)
    chunk = Chunk(next(call.edge.commands), sequence, audio, idempotency_of(call))
    verdict = await submitted(call, session, chunk)
    if verdict.status != 200:
        return refusal(verdict)
    return json_bytes(b'{"session_id":"%s","chunk_sequence":%d}' % (session.encode("ascii"), verdict.next))


async def submitted(call: Call, session: str, command: SessionCommand) -> Verdict:
    """Return the verdict on a command, without troubling the log where it is certain already."""
    view = call.edge.sessions.view(session)
    verdict = foresee(None if view is None else view.head, command)
    if verdict is not None:
        return verdict
    verdict = await call.edge.sessions.submit(session, command)
    if verdict.status == 200 and isinstance(command, Chunk):
        call.edge.meters.accepted(len(command.data))
        if call.edge.options.log_chunks:
            log.debug("chunk accepted", session=session[:8], next=verdict.next, size=len(command.data))
    return verdict


def idempotency_of(call: Call) -> bytes:
    """Return 16 bytes that stand for the Idempotency-Key header, b"" when there is none.

    Raises:
        BadRequest: the header is too long.
    """
    key = call.header(b"idempotency-key")
    if len(key) > IDEMPOTENCY_KEY_LENGTH:
        raise BadRequest(f"Idempotency-Key: longer than {IDEMPOTENCY_KEY_LENGTH} characters")
    return blake2b(key, digest_size=16).digest() if key else b""


def _opened(call: Call, principal: Principal, wanted: CreateSession) -> Opened:
    media.parse(wanted.content_type)
    geometry = call.generation.geometry
    if wanted.window_hop is not None:
        geometry = Geometry(geometry.window_ms, _HOPS_MS[wanted.window_hop])
    return Opened(
        command=next(call.edge.commands),
        kind=wanted.type,
        content_type=wanted.content_type,
        project=principal.project,
        window_ms=geometry.window_ms,
        hop_ms=geometry.hop_ms,
        total_size=wanted.total_size,
        default_sensitivity=wanted.default_sensitivity or 0,
        tags_sensitivity=_tags_sensitivity(call, wanted.tags_sensitivity or {}),
        metadata=_metadata(wanted),
        file_name=wanted.file_name,
        file_length=wanted.file_length,
        model=call.edge.sessions.model(),
    )


def _tags_sensitivity(call: Call, wanted: dict[str, int]) -> dict[str, int]:
    if wanted:
        known = set(call.edge.sessions.official_tags())
        for tag in wanted:
            if tag not in known:
                raise BadRequest(f"tags_sensitivity: unknown tag {tag[:64]!r}")
    return wanted


def _metadata(wanted: CreateSession) -> dict[str, str]:
    field, metadata = "metadata", wanted.metadata
    if metadata is None:
        field, metadata = "metadatas", wanted.metadatas or {}
    size = sum(len(text.encode()) for entry in metadata.items() for text in entry)
    if size > METADATA_BYTES:
        raise BadRequest(f"{field}: holds {size} bytes of text, at most {METADATA_BYTES} are kept")
    return metadata


def _sequence(text: str) -> int:
    sequence = whole("chunk_sequence", text)
    if sequence < 0:
        raise BadRequest("chunk_sequence: must be at least 0")
    return sequence


async def _changed(call: Call, session: str, command: SessionCommand, event: str) -> Reply:
    verdict = await submitted(call, session, command)
    if verdict.status != 204:
        return refusal(verdict)
    log.info(event, session=session[:8])
    return NO_CONTENT


def refusal(verdict: Verdict) -> Reply:
    """Return the error that a refused command is answered with."""
    return generic_error(verdict.status, verdict.error)
