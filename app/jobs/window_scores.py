"""The stored scores of all tags of a job's windows, to see what another threshold would report."""

from collections.abc import Iterator
from typing import Final

import msgspec
import pybase64

from app.http.call import Call
from app.http.descriptions import json_answer, operation
from app.http.replies import JSON, Reply, StreamReply
from app.http.streaming import in_turn, reply_in_pieces
from app.jobs.errors import job_not_found
from app.jobs.examples import SCORES
from app.jobs.job_context import JobContext
from app.jobs.reads import JOB, project_job
from app.jobs.rendering import JobReading
from app.shared_descriptions import BROKEN, PROJECT_KEY
from topics.errors import Conflict, NotFound
from topics.geometry import SENSE
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.rules import Entry
from topics.scores import STEP, ZERO

NO_SOUNDS: Final = "the job did not request sound events"
NOT_ENDED: Final = "the sound events have not ended yet"
#: Bytes encoded at a time; a multiple of three, so that pieces of base64 can be joined.
_PIECE: Final = 3 * 65536


@operation(
    "GET /jobs/{job_id}/scores",
    key=PROJECT_KEY,
    parameters=(JOB,),
    answers=json_answer("The scores.", two=SCORES),
    faults=(job_not_found(), NotFound(NO_SOUNDS), Conflict(NOT_ENDED), *BROKEN),
)
async def read_scores(call: Call, context: JobContext) -> Reply | StreamReply:
    """Read the scores of all sounds.

    Available once the sound events have ended; if they failed, up to the error.
    """
    reading = await project_job(call, context)
    entry = reading.head.entry(Service.SOUND)
    if entry is None:
        raise NotFound(NO_SOUNDS)
    if not entry.ended:
        raise Conflict(NOT_ENDED)
    return await reply_in_pieces(in_turn(context.turns, reading.holder, _json(context, reading, entry)), JSON)


def _json(context: JobContext, reading: JobReading, entry: Entry) -> Iterator[bytes]:
    portions = context.renderer.portions(reading, entry)
    first = next((payloads.sounds(data) for data in portions), None)
    facts = {
        "model": "" if first is None else first.model,
        "tags": [] if first is None else context.renderer.window_renderer(first.model).names,
        "hop_seconds": SENSE.hop_ms / 1000,
        "window_seconds": SENSE.window_ms / 1000,
        "step": STEP,
        "reported_from": ZERO,
    }
    yield msgspec.json.encode(facts)[:-1] + b',"scores":"'
    rest = b"" if first is None else first.scores
    for data in portions:
        rest += payloads.sounds(data).scores
        while len(rest) >= _PIECE:
            yield pybase64.b64encode(rest[:_PIECE])
            rest = rest[_PIECE:]
    yield pybase64.b64encode(rest) + b'"}'
