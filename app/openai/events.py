"""A transcript as server-sent events: `transcript.text.delta`, `.segment` (with speakers) and
`.done`."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import msgspec
import structlog

from app.http.server_sent import HEARTBEAT_SECONDS
from app.http.streaming import in_turn
from app.jobs.job_context import JobContext
from app.jobs.rendering import JobReading
from app.openai.answers import SpeakerSegment, TextDelta, TextDone
from app.openai.errors import OpenAIError, error_object
from app.openai.formats import SpeakerLabels, diarized_segment, transcript_of
from app.openai.requests import Format, SpeechRequest
from app.openai.waiting import readings, removed_unless_answered
from topics import keys
from topics.errors import EarshotError
from topics.jobs import payloads
from topics.jobs.options import Service
from topics.jobs.payloads import Segment

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class _Sent:
    """Tracks the part of a transcript that a client has."""

    def __init__(self, request: SpeechRequest) -> None:
        self._diarized = request.format is Format.DIARIZED
        self._labels = SpeakerLabels(request.names)
        self._run = ""
        self._portions = 0
        self._segments = 0
        self._last_ms = -1
        #: End of the text that came from a run that died.
        self._known_ms = -1

    def events(self, context: JobContext, reading: JobReading) -> Iterator[bytes]:
        """Yield what is new. If a run started again, skip the text that the client already has."""
        entry = reading.head.entry(Service.SPEECH)
        if entry is None:
            return
        if entry.run != self._run:
            self._run, self._portions, self._known_ms = entry.run, 0, self._last_ms
        for data in context.renderer.portions(reading, entry, self._portions):
            for segment in payloads.transcript(data).segments:
                if segment.text and segment.start_ms > self._known_ms:
                    yield from self._segment_events(segment)
            self._portions += 1

    def _segment_events(self, segment: Segment) -> Iterator[bytes]:
        delta = f" {segment.text}" if self._segments else segment.text
        if self._diarized:
            item = diarized_segment(self._segments, segment, self._labels)
            yield _event(TextDelta(delta, item.id))
            yield _event(item)
        else:
            yield _event(TextDelta(delta))
        self._segments += 1
        self._last_ms = segment.start_ms


async def transcript_events(
    context: JobContext, request: SpeechRequest, job: str, keyed: bool
) -> AsyncGenerator[bytes, None]:
    """Yield the events of a job's transcript to its end; an error is the last event.

    Comments break silence, for clients and proxies that give up on a quiet connection.
    """
    sent = _Sent(request)
    try:
        async with (
            removed_unless_answered(context, job, keyed),
            aclosing(readings(context, job, HEARTBEAT_SECONDS)) as changes,
        ):
            async for reading in changes:
                quiet = True
                async with aclosing(in_turn(context.turns, reading.holder, sent.events(context, reading))) as news:
                    async for events in news:
                        yield events
                        quiet = False
                if quiet:
                    yield b": still here\n\n"
        transcript = await transcript_of(context, reading, request.task)
    except EarshotError as error:
        log.info("transcript broken off", job=keys.shown(job), reason=str(error))
        yield _event(error_object(str(error), 500, error))
        return
    yield _event(TextDone(transcript.text))


def _event(content: TextDelta | SpeakerSegment | TextDone | OpenAIError) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(content)
