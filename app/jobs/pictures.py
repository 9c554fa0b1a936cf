"""Pictures of a recording: its waveform in the format of audiowaveform, and its spectrogram."""

import asyncio
import math
import re
from typing import Final

from app.http.call import Call
from app.http.queries import IntegerParameter, query_parameters
from app.http.replies import NO_STORE, Headers, Reply, json_reply, reply_of_bytes
from app.jobs.answers import Waveform
from app.jobs.audio import require_audio
from app.jobs.job_context import JobContext
from app.jobs.png import png
from app.jobs.reads import project_job
from app.jobs.rendering import JobReading
from topics.errors import BadRequest
from topics.ports.pictures import RATE, STEP, Picture

POINTS: Final = IntegerParameter("points", "Maximum number of minimum/maximum pairs.", 1000, 1, 8192)
COLUMNS: Final = IntegerParameter("columns", "Width of the picture.", 1024, 1, 2048)
#: Latest position in seconds: no recording is longer than a day.
MOST_SECONDS: Final = 100_000
_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")
_PNG: Final = (b"content-type", b"image/png")


async def read_waveform(call: Call, context: JobContext) -> Reply:
    """GET /api/v1/jobs/{id}/waveform?start=&end=&points=: peaks; by default of the whole recording."""
    reading = await project_job(call, context)
    query = query_parameters(call.scope)
    points, stretch = POINTS.read(query), read_stretch(query)
    picture = await _picture(reading, context)
    start, end = whole_stretch(stretch, picture.seconds)
    first = int(start * RATE / STEP)
    span = math.ceil(end * RATE / STEP) - first
    steps = math.ceil(span / points)
    data = await picture.waveform(first, math.ceil(span / steps), steps)
    reply = json_reply(Waveform(2, 1, RATE, steps * STEP, 8, len(data) // 2, data))
    reply.headers.extend(_headers(picture))
    return reply


async def read_spectrogram(call: Call, context: JobContext) -> Reply:
    """GET /api/v1/jobs/{id}/spectrogram?start=&end=&columns=: by default of the whole recording."""
    reading = await project_job(call, context)
    query = query_parameters(call.scope)
    columns, stretch = COLUMNS.read(query), read_stretch(query)
    picture = await _picture(reading, context)
    rows = await picture.spectrogram(*whole_stretch(stretch, picture.seconds), columns)
    reply = reply_of_bytes(200, _PNG, await asyncio.to_thread(png, rows, columns))
    reply.headers.extend(_headers(picture))
    return reply


def read_stretch(query: dict[str, str]) -> tuple[float, float | None]:
    """Return start and end in seconds, by default 0 and None for the end of the recording.

    Raises:
        BadRequest: one is not a number of seconds, or they are out of order.
    """
    start, end = _seconds(query, "start") or 0.0, _seconds(query, "end")
    if end is not None and end <= start:
        raise BadRequest("end: must be after start")
    return start, end


def whole_stretch(stretch: tuple[float, float | None], length_s: float) -> tuple[float, float]:
    """Return start and end. Without an end, a stretch that starts after the recording still has some length."""
    start, end = stretch
    return start, max(length_s, start + STEP / RATE) if end is None else end


def _seconds(query: dict[str, str], name: str) -> float | None:
    text = query.get(name)
    if text is None:
        return None
    if not _SECONDS.fullmatch(text) or float(text) > MOST_SECONDS:
        raise BadRequest(f"{name}: must be a number of seconds, at most {MOST_SECONDS}")
    return float(text)


async def _picture(reading: JobReading, context: JobContext) -> Picture:
    """Return the picture of the job, once it is made.

    Raises:
        NotFound: its audio is not kept.
        AudioError: none of the audio can be decoded.
        Unavailable: the picture is still being made.
    """
    return await context.jobs.picture(require_audio(reading).job, context.options.poll_seconds)


def _headers(picture: Picture) -> Headers:
    return [(b"earshot-seconds", b"%.3f" % picture.seconds), NO_STORE]
