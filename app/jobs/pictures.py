"""Pictures of a recording: its waveform in the format of audiowaveform, and its spectrogram."""

import asyncio
import math
import re
from functools import partial
from typing import Annotated, Final

import msgspec

from app.http.call import Call
from app.http.descriptions import Answer, Fault, Parameter, fault_of, integer_query, json_answer, operation
from app.http.queries import IntegerParameter, query_parameters
from app.http.replies import NO_STORE, Headers, Reply, json_reply, reply_of_bytes
from app.jobs.answers import Waveform
from app.jobs.audio import HEARD_FAULTS, LOST, require_audio
from app.jobs.job_context import JobContext
from app.jobs.png import png
from app.jobs.reads import JOB, project_job
from app.jobs.rendering import JobReading
from app.shared_descriptions import PROJECT_KEY
from topics.errors import BadRequest, Unavailable
from topics.ports.pictures import BANDS, RATE, STEP, Picture

POINTS: Final = IntegerParameter("points", "Maximum number of minimum/maximum pairs.", 1000, 1, 8192)
COLUMNS: Final = IntegerParameter("columns", "Width of the picture.", 1024, 1, 2048)
#: Latest position in seconds: no recording is longer than a day.
MOST_SECONDS: Final = 100_000
_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")
_PNG: Final = (b"content-type", b"image/png")


PEAKS: Final = Waveform(2, 1, RATE, 56_160, 8, 2, [-31, 29, -114, 120])
STRETCH: Final = tuple(
    Parameter(name, "query", Annotated[float, msgspec.Meta(ge=0, le=MOST_SECONDS)], text)
    for name, text in (("start", "Seconds, by default 0."), ("end", "Seconds, by default the recording's end."))
)
ROWS: Final = f"{BANDS} rows, one for each frequency band up to {RATE // 2}"
DRAWN: Final = (
    "The first request draws it, in a few seconds for an hour of audio. Until then the answer is 503: retry after "
    "`Retry-After`."
)
LENGTH: Final = {
    "Earshot-Seconds": "Length of the recording in seconds; if it breaks off, up to there.",
    "Cache-Control": "Do not cache.",
}


def _faults(width: IntegerParameter) -> tuple[Fault, ...]:
    return (
        fault_of(width.read, {width.name: "0"}),
        fault_of(read_stretch, {"start": "-1"}),
        fault_of(read_stretch, {"start": "2", "end": "1"}),
        *HEARD_FAULTS,
        LOST,
        Unavailable("the picture of the recording is being drawn"),
    )


@operation(
    "GET /jobs/{job_id}/waveform",
    key=PROJECT_KEY,
    parameters=(JOB, *STRETCH, integer_query(POINTS)),
    answers=json_answer("The peaks.", two=PEAKS, headers=LENGTH),
    faults=partial(_faults, POINTS),
)
async def read_waveform(call: Call, context: JobContext) -> Reply:
    """Read the waveform of a recording.

    Peaks of the recording or a part of it, in the data format of BBC audiowaveform. {DRAWN}
    """
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


@operation(
    "GET /jobs/{job_id}/spectrogram",
    key=PROJECT_KEY,
    parameters=(JOB, *STRETCH, integer_query(COLUMNS)),
    answers={200: Answer("The picture.", (bytes,), {}, media="image/png", headers=LENGTH)},
    faults=partial(_faults, COLUMNS),
)
async def read_spectrogram(call: Call, context: JobContext) -> Reply:
    """Read the spectrogram of a recording.

    A picture of {ROWS} Hz, evenly spaced on the mel scale, the
    highest on top. Black is -100 dB, white is full scale; a pixel shows the loudest value that it covers. It is black
    after the end of the recording. {DRAWN}
    """
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
