"""Caption files of a job that has ended: who says what, and what else can be heard."""

from __future__ import annotations

import asyncio
from typing import Final

from app.edge import Edge
from app.http.operation import Call
from app.http.replies import Reply, StreamReply
from app.http.streaming import paced, replied
from app.jobs.cues import Cue, Hearing, ordered, subrip, webvtt
from app.jobs.reads import known
from app.jobs.rendering import Reading
from topics.errors import Conflict
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.payloads import Segment
from topics.jobs.rules import JobState

_VTT: Final = (b"content-type", b"text/vtt")
_SRT: Final = (b"content-type", b"application/x-subrip")


async def captions_vtt(call: Call) -> Reply | StreamReply:
    """GET /api/v1/jobs/{id}/captions.vtt; needs no key."""
    return await replied(paced(webvtt(await _cues(call, named=False))), _VTT)


async def captions_srt(call: Call) -> Reply | StreamReply:
    """GET /api/v1/jobs/{id}/captions.srt; needs no key. The first cue of a turn begins with who speaks."""
    return await replied(paced(subrip(await _cues(call, named=True))), _SRT)


async def _cues(call: Call, named: bool) -> list[Cue]:
    """Return every cue in order of time.

    Raises:
        NotFound: there is no such job.
        Conflict: it has not ended.
    """
    reading = known(call)
    if reading.head.state is not JobState.COMPLETED:
        raise Conflict("the job has not ended yet")
    turns = await _turns(call.edge, reading)
    events = (await _hearing(call.edge, reading)).events()
    # A recording of many hours keeps a thread at work for a second.
    return await asyncio.to_thread(ordered, turns, events, named)


async def _turns(edge: Edge, reading: Reading) -> list[Segment]:
    entry = reading.head.entry(Service.SPEECH)
    turns: list[Segment] = []
    for data in edge.results.portions(reading, entry) if entry is not None else ():
        turns += payloads.transcript(data).segments
        await asyncio.sleep(0)
    return turns


async def _hearing(edge: Edge, reading: Reading) -> Hearing:
    hearing = Hearing()
    entry = reading.head.entry(Service.SOUND)
    for data in edge.results.portions(reading, entry) if entry is not None else ():
        sounds = payloads.sounds(data)
        chart = edge.results.chart(sounds.model)
        for number, found in enumerate(chart.found(sounds.scores), sounds.first):
            for missing, tag in found:
                hearing.window(number, chart.tags[tag], missing)
        await asyncio.sleep(0)
    return hearing
