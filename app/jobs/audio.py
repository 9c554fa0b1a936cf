"""The recording of a job as it was sent, and links to it for players, which send no key."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final, get_args
from urllib.parse import quote

from app.http.call import Call
from app.http.holder_quota import HolderQuota, Places
from app.http.queries import query_parameters
from app.http.ranges import byte_range
from app.http.replies import NO_STORE, Headers, Reply, StreamReply, once_reply
from app.http.streaming import PIECE_BYTES, with_start
from app.http.turns import holder_of
from app.identity.keys import LINK_ENDED, PROJECT, KeyHeader
from app.jobs.answers import AudioLink
from app.jobs.job_context import JobContext
from app.jobs.reads import any_job, project_job
from app.jobs.rendering import JobReading
from topics.errors import NotFound, Unauthorized
from topics.jobs.records import Source
from topics.media import Container
from topics.ports.directory import AUDIO_LINK_SECONDS
from topics.turns import Holder

NOT_KEPT: Final = (
    "the audio of the job is not kept: before it is sent, set keep_audio_seconds of the project "
    "or EARSHOT_JOB_AUDIO_SECONDS"
)
CROWDED: Final = "too many recordings are being sent"
#: Recordings that are sent at a time, in total and of one project: each holds a mebibyte in memory.
MOST_SENT: Final = 64
MOST_OF_PROJECT: Final = 16
#: Browsers' names for containers with other names here.
_TYPES: Final = {"mp3": "audio/mpeg", "matroska": "audio/webm"}
#: All media types of recordings, without parameters.
MEDIA: Final = ("audio/x-raw", *(_TYPES.get(kind, f"audio/{kind}") for kind in get_args(Container)[:-2]))


async def link_audio(call: Call, context: JobContext) -> Reply:
    """POST /api/v1/jobs/{id}/audio: create a link to the recording that needs no key, for an hour."""
    reading = require_audio(await project_job(call, context))
    job, end = reading.job, int(time.time()) + AUDIO_LINK_SECONDS
    token = await context.directory.link_audio(context.project_keys.key(call), job)
    if token is None:
        raise Unauthorized(PROJECT.unknown)  # The key has ended; only its verdict here has not.
    return once_reply(AudioLink(f"/api/v1/jobs/{job}/audio?token={token}", datetime.fromtimestamp(end, UTC)))


async def read_audio(call: Call, context: JobContext) -> Reply | StreamReply:
    """GET /api/v1/jobs/{id}/audio: the recording as it was sent, or a range of it; needs the key or a link."""
    reading = require_audio(await _job(call, context))
    accepted = reading.view.accepted
    size, etag = accepted.source.size, b'"%s"' % reading.job.encode("ascii")
    if_range = call.header(b"if-range")
    part = byte_range(call.header(b"range"), size) if if_range in (b"", etag) else None
    start, end = part or (0, size)
    headers = [*_headers(accepted.source), (b"etag", etag), (b"content-length", b"%d" % (end - start))]
    if part is not None:
        headers.append((b"content-range", b"bytes %d-%d/%d" % (start, end - 1, size)))
    status = 200 if part is None else 206
    if call.scope["method"] == "HEAD":
        return Reply(status, headers)
    pieces = sent_pieces(context.downloads, holder_of(accepted), context.jobs.audio(reading.job, start, end))
    # Read the first piece now: if the audio is faulty, the status can still change.
    return StreamReply(status, headers, with_start(await anext(pieces), pieces))


def download_quota() -> HolderQuota:
    return HolderQuota(
        Places(MOST_OF_PROJECT, CROWDED), Places(MOST_SENT // 2, CROWDED), Places(MOST_SENT, CROWDED), retry_after=5
    )


async def sent_pieces(
    quota: HolderQuota, holder: Holder, parts: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """Yield the parts of a project's recording in pieces of at most `PIECE_BYTES`.

    Raises:
        Unavailable: too many recordings are being sent.
    """
    with quota.place(holder):
        async with aclosing(parts):
            async for part in parts:
                for at in range(0, len(part), PIECE_BYTES):
                    yield part[at : at + PIECE_BYTES]


def require_audio(reading: JobReading) -> JobReading:
    """Return a job whose audio can be read.

    Raises:
        NotFound: the audio is not kept.
    """
    if not reading.head.can_be_heard:
        raise NotFound(NOT_KEPT)
    return reading


async def _job(call: Call, context: JobContext) -> JobReading:
    if "token" not in query_parameters(call.scope):
        return await project_job(call, context)
    link = await context.audio_links.authenticate(call)
    # The cached verdict on a link contains its end.
    if link.job != call.path("job_id") or link.ends_at <= time.time() * 1000:
        raise Unauthorized(LINK_ENDED)
    return any_job(call, context)


def link_token(call: Call, kind: KeyHeader) -> str:
    """Return the token of the link that the request follows, or ""."""
    return query_parameters(call.scope).get("token", "")


def _headers(source: Source) -> Headers:
    kind = _TYPES.get(source.format, "") or source.content_type
    return [
        (b"content-type", kind.encode("ascii", "replace")),
        (b"content-disposition", disposition(source.filename)),
        (b"x-content-type-options", b"nosniff"),
        (b"accept-ranges", b"bytes"),
        NO_STORE,
    ]


def disposition(filename: str) -> bytes:
    """Return the Content-Disposition of a file with any name (RFC 6266): saved, not shown."""
    name = filename.encode("utf-8", "replace").decode("utf-8") or "recording"
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}".encode("ascii")
