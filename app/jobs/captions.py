"""Caption files of a finished job: who says what, and which sounds occur."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Final

import msgspec

from app.http.call import Call
from app.http.descriptions import Answer, Description, operation
from app.http.replies import Reply, StreamReply
from app.http.streaming import in_turn, reply_in_pieces
from app.jobs.cues import SOUND_RULES, ended_sounds, recording_cues
from app.jobs.errors import job_not_found
from app.jobs.job_context import JobContext
from app.jobs.reads import JOB, SHARED_KEY, shared_job
from app.jobs.rendering import JobReading
from app.shared_descriptions import BROKEN
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


def _described(kind: str, media: str, example: str) -> Description:
    return operation(
        f"GET /jobs/{{job_id}}/captions.{kind}",
        key=SHARED_KEY,
        parameters=(JOB,),
        answers={200: Answer("Captions.", (str,), {"door": example}, media)},
        faults=(job_not_found(), Conflict(NOT_ENDED), *BROKEN),
    )


@_described("vtt", "text/vtt", "WEBVTT\n\n00:00:03.000 --> 00:00:07.000\n[Dog bark]\n")
async def captions_vtt(call: Call, context: JobContext) -> Reply | StreamReply:
    """Read captions as WebVTT.

    Speech by speaker, and other sounds. Needs a key only if the event stream does.
    """
    return await _captions(call, context, webvtt, _VTT, with_names=False)


@_described("srt", "application/x-subrip", "1\n00:00:03,000 --> 00:00:07,000\n[Dog bark]\n")
async def captions_srt(call: Call, context: JobContext) -> Reply | StreamReply:
    """Read captions as SubRip.

    The same; the first cue of a turn begins with the speaker.
    """
    return await _captions(call, context, subrip, _SRT, with_names=True)


async def _captions(
    call: Call,
    context: JobContext,
    written: Callable[[Iterable[Cue]], Iterator[bytes]],
    content_type: tuple[bytes, bytes],
    with_names: bool,
) -> Reply | StreamReply:
    """Return every cue in order of time.

    Raises:
        Unauthorized, DirectoryDown: the deployment requires a key, which is invalid or cannot be verified.
        NotFound: there is no such job.
        Conflict: it has not ended.
    """
    reading = await shared_job(call, context)
    if reading.head.state is not JobState.COMPLETED:
        raise Conflict(NOT_ENDED)
    each, holder = context.turns.each, reading.holder
    async with aclosing(each(holder, _turns(context, reading))) as portions:
        turns = [turn async for some in portions for turn in some]
    async with aclosing(each(holder, _sound_events(context, reading))) as passages:
        events = [event async for some in passages for event in some]
    # A recording of many hours occupies a thread for a second.
    cues = await asyncio.to_thread(recording_cues, turns, events, with_names)
    return await reply_in_pieces(in_turn(context.turns, reading.holder, written(cues)), content_type)


def _turns(context: JobContext, reading: JobReading) -> Iterator[Sequence[Segment]]:
    entry = reading.head.entry(Service.SPEECH)
    for data in context.renderer.portions(reading, entry) if entry is not None else ():
        yield payloads.transcript(data).segments


def _sound_events(context: JobContext, reading: JobReading) -> Iterator[Sequence[Heard]]:
    tracker = SoundTracker(SOUND_RULES)
    entry = reading.head.entry(Service.SOUND)
    for data in context.renderer.portions(reading, entry) if entry is not None else ():
        events = list[Heard]()
        sounds = payloads.sounds(data)
        renderer = context.renderer.window_renderer(sounds.model)
        for number, tags in enumerate(renderer.reported_tags(sounds.scores), sounds.first):
            # Events that start together are in the order of windows: by the stored distance from the threshold, an
            # integer, and then by the tag's number.
            reported = [(renderer.names[tag], -missing - tag / renderer.width) for missing, tag in tags]
            events += ended_sounds(tracker, number, reported)
        yield _within(events, reading)
    yield _within(tracker.finish(), reading)


def _within(events: Iterable[Heard], reading: JobReading) -> list[Heard]:
    return [msgspec.structs.replace(event, end_ms=min(event.end_ms, reading.end_ms)) for event in events]
