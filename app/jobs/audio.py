"""The recording of a job as it was sent, and links to it for players, which send no key."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

from app.http.call import Call
from app.http.descriptions import Answer, Parameter, json_answer, operation
from app.http.holder_quota import HolderQuota, Places
from app.http.queries import query_parameters
from app.http.ranges import RangeNotSatisfiable, byte_range
from app.http.replies import NO_STORE, Headers, Reply, StreamReply, once_reply
from app.http.streaming import PIECE_BYTES, with_start
from app.http.turns import holder_of
from app.identity.keys import LINK_ENDED, PROJECT, KeyHeader
from app.jobs.answers import AudioLink
from app.jobs.errors import job_not_found
from app.jobs.examples import ID
from app.jobs.job_context import JobContext
from app.jobs.reads import JOB, any_job, project_job
from app.jobs.rendering import JobReading
from app.shared_descriptions import BROKEN, PROJECT_KEY
from topics.errors import AudioError, NotFound, Unauthorized, Unavailable
from topics.jobs.records import Source
from topics.media import KINDS
from topics.ports.directory import AUDIO_LINK_SECONDS
from topics.tally import Tally
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
MEDIA: Final = ("audio/x-raw", *(_TYPES.get(kind, f"audio/{kind}") for kind in KINDS))


LASTS: Final = f"{AUDIO_LINK_SECONDS} s"
LINK: Final = AudioLink(
    f"/api/v1/jobs/{ID}/audio?token=0123456789abcdefghijABCDEFGHIJKL", datetime(2026, 11, 22, 7, 49, tzinfo=UTC)
)
LOST: Final = AudioError("the audio was damaged in the log")
HEARD_FAULTS: Final = (job_not_found(), NotFound(NOT_KEPT), *BROKEN)
AUDIO: Final = {
    "Accept-Ranges": "`bytes`.",
    "Content-Disposition": "Its name, to save it as.",
    "ETag": "For `If-Range`.",
    "Cache-Control": "Do not cache.",
}
RANGE: Final = {"Content-Range": "Which bytes of how many."}


@operation(
    "GET /jobs/{job_id}/audio",
    key=PROJECT_KEY,
    parameters=(
        JOB,
        Parameter("token", "query", str, "The token of a link, in place of the key."),
        Parameter("Range", "header", str, "The requested bytes.", example="bytes=0-1023"),
        Parameter(
            "If-Range", "header", str, "The `ETag` of an earlier answer; if it differs, all of the recording is sent."
        ),
    ),
    answers={
        200: tuple(Answer("The recording.", (bytes,), {}, media=kind, headers=AUDIO) for kind in MEDIA),
        206: tuple(Answer("The range.", (bytes,), {}, media=kind, headers=AUDIO | RANGE) for kind in MEDIA),
    },
    faults=(*HEARD_FAULTS, LOST, Unauthorized(LINK_ENDED), RangeNotSatisfiable(27_029), Unavailable(CROWDED, 5)),
)
async def read_audio(call: Call, context: JobContext) -> Reply | StreamReply:
    """Read a recording.

    The original bytes, or one range of them; a request for several ranges gets all of them. Needs the key, or the
    `token` of a link. The answer is 404 once the recording is deleted.
    """
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


@operation(
    "POST /jobs/{job_id}/audio",
    key=PROJECT_KEY,
    parameters=(JOB,),
    answers=json_answer("The link.", door=LINK, headers={"Cache-Control": "Do not cache."}),
    faults=HEARD_FAULTS,
)
async def link_audio(call: Call, context: JobContext) -> Reply:
    """Make a link to a recording.

    For players, which cannot send a key; never put a key in a URL. The link opens only this recording, for
    {LASTS}. The project or operator sets how long audio is kept.
    """
    reading = require_audio(await project_job(call, context))
    job, end = reading.job, int(time.time()) + AUDIO_LINK_SECONDS
    token = await context.directory.link_audio(context.project_keys.key(call), job)
    if token is None:
        raise Unauthorized(PROJECT.unknown)  # The key has ended; only its verdict here has not.
    return once_reply(AudioLink(f"/api/v1/jobs/{job}/audio?token={token}", datetime.fromtimestamp(end, UTC)))


def download_quota(tally: Tally | None = None) -> HolderQuota:
    project, organization = Places(MOST_OF_PROJECT, CROWDED), Places(MOST_SENT // 2, CROWDED)
    return HolderQuota(project, organization, Places(MOST_SENT, CROWDED), retry_after=5, tally=tally)


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
