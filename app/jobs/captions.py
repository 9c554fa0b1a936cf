"""Caption files of a finished job: who says what, and which sounds occur."""

import asyncio
from typing import Final

import msgspec

from app.http.call import Call
from app.http.replies import Reply, StreamReply
from app.http.streaming import cooperative, reply_in_pieces
from app.jobs.cues import SOUND_RULES, ended_sounds, recording_cues
from app.jobs.job_context import JobContext
from app.jobs.reads import shared_job
from app.jobs.rendering import JobReading
from topics.captions import Cue, subrip, webvtt
from topics.errors import Conflict
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.payloads import Segment
from topics.jobs.rules import JobState
from topics.sessions.sounds import Heard, SoundTracker

NOT_ENDED: Final = "the job has not ended yet"
_VTT: Final = (b"content-type", b"text/vtt")
_SRT: Final = (b"content-type", b"application/x-subrip")


async def captions_vtt(call: Call, context: JobContext) -> Reply | StreamReply:
    """GET /api/v1/jobs/{id}/captions.vtt; needs no key unless the deployment requires one."""
    return await reply_in_pieces(cooperative(webvtt(await _cues(call, context, with_names=False))), _VTT)


async def captions_srt(call: Call, context: JobContext) -> Reply | StreamReply:
    """GET /api/v1/jobs/{id}/captions.srt; keys as for WebVTT. The first cue of a turn names the speaker."""
    return await reply_in_pieces(cooperative(subrip(await _cues(call, context, with_names=True))), _SRT)


async def _cues(call: Call, context: JobContext, with_names: bool) -> list[Cue]:
    """Return every cue in order of time.

    Raises:
        Unauthorized, DirectoryDown: the deployment requires a key, which is invalid or cannot be verified.
        NotFound: there is no such job.
        Conflict: it has not ended.
    """
    reading = await shared_job(call, context)
    if reading.head.state is not JobState.COMPLETED:
        raise Conflict(NOT_ENDED)
    turns = await _turns(context, reading)
    events = await _sound_events(context, reading)
    # A recording of many hours occupies a thread for a second.
    return await asyncio.to_thread(recording_cues, turns, events, with_names)


async def _turns(context: JobContext, reading: JobReading) -> list[Segment]:
    entry = reading.head.entry(Service.SPEECH)
    turns: list[Segment] = []
    for data in context.renderer.portions(reading, entry) if entry is not None else ():
        turns += payloads.transcript(data).segments
        await asyncio.sleep(0)
    return turns


async def _sound_events(context: JobContext, reading: JobReading) -> list[Heard]:
    tracker, events = SoundTracker(SOUND_RULES), list[Heard]()
    entry = reading.head.entry(Service.SOUND)
    for data in context.renderer.portions(reading, entry) if entry is not None else ():
        sounds = payloads.sounds(data)
        renderer = context.renderer.window_renderer(sounds.model)
        for number, tags in enumerate(renderer.reported_tags(sounds.scores), sounds.first):
            # Events that start together are in the order of windows: by the stored distance from the threshold, an
            # integer, and then by the tag's number.
            reported = [(renderer.tags[tag], -missing - tag / len(renderer.tags)) for missing, tag in tags]
            events += ended_sounds(tracker, number, reported)
        await asyncio.sleep(0)
    events += tracker.finish()
    return [msgspec.structs.replace(event, end_ms=min(event.end_ms, reading.end_ms)) for event in events]
